"""The webhook as a process: gunicorn with threads, over TLS, which listens only once it can answer.

`serve` binds the address, starts one worker, and the worker listens when the caches are filled and the certificate is
there. Reviews are answered from memory; what keeps caches and certificates fresh runs in threads beside them. A client
may be slow or silent, but it never holds a thread for long, and an end by SIGTERM answers what has been asked. SIGUSR1
announces it: answers go on, and the connections that they use are closed one by one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger
from gunicorn.sock import TCP6Socket, TCPSocket
from gunicorn.workers.gthread import TConn, ThreadWorker

from admission import lifeline, tls
from admission.settings import Settings
from admission.webhook.app import create_app
from admission.webhook.connections import Serving

if TYPE_CHECKING:
    from admission.kube.client import Client

logger = logging.getLogger(__name__)

_THREADS: Final = 32
_BACKLOG: Final = 1024
#: Longer than the API server keeps an idle connection (90 s), so that it is never the server that closes one which the
#: client is just about to use.
_KEEPALIVE_SECONDS: Final = 120
_SILENCE_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 1
#: How long a stopping worker leaves idle connections open for a request that is under way: nearly all of its grace, for
#: a client that writes to a connection as it is closed cannot know whether it was heard, and gives up.
_LINGER_SECONDS: Final = 0.8
_START_STEP_SECONDS: Final = 0.01


def serve(
    settings: Settings,
    kubeconfig: str | None,
    *,
    on_ready: Callable[[], None] = lambda: None,
    publishes: bool = True,
) -> None:
    """Answer reviews until SIGTERM. `on_ready` is called, in the worker, once it listens.

    `publishes` False: somebody else tells the API server whom to ask, for as long as internal management is off.
    Raises OSError when the address cannot be bound. Ends the process, as gunicorn does.
    """
    application = _Application(settings, kubeconfig, on_ready, publishes=publishes)
    arbiter = _Arbiter(application)
    arbiter.LISTENERS = [application.bind(arbiter.cfg, arbiter.log)]
    arbiter.run()


def certificate_names(settings: Settings) -> tuple[str, ...]:
    """What the certificate is for: the Service, and the host that is listened on, where it is a certain one."""
    names = tls.service_names(settings.internal_cert_management.webhook_service_name, settings.namespace)
    host = settings.webhook.host
    return names if host in {"", "0.0.0.0", "::"} else (*names, host)


class _Arbiter(Arbiter):  # type: ignore[misc]
    def handle_hup(self) -> None:
        """Certificates are looked at all the time, and nothing else can change: there is nothing to read again."""


class _Log(Logger):  # type: ignore[misc]
    """Gunicorn's own lines go where all others go."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


class _Worker(ThreadWorker):  # type: ignore[misc]
    """A thread worker that gives a connection to a thread only once something has arrived on it."""

    def accept(self, listener: Any) -> None:
        try:
            client, address = listener.accept()
        except OSError:
            # The client is gone again, or another worker was faster.
            return
        connection = TConn(self.cfg, client, address, listener.getsockname())
        connection.timeout = time.monotonic() + _SILENCE_SECONDS
        self.nr_conns += 1
        self.pending_conns.append(connection)
        self.poller.register(client, 1, partial(self.on_pending_socket_readable, connection))

    def handle(self, conn: Any) -> Any:
        """A request of a connection, in a thread. One that only shook hands waits like one that was used before.

        The API server opens more connections than it needs when many ask at once, and comes back to them later.
        """
        if not conn.initialized:
            try:
                conn.init()
            except OSError as error:  # of TLS as well
                logger.debug("no handshake", extra={"client": str(conn.client), "error": str(error)})
                return False
            if not conn.sock.pending() and not _is_readable(conn.sock):
                return True
        return super().handle(conn)

    def handle_usr1(self, *_: object) -> None:
        """The end is near: whoever asks from now on is answered, and asked to come by another connection next time."""
        self.cfg.set("keepalive", 0)

    def _cap_keepalive(self, deadline: float) -> None:
        super()._cap_keepalive(min(deadline, time.monotonic() + _LINGER_SECONDS))


