"""The cipher suites that `tls.cipherSuites` may name, by the names that Kubernetes uses, and as OpenSSL calls them.

Decided by one table. Suites of TLS 1.3 cannot be chosen, neither here nor in Kubernetes, and are always there; what
stands in no row is refused by name and never left out in silence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Of TLS 1.3: may be named, changes nothing.
ALWAYS: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})

#: Of TLS 1.2. Whatever has no forward secrecy, or a cipher that is broken, is not there.
_OPENSSL: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}


def unknown(names: Iterable[str]) -> tuple[str, ...]:
    """Those that cannot be chosen."""
    return tuple(name for name in names if name not in _OPENSSL and name not in ALWAYS)


def openssl(names: Iterable[str]) -> str:
    """OpenSSL's list of the suites of TLS 1.2 among them; empty where there is none."""
    return ":".join(dict.fromkeys(_OPENSSL[name] for name in names if name in _OPENSSL))


def serves_ecdsa(names: Iterable[str]) -> bool:
    """Whether Muster's own certificates, whose keys are ECDSA, can be served with one of them."""
    return any("_ECDSA_" in name for name in names)
