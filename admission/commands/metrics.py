"""Serves the metrics of a process over HTTPS to those whom the API server lets see them.

A caller shows a bearer token, which the API server reviews (TokenReview, then SubjectAccessReview of GET on the path);
its answer is believed for ten seconds. The certificate is self-signed: what is protected is the token on its way.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from admission import tls
from admission.commands import health
from admission.kube.errors import ApiError
from admission.kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS

if TYPE_CHECKING:
    from admission.kube.client import Client
    from admission.settings import Settings

logger = logging.getLogger(__name__)

PATH: Final = "/metrics"
_BELIEVED_SECONDS: Final = 10.0
_MOST_ANSWERS: Final = 1000


class Doorkeeper:
    """Who may see the metrics, as the API server says."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._answers: dict[bytes, tuple[float, int]] = {}

    async def status(self, authorization: str) -> int:
        """200, 401 or 403; 503 when the API server cannot be asked."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii() or not token.isprintable():
            return 401
        key = hashlib.sha256(token.encode()).digest()
        now = asyncio.get_running_loop().time()
        answered_at, answer = self._answers.get(key, (0.0, 0))
        if answer and now - answered_at < _BELIEVED_SECONDS:
            return answer
        try:
            answer = await self._asked(token)
        except ApiError as error:
            logger.warning("a caller of the metrics cannot be reviewed", extra={"error": str(error)})
            return 503
        if len(self._answers) >= _MOST_ANSWERS:
            self._answers.clear()
        self._answers[key] = (now, answer)
        return answer

    async def _asked(self, token: str) -> int:
        review = await self._client.create(TOKEN_REVIEWS, _review("TokenReview", {"token": token}))
        status = review.get("status") or {}
        if not status.get("authenticated"):
            return 401
        user: dict[str, Any] = status.get("user") or {}
        spec = {
            "user": user.get("username", ""),
            "groups": user.get("groups") or [],
            "uid": user.get("uid", ""),
            "extra": user.get("extra") or {},
            "nonResourceAttributes": {"path": PATH, "verb": "get"},
        }
        access = await self._client.create(SUBJECT_ACCESS_REVIEWS, _review("SubjectAccessReview", spec))
        return 200 if (access.get("status") or {}).get("allowed") else 403


@dataclass(frozen=True, slots=True)
class Read:
    """Metrics as they were at one moment, for an encoder."""

    families: list[Metric]

    def collect(self) -> list[Metric]:
        return self.families


def _review(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    resource = TOKEN_REVIEWS if kind == "TokenReview" else SUBJECT_ACCESS_REVIEWS
    return {"apiVersion": resource.api_version, "kind": kind, "spec": spec}


async def serve(client: Client, settings: Settings, registry: CollectorRegistry) -> web.AppRunner | None:
    """Start serving; None when the metrics are turned off or their address is taken (which is logged)."""
    where = health.address(settings.metrics.bind_address)
    if where is None:
        return None
    doorkeeper = Doorkeeper(client)
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)

    async def answer(request: web.Request) -> web.Response:
        status = await doorkeeper.status(request.headers.get("Authorization", ""))
        if status != 200:
            headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
            return web.Response(status=status, headers=headers)
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        # What is read from the controller's state is read here, on its event loop; the text is made elsewhere.
        read = Read(list(registry.collect()))
        body = await asyncio.to_thread(encode, read)
        return web.Response(body=body, headers={"Content-Type": content_type})

    application = web.Application()
    application.router.add_get(PATH, answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    host, port = where
    try:
        await web.TCPSite(runner, host or None, port, ssl_context=_context(settings)).start()
    except OSError as error:
        logger.error("the metrics cannot be served", extra={"address": where, "error": str(error)})  # noqa: TRY400
        await runner.cleanup()
        return None
    return runner


def _context(settings: Settings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = settings.oldest_tls
    if settings.ciphers:
        context.set_ciphers(settings.ciphers)
    with tempfile.TemporaryDirectory() as folder:
        tls.write_files(Path(folder), tls.issue(("muster-metrics", "localhost"), datetime.now(UTC)))
        context.load_cert_chain(Path(folder) / tls.CERTIFICATE_FILE, Path(folder) / tls.KEY_FILE)
    return context