def _is_readable(connection: socket.socket) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(0))


class _Application(BaseApplication):  # type: ignore[misc]
    def __init__(
        self, settings: Settings, kubeconfig: str | None, on_ready: Callable[[], None], *, publishes: bool
    ) -> None:
        self._settings = settings
        self._publishes = publishes or settings.internal_cert_management.enable
        self._kubeconfig = kubeconfig
        self._on_ready = on_ready
        self._serving = Serving(Path(settings.webhook.cert_dir), settings.oldest_tls, settings.ciphers)
        self._caches: Any = None
        super().__init__()

    def load_config(self) -> None:
        chosen: dict[str, Any] = {
            "bind": [],
            "worker_class": _Worker,
            "workers": 1,
            "threads": _THREADS,
            "backlog": _BACKLOG,
            "keepalive": _KEEPALIVE_SECONDS,
            "graceful_timeout": _GRACE_SECONDS,
            "timeout": 30,
            "loglevel": "warning",
            "logger_class": _Log,
            "control_socket_disable": True,
            "proc_name": "muster-webhook",
            # Any name will do: it says that TLS is spoken, and `ssl_context` makes the context.
            "certfile": os.devnull,
            "ssl_context": lambda _config, _default: self._serving.context(),
            "post_fork": self._post_fork,
            "post_worker_init": self._post_worker_init,
        }
        for name, value in chosen.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        return create_app(self._settings, self._caches)

    def bind(self, config: Any, log: Any) -> Any:
        """The listening socket to be: bound, so that a taken address is known at once, but refusing connections."""
        host, port = self._settings.webhook.host, self._settings.webhook.port
        if not host:
            host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
        family = _Listener6 if ":" in host else _Listener
        return family((host, port), config, log)

    def _post_fork(self, arbiter: Any, worker: Any) -> None:
        """In the worker: wait until there is something to answer with."""
        lifeline.die_with(arbiter.pid)
        from admission.kube.caches import Caches

        self._caches = Caches(self._kubeconfig)
        self._caches.start()
        if self._publishes:
            _in_background(self._keep_published)
        while not (self._caches.synced and self._has_certificate()):
            worker.notify()
            time.sleep(_START_STEP_SECONDS)

    def _has_certificate(self) -> bool:
        try:
            self._serving.context()
        except OSError:
            return False
        return True

    def _post_worker_init(self, worker: Any) -> None:
        for listener in worker.sockets:
            listener.sock.listen(_BACKLOG)
        logger.info("answering reviews", extra={"address": str(worker.sockets[0])})
        self._on_ready()

    async def _keep_published(self) -> None:
        from admission.kube.client import connect
        from admission.webhook.certificates import follow, keep
        from admission.webhook.configuration import ByService
        from admission.webhook.publishing import publish

        settings = self._settings
        management = settings.internal_cert_management
        client: Client
        async with await connect(self._kubeconfig, component="webhook") as client:

            async def publish_bundle(bundle: bytes) -> None:
                await publish(client, settings, ByService(settings.namespace, management.webhook_service_name, bundle))

            if management.enable:
                await keep(client, settings, names=certificate_names(settings), publish=publish_bundle)
            else:
                await follow(publish_bundle)


class _NotListening:
    """Says that it listens already, so that gunicorn leaves it at bound."""

    @staticmethod
    def _is_listening(_sock: socket.socket) -> bool:
        return True


class _Listener(_NotListening, TCPSocket):  # type: ignore[misc]
    pass


class _Listener6(_NotListening, TCP6Socket):  # type: ignore[misc]
    pass


def _in_background(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `work` in a thread with a loop of its own, again when it fails: reviews are answered meanwhile."""

    def run() -> None:
        while True:
            try:
                asyncio.run(work())
            except Exception:  # whatever it was, it has to go on for as long as this process serves
                logger.exception("keeping certificates and configurations failed, starting again")
            time.sleep(5)

    threading.Thread(target=run, name="certificates", daemon=True).start()
