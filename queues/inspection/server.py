"""Serves the inspection application over TLS: gunicorn with threads, in the process that calls `serve`.

A client may show a certificate; one of the aggregation layer's CA tells the application that the API server is calling.
Certificates and that CA may change while it runs. It must never pass on as verified what OpenSSL did not verify.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication

from queues.inspection.access import HEADERS, PEER, Authorizer, Peer, Reviewer, ReviewError
from queues.inspection.app import create_app
from queues.journal.database import open_database

log = logging.getLogger("muster.inspection")

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

#: Seconds between looks at the aggregation layer's settings: once known, and before that.
REFRESH, RETRY = 60.0, 2.0


@dataclass(frozen=True, slots=True)
class Options:
    """`binds`: `HOST:PORT` each. Certificate and key are PEM files that may be replaced at any time.

    `ciphers` is OpenSSL's list of suites of TLS 1.2; empty leaves them to OpenSSL.
    """

    url: str
    certificate: Path
    key: Path
    binds: tuple[str, ...] = ("0.0.0.0:8082",)
    threads: int = 8
    oldest_tls: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: str = ""


def serve(options: Options, connect: Callable[[], Reviewer], *, ready: Callable[[], None] | None = None) -> None:
    """Serves until SIGTERM; has to be called from the main thread of a process.

    `connect` makes the reviewer in the process that answers. `ready` is called there once it takes connections.
    """
    _Server(options, connect, ready).run()


class _Server(BaseApplication):  # type: ignore[misc]
    def __init__(self, options: Options, connect: Callable[[], Reviewer], ready: Callable[[], None] | None) -> None:
        self._options, self._connect, self._ready = options, connect, ready
        self._certificates = Certificates(options.certificate, options.key, options.oldest_tls, options.ciphers)
        super().__init__()

    def load_config(self) -> None:
        for name, value in {
            "bind": list(self._options.binds),
            "worker_class": "gthread",
            "workers": 1,
            "threads": self._options.threads,
            "http_protocols": "h1",
            "keepalive": 30,
            "graceful_timeout": 1,
            "timeout": 60,
            "limit_request_line": 8190,
            "proc_name": "muster-inspection",
            "control_socket_disable": True,
            "loglevel": "warning",
            "certfile": str(self._options.certificate),
            "keyfile": str(self._options.key),
            "do_handshake_on_connect": False,
            "ssl_context": self._tls,
            "pre_request": _remember_headers,
            "post_worker_init": self._started,
        }.items():
            self.cfg.set(name, value)

    def load(self) -> Wsgi:
        authorizer = Authorizer(self._connect())
        self._certificates.authorizer = authorizer
        _refresh(authorizer)
        threading.Thread(target=_keep_fresh, args=(authorizer,), name="aggregation", daemon=True).start()
        return identified(create_app(open_database(self._options.url), authorizer))

    def _tls(self, _config: Any, _default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        return self._certificates.context()

    def _started(self, _worker: Any) -> None:
        if self._ready is not None:
            self._ready()


class Certificates:
    """The TLS context of the moment: made again when the files or the aggregation layer's CA have changed."""

    def __init__(
        self, certificate: Path, key: Path, oldest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2, ciphers: str = ""
    ) -> None:
        self._files = (certificate, key)
        self._oldest = oldest
        self._ciphers = ciphers
        self._lock = threading.Lock()
        self._made_from: tuple[Any, ...] | None = None
        self._context: ssl.SSLContext | None = None
        self.authorizer: Authorizer | None = None

    def context(self) -> ssl.SSLContext:
        aggregation = self.authorizer.aggregation if self.authorizer is not None else None
        client_ca = aggregation.client_ca if aggregation is not None else ""
        with self._lock:
            try:
                made_from = (*((s.st_mtime_ns, s.st_ino, s.st_size) for s in map(Path.stat, self._files)), client_ca)
                if self._context is None or made_from != self._made_from:
                    self._context, self._made_from = self._make(client_ca), made_from
            except (OSError, ssl.SSLError) as error:
                # Between the replacement of one file and of the other they do not fit together.
                if self._context is None:
                    raise
                log.warning("the new certificate cannot be used yet: %s", error)
            return self._context

    def _make(self, client_ca: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._oldest
        if self._ciphers:
            context.set_ciphers(self._ciphers)
        context.load_cert_chain(*self._files)
        context.set_alpn_protocols(["http/1.1"])
        if client_ca:
            context.load_verify_locations(cadata=client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


_request = threading.local()


def _remember_headers(_worker: Any, request: Any) -> None:
    """Called by gunicorn in the thread that then runs the application.

    WSGI joins repeated headers with commas, which a group's name may contain too; so the single lines are kept.
    """
    _request.headers = tuple((name, value) for name, value in request.headers)


def identified(app: Wsgi) -> Wsgi:
    """Puts into the environment what only the server knows: the verified client certificate and the header lines."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ.pop(PEER, None)
        environ[HEADERS] = getattr(_request, "headers", ())
        connection = environ.get("gunicorn.socket")
        if isinstance(connection, ssl.SSLSocket):
            # Empty unless the client showed a certificate that was verified.
            certificate = connection.getpeercert()
            name = common_name(certificate.get("subject", ())) if certificate else None
            if name is not None:
                environ[PEER] = Peer(name)
        return app(environ, start_response)

    return application


def common_name(subject: Sequence[Any]) -> str | None:
    return next((str(value) for part in subject for key, value in part if key == "commonName"), None)


def _refresh(authorizer: Authorizer) -> bool:
    try:
        authorizer.refresh()
    except ReviewError as error:
        log.warning("the API server's aggregation layer is not known yet, only tokens work: %s", error)
        return False
    return True


def _keep_fresh(authorizer: Authorizer) -> None:
    while True:
        known = authorizer.aggregation is not None
        time.sleep(REFRESH if known else RETRY)
        _refresh(authorizer)
