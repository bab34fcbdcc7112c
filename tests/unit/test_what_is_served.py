"""TLS versions and suites of the settings hold for everything that is served: webhook, metrics, inspection."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from admission.commands import metrics
from admission.settings import Settings
from admission.settings.configuration import TLSOptions
from admission.webhook.connections import context_of
from queues.inspection.server import Certificates
from tests.unit.inspection.certificates import serving_certificate

AES_256 = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
OPENSSL_AES_128, OPENSSL_AES_256 = "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"

Server = Callable[[Path, Settings], ssl.SSLContext]

SERVERS: list[Any] = [
    pytest.param(lambda folder, s: context_of(folder, s.oldest_tls, s.ciphers), id="webhook"),
    pytest.param(lambda _folder, s: metrics._context(s), id="metrics"),
    pytest.param(
        lambda folder, s: Certificates(folder / "tls.crt", folder / "tls.key", s.oldest_tls, s.ciphers).context(),
        id="inspection",
    ),
]


def spoken(server: ssl.SSLContext, ciphers: str = "", newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> str:
    """The suite and version of a handshake with a client that offers these; the error's reason where there is none."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode, client.maximum_version = False, ssl.CERT_NONE, newest
    if ciphers:
        client.set_ciphers(ciphers)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    done = 0
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return f"refused: {error.reason}"
            done += 1
    assert done
    name, version, _ = ends[0].cipher() or ("", "", 0)
    return f"{name} {version}"


@pytest.mark.parametrize("serve", SERVERS)
def test_versions_and_suites_are_those_of_the_settings(serve: Server, tmp_path: Path) -> None:
    serving_certificate(tmp_path, ["localhost"])
    older = ssl.TLSVersion.TLSv1_2
    anything = serve(tmp_path, Settings())
    for cipher in (OPENSSL_AES_128, OPENSSL_AES_256):
        assert spoken(anything, cipher, older) == f"{cipher} TLSv1.2"
    chosen = serve(tmp_path, Settings(tls=TLSOptions(cipher_suites=(AES_256,))))
    assert spoken(chosen, OPENSSL_AES_256, older) == f"{OPENSSL_AES_256} TLSv1.2"
    assert spoken(chosen, OPENSSL_AES_128, older).startswith("refused: ")
    assert spoken(chosen).endswith("TLSv1.3"), "what is newer is always there"
    newest = serve(tmp_path, Settings(tls=TLSOptions(min_version="VersionTLS13")))
    assert spoken(newest, newest=older).startswith("refused: ")
    assert spoken(newest).endswith("TLSv1.3")
