"""TLS as the webhook speaks it: one context for all connections, made anew when the certificate files change.

A connection takes whatever context is the newest when it begins, so a replaced certificate is served at once and
nothing that is open breaks. Files that do not belong together, as they may be for a moment while they are replaced,
never take the place of what works. No client may hold a thread: each gets its seconds for a handshake and a request.
"""

from __future__ import annotations

import errno
import logging
import ssl
import threading
import time
from pathlib import Path
from typing import Any, Final

from admission import tls

logger = logging.getLogger(__name__)

_HANDSHAKE_SECONDS: Final = 5.0
#: The API server itself waits ten for a webhook.
_REQUEST_SECONDS: Final = 10.0
#: How often the files are looked at.
_LOOK_EVERY_SECONDS: Final = 0.5


class TLSConnection(ssl.SSLSocket):
    """Blocking means: until the time for this handshake or request is up. Then the connection counts as lost."""

    _deadline = 0.0

    def do_handshake(self, block: bool = False) -> None:
        self._deadline = time.monotonic() + _HANDSHAKE_SECONDS
        self.settimeout(_HANDSHAKE_SECONDS)
        try:
            super().do_handshake(block)
        except TimeoutError as error:
            raise ConnectionResetError(errno.ECONNRESET, "the handshake took too long") from error

    def setblocking(self, flag: bool) -> None:
        if flag:
            self._deadline = time.monotonic() + _REQUEST_SECONDS
            self.settimeout(_REQUEST_SECONDS)
        else:
            super().setblocking(False)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        if self.gettimeout():
            self.settimeout(max(0.001, self._deadline - time.monotonic()))
        try:
            return super().recv(buflen, flags)
        except TimeoutError as error:
            raise ConnectionResetError(errno.ECONNRESET, "the request took too long to arrive") from error


class TLSContext(ssl.SSLContext):
    sslsocket_class = TLSConnection

    def wrap_socket(self, sock: Any, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        sock.settimeout(_HANDSHAKE_SECONDS)
        return super().wrap_socket(sock, *args, **kwargs)


def context_of(folder: Path, oldest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2, ciphers: str = "") -> TLSContext:
    """A new context for the certificate in `folder`. Raises OSError (ssl.SSLError is one) when it cannot be used."""
    context = TLSContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = oldest
    if ciphers:
        context.set_ciphers(ciphers)
    context.load_cert_chain(folder / tls.CERTIFICATE_FILE, folder / tls.KEY_FILE)
    return context


class Serving:
    """The context for new connections."""

    def __init__(self, folder: Path, oldest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2, ciphers: str = "") -> None:
        self._folder = folder
        self._oldest = oldest
        self._ciphers = ciphers
        self._lock = threading.Lock()
        self._context: TLSContext | None = None
        self._seen: object = None
        self._looked_at = 0.0

    def context(self) -> TLSContext:
        """The newest one that works. Raises OSError when there never was one."""
        now = time.monotonic()
        if self._context is not None and now - self._looked_at < _LOOK_EVERY_SECONDS:
            return self._context
        with self._lock:
            self._looked_at = now
            state = self._state()
            if self._context is None or state != self._seen:
                try:
                    self._context = context_of(self._folder, self._oldest, self._ciphers)
                except OSError as error:
                    if self._context is None:
                        raise
                    logger.warning(
                        "the certificate files cannot be used, going on with the ones before",
                        extra={"error": str(error)},
                    )
                else:
                    self._seen = state
            return self._context

    def _state(self) -> object:
        """Changes when a file does, also when a link to the folder is moved, as a mounted Secret's is."""
        return tuple(_stamp(self._folder / name) for name in (tls.CERTIFICATE_FILE, tls.KEY_FILE))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
