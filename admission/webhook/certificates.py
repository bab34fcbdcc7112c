"""Keeps the serving certificates: in a Secret, so that all replicas serve the same, and from there in files.

Every replica does so, and the Secret's resourceVersion decides who was first. What others have to trust is published
before it is served; a Secret that cannot be reached leaves what is served as it is. Files that Muster did not make are
never written over, and whom to trust for them is left to whoever made them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from admission import tls
from admission.settings import Settings
from admission.tls import Certificates, Need

if TYPE_CHECKING:
    from admission.kube.client import Client

logger = logging.getLogger(__name__)

#: Puts a bundle of authorities where those who connect look for it. An empty one leaves the authorities there alone.
Publish = Callable[[bytes], Awaitable[None]]

_LOOK_EVERY_SECONDS: Final = 30.0
_FIRST_PAUSE_SECONDS: Final = 0.5
#: All API servers have followed a changed webhook configuration after this.
_SPREAD_SECONDS: Final = 2.0
_MOST_STEPS: Final = 20


async def keep(
    client: Client,
    settings: Settings,
    *,
    names: tuple[str, ...],
    publish: Publish,
    look_every: float = _LOOK_EVERY_SECONDS,
) -> None:
    """Keep files and configurations at what the Secret says, and the Secret fresh. Runs until it is cancelled.

    A folder that holds a certificate and a key of others is used as it is, for as long as it does.
    """
    folder = Path(settings.webhook.cert_dir)
    used_as_it_is = False

    async def look() -> None:
        nonlocal used_as_it_is
        before, used_as_it_is = used_as_it_is, await asyncio.to_thread(tls.holds_others, folder)
        if used_as_it_is:
            if not before:
                logger.info("the files in certDir are used as they are", extra={"folder": str(folder)})
            await publish(b"")
            return
        held = await stored(client, settings, names)
        await publish(held.authorities)
        if await asyncio.to_thread(tls.write_files, folder, held):
            logger.info("serving certificates written", extra={"folder": str(folder)})

    await _again_and_again(look, look_every)


async def follow(publish: Publish, *, look_every: float = _LOOK_EVERY_SECONDS) -> None:
    """Keep configurations at what the settings say where others keep the certificates. Runs until it is cancelled."""
    await _again_and_again(lambda: publish(b""), look_every)


async def _again_and_again(look: Callable[[], Awaitable[None]], look_every: float) -> None:
    from admission.kube.client import ApiError

    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            await look()
        except (ApiError, OSError) as error:
            logger.warning(
                "certificates or configurations cannot be kept, trying again",
                extra={"error": str(error), "seconds": pause},
            )
            await asyncio.sleep(pause)
            pause = min(pause * 2, look_every)
        else:
            pause = _FIRST_PAUSE_SECONDS
            await asyncio.sleep(look_every)


async def stored(client: Client, settings: Settings, names: tuple[str, ...]) -> Certificates:
    """What the Secret holds, made or replaced as far as it has to be. Safe to call from every replica at once."""
    for _ in range(_MOST_STEPS):
        secret = await _secret(client, settings)
        held = tls.from_secret(secret.get("data"))
        now = datetime.now(UTC)
        need = Need.ALL if held is None else tls.needs_rotation(held, names, now)
        if held is not None and need is Need.NOTHING:
            return held
        fresh = tls.issue(names, now) if held is None else tls.rotate(held, need, names, now)
        if await _store(client, secret, fresh):
            logger.info("serving certificates replaced", extra={"what": need.value})
    raise OSError("the Secret of the serving certificates is changed by others all the time")


async def replace_now(client: Client, settings: Settings, names: tuple[str, ...], publish: Publish) -> Certificates:
    """Replace authority and certificate at once, as at the end of their lives, but without the hour between.

    Trust comes first: the new authority is published beside the old one, and signs only then.
    """
    held = await stored(client, settings, names)
    for need in (Need.AUTHORITY, Need.SERVING):
        held = tls.rotate(held, need, names, datetime.now(UTC))
        for _ in range(_MOST_STEPS):
            if await _store(client, await _secret(client, settings), held):
                break
        await publish(held.authorities)
        if need is Need.AUTHORITY:
            await asyncio.sleep(_SPREAD_SECONDS)
    return held


async def _secret(client: Client, settings: Settings) -> dict[str, Any]:
    """The Secret, which is made where it is missing."""
    from admission.kube.client import AlreadyExists, NotFound
    from admission.kube.resources import SECRETS

    namespace, name = settings.namespace, settings.internal_cert_management.webhook_secret_name
    try:
        return await client.get(SECRETS, namespace, name)
    except NotFound:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "type": "Opaque",
        }
        with contextlib.suppress(AlreadyExists):
            return await client.create(SECRETS, body, namespace)
        return await client.get(SECRETS, namespace, name)


async def _store(client: Client, secret: dict[str, Any], fresh: Certificates) -> bool:
    """False when someone else was faster."""
    from admission.kube.client import Conflict
    from admission.kube.resources import SECRETS

    metadata = secret["metadata"]
    body = {**secret, "data": {**(secret.get("data") or {}), **tls.to_secret(fresh)}}
    try:
        await client.replace(SECRETS, metadata["namespace"], metadata["name"], body)
    except Conflict:
        return False
    return True
