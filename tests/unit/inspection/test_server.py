"""What the server itself vouches for: certificates of the moment, and the peer that OpenSSL verified."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from queues.inspection.access import HEADERS, PEER, Aggregation, Authorizer, Peer
from queues.inspection.server import Certificates, common_name, identified
from tests.controlplane.cluster import Authority
from tests.unit.inspection.certificates import serving_certificate
from tests.unit.inspection.conftest import Cluster


class Published(Cluster):
    """A cluster whose aggregation layer has this CA."""

    def __init__(self, ca: str) -> None:
        super().__init__()
        self.ca = ca

    def aggregation(self) -> Aggregation | None:
        return Aggregation(self.ca) if self.ca else None


def pem(folder: Path, authority: Authority) -> str:
    authority.write(folder / "client-ca.crt")
    return (folder / "client-ca.crt").read_text()


def shake(server: ssl.SSLContext, folder: Path, client: str | None = None) -> tuple[Any, str]:
    """One handshake on a pair of sockets: what the server sees of the client, and the certificate it shows."""
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    theirs.settimeout(5)
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    if client is not None:
        context.load_cert_chain(folder / f"{client}.crt", folder / f"{client}.key")
    seen: list[Any] = []

    def serve() -> None:
        try:
            with server.wrap_socket(ours, server_side=True) as connection:
                seen.append(connection.getpeercert())
                connection.sendall(b"x")
        except ssl.SSLError as error:
            seen.append(error)
            ours.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with context.wrap_socket(theirs, server_hostname="localhost") as connection:
            connection.recv(1)
            shown = ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True) or b"")
    finally:
        thread.join()
    return seen[0], shown


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    serving_certificate(tmp_path, ["localhost"])
    return tmp_path


def served(folder: Path, ca: str) -> tuple[Certificates, Published, Authorizer]:
    cluster = Published(ca)
    authorizer = Authorizer(cluster)
    authorizer.refresh()
    certificates = Certificates(folder / "tls.crt", folder / "tls.key")
    certificates.authorizer = authorizer
    return certificates, cluster, authorizer


def test_a_client_certificate_is_optional_and_verified(folder: Path) -> None:
    authority = Authority("front-proxy-ca")
    authority.issue("front-proxy", folder, "good")
    Authority("front-proxy-ca").issue("front-proxy", folder, "forged")
    certificates, _, _ = served(folder, pem(folder, authority))
    assert not shake(certificates.context(), folder)[0]
    assert common_name(shake(certificates.context(), folder, "good")[0]["subject"]) == "front-proxy"
    with pytest.raises(ssl.SSLError):
        shake(certificates.context(), folder, "forged")


def test_without_an_aggregation_layer_no_certificate_is_asked_for(folder: Path) -> None:
    Authority("any").issue("front-proxy", folder, "any")
    certificates, _, _ = served(folder, "")
    assert not shake(certificates.context(), folder, "any")[0]


def test_a_new_ca_of_the_aggregation_layer_counts_at_once(folder: Path) -> None:
    old, new = Authority("old"), Authority("new")
    new.issue("front-proxy", folder, "new")
    certificates, cluster, authorizer = served(folder, pem(folder, old))
    with pytest.raises(ssl.SSLError):
        shake(certificates.context(), folder, "new")
    cluster.ca = pem(folder, new)
    authorizer.refresh()
    assert common_name(shake(certificates.context(), folder, "new")[0]["subject"]) == "front-proxy"


def test_a_replaced_certificate_is_shown_and_half_a_one_is_not(folder: Path) -> None:
    certificates, _, _ = served(folder, "")
    first = certificates.context()
    assert certificates.context() is first, "nothing is read again while nothing changed"
    before = (folder / "tls.crt").read_text()
    key = (folder / "tls.key").read_bytes()
    serving_certificate(folder, ["localhost"])
    after = (folder / "tls.key").read_bytes()
    (folder / "tls.key").write_bytes(key)
    assert certificates.context() is first, "the key does not fit yet"
    (folder / "tls.key").write_bytes(after)
    shown = shake(certificates.context(), folder)[1]
    assert shown.split() == (folder / "tls.crt").read_text().split()
    assert shown.split() != before.split()


def test_a_certificate_that_was_never_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Certificates(tmp_path / "tls.crt", tmp_path / "tls.key").context()


def test_only_the_server_says_who_the_peer_is() -> None:
    seen: dict[str, Any] = {}

    def app(environ: dict[str, Any], _start: Any) -> list[bytes]:
        seen.update(environ)
        return []

    identified(app)({PEER: Peer("forged"), HEADERS: (("X-Remote-User", "forged"),)}, lambda *_: None)
    assert PEER not in seen
    assert seen[HEADERS] == ()


def test_the_common_name() -> None:
    subject = ((("organizationName", "o"),), (("commonName", "front-proxy"),))
    assert common_name(subject) == "front-proxy"
    assert common_name(()) is None


def test_versions_of_tls_that_are_too_old_are_not_spoken(tmp_path: Path) -> None:
    serving_certificate(tmp_path, ["localhost"])
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    assert Certificates(*files).context().minimum_version is ssl.TLSVersion.TLSv1_2
    assert Certificates(*files, ssl.TLSVersion.TLSv1_3).context().minimum_version is ssl.TLSVersion.TLSv1_3
