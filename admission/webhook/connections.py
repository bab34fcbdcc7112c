"""TLS as the webhook speaks it: one context for all connections, made anew when the certificate files change.

The context comes from files and settings, and a connection from whatever context is the newest when it begins, so a
replaced certificate is served at once and nothing that is open breaks. Files that do not belong together, as they may
be for a moment while they are replaced, never take the place of what works. No client may hold a thread: each gets
its seconds for a handshake and for a request.
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
from admission.settings.configuration import TLSOptions

logger = logging.getLogger(__name__)

_HANDSHAKE_SECONDS: Final = 5.0
#: The API server itself waits ten for a webhook.
_REQUEST_SECONDS: Final = 10.0
#: How often the files are looked at.
_LOOK_EVERY_SECONDS: Final = 0.5

_VERSIONS: Final = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
#: Go's names of the cipher suites, which Kubernetes' settings use, and OpenSSL's. Those of TLS 1.3 cannot be chosen.
_CIPHERS: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}
#: Go's numbers of the curves. OpenSSL's binding here takes one.
_CURVES: Final = {23: "prime256v1", 24: "secp384r1", 25: "secp521r1", 29: "X25519"}


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


def context_of(folder: Path, options: TLSOptions | None) -> TLSContext:
    """A new context for the certificate in `folder`. Raises OSError (ssl.SSLError is one) when it cannot be used."""
    options = options or TLSOptions()
    context = TLSContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[options.min_version]
    if options.cipher_suites:
        unknown = [name for name in options.cipher_suites if name not in _CIPHERS]
        if unknown:
            raise ValueError(f"tls.cipherSuites: not available here: {', '.join(unknown)}")
        context.set_ciphers(":".join(_CIPHERS[name] for name in options.cipher_suites))
    if curve := next((_CURVES[number] for number in options.curve_preferences if number in _CURVES), None):
        context.set_ecdh_curve(curve)
    context.load_cert_chain(folder / tls.CERTIFICATE_FILE, folder / tls.KEY_FILE)
    return context


class Serving:
    """The context for new connections."""

    def __init__(self, folder: Path, options: TLSOptions | None) -> None:
        self._folder = folder
        self._options = options
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
                    self._context = context_of(self._folder, self._options)
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
