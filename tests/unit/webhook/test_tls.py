"""When certificates are replaced, and that what is served is trusted the whole time."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509

from admission import tls
from admission.tls import Certificates, Need
from admission.webhook.connections import Serving, context_of
from tests.unit.inspection.certificates import serving_certificate

NOW = dt.datetime(2027, 1, 1, tzinfo=dt.UTC)
NAMES = ("localhost", "127.0.0.1", "::1")
DAY = dt.timedelta(days=1)


def trusts(held: Certificates, served: Certificates) -> bool:
    """Whether one who trusts the authorities of `held` accepts what `served` serves."""
    certificate = x509.load_pem_x509_certificate(served.certificate)
    return any(tls._signed_by(certificate, each) for each in x509.load_pem_x509_certificates(held.authorities))


def test_a_new_one_needs_nothing() -> None:
    assert tls.needs_rotation(tls.issue(NAMES, NOW), NAMES, NOW) is Need.NOTHING


@pytest.mark.parametrize(
    ("after", "names", "want"),
    [
        pytest.param(DAY * 200, NAMES, Need.NOTHING, id="in its prime"),
        pytest.param(DAY * 280, NAMES, Need.SERVING, id="long before it expires"),
        pytest.param(DAY * 400, NAMES, Need.SERVING, id="expired"),
        pytest.param(DAY, (*NAMES, "other"), Need.SERVING, id="for another name"),
        pytest.param(DAY * 3300, NAMES, Need.AUTHORITY, id="the authority could not sign another year"),
    ],
)
def test_what_is_due(after: dt.timedelta, names: tuple[str, ...], want: Need) -> None:
    assert tls.needs_rotation(tls.issue(NAMES, NOW), names, NOW + after) is want


@pytest.mark.parametrize("part", ["authorities", "authority_key", "certificate", "key"])
def test_what_is_broken_is_made_anew(part: str) -> None:
    held = tls.issue(NAMES, NOW)
    parts = {name: getattr(held, name) for name in ("authorities", "authority_key", "certificate", "key")}
    assert tls.needs_rotation(Certificates(**(parts | {part: b"x"})), NAMES, NOW) is Need.ALL
    other = getattr(tls.issue(NAMES, NOW), part)
    assert tls.needs_rotation(Certificates(**(parts | {part: other})), NAMES, NOW) is Need.ALL


def test_twelve_years_of_rotation_break_nothing() -> None:
    """Whoever trusts what was published at the last look, or is at this one, accepts what either of them serves."""
    held = tls.issue(NAMES, NOW)
    now, before, taken = NOW, held, set()
    while now < NOW + DAY * 365 * 12:
        rested = True
        while (need := tls.needs_rotation(held, NAMES, now)) is not Need.NOTHING:
            held, rested = tls.rotate(held, need, NAMES, now), False
            taken.add(need)
            serving = x509.load_pem_x509_certificate(held.certificate)
            assert serving.not_valid_before_utc <= now < serving.not_valid_after_utc
            assert all(trusts(trusted, served) for trusted in (before, held) for served in (before, held))
        before = held
        now += DAY * 30 if rested else tls.OVERLAP
    assert taken == {Need.SERVING, Need.AUTHORITY, Need.OLD_AUTHORITY}
    assert len(x509.load_pem_x509_certificates(held.authorities)) == 1


def test_a_new_authority_is_trusted_before_it_signs() -> None:
    old = tls.issue(NAMES, NOW)
    both = tls.rotate(old, Need.AUTHORITY, NAMES, NOW)
    assert both.certificate == old.certificate
    assert tls.needs_rotation(both, NAMES, NOW + dt.timedelta(minutes=50)) is Need.NOTHING
    assert tls.needs_rotation(both, NAMES, NOW + dt.timedelta(minutes=70)) is Need.SERVING
    new = tls.rotate(both, Need.SERVING, NAMES, NOW + dt.timedelta(minutes=70))
    assert trusts(both, new)
    assert not trusts(old, new)
    assert tls.needs_rotation(new, NAMES, NOW + dt.timedelta(minutes=80)) is Need.NOTHING
    assert tls.needs_rotation(new, NAMES, NOW + dt.timedelta(minutes=140)) is Need.OLD_AUTHORITY


def test_a_secret_holds_all_of_it() -> None:
    held = tls.issue(NAMES, NOW)
    assert tls.from_secret(tls.to_secret(held)) == held


@pytest.mark.parametrize(
    "data", [None, {}, {"tls.crt": ""}, {"ca.crt": "!", "ca.key": "", "tls.crt": "", "tls.key": ""}]
)
def test_an_empty_or_broken_secret_holds_nothing(data: dict | None) -> None:
    assert tls.from_secret(data) is None


def test_files_are_written_once(tmp_path: Path) -> None:
    held = tls.issue(NAMES, NOW)
    folder = tmp_path / "certificates"
    assert tls.write_files(folder, held)
    assert not tls.write_files(folder, held)
    assert sorted(path.name for path in folder.iterdir()) == ["ca.crt", "tls.crt", "tls.key"]
    assert (folder / "tls.key").stat().st_mode & 0o077 == 0


# ------------------------------------------------------------------ connections


def fresh() -> Certificates:
    return tls.issue(NAMES, dt.datetime.now(dt.UTC))


def served_certificate(serving: Serving) -> bytes:
    """What a client is shown."""
    ours, theirs = socket.socketpair()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE

    def answer() -> None:
        with serving.context().wrap_socket(theirs, server_side=True, do_handshake_on_connect=False) as connection:
            connection.do_handshake()

    thread = threading.Thread(target=answer)
    thread.start()
    with client.wrap_socket(ours) as connection:
        shown = connection.getpeercert(binary_form=True)
    thread.join()
    assert shown is not None
    return ssl.DER_cert_to_PEM_cert(shown).encode()


def look_again(serving: Serving) -> None:
    serving._looked_at = 0.0


def test_one_context_serves_until_the_files_change(tmp_path: Path) -> None:
    first, second = fresh(), fresh()
    tls.write_files(tmp_path, first)
    serving = Serving(tmp_path)
    context = serving.context()
    look_again(serving)
    assert serving.context() is context
    assert served_certificate(serving).split() == first.certificate.split()
    tls.write_files(tmp_path, second)
    look_again(serving)
    assert served_certificate(serving).split() == second.certificate.split()


def test_files_that_do_not_belong_together_change_nothing(tmp_path: Path) -> None:
    first, second = fresh(), fresh()
    tls.write_files(tmp_path, first)
    serving = Serving(tmp_path)
    context = serving.context()
    (tmp_path / "tls.key").write_bytes(second.key)
    look_again(serving)
    assert serving.context() is context
    (tmp_path / "tls.crt").write_bytes(second.certificate)
    look_again(serving)
    assert served_certificate(serving).split() == second.certificate.split()


def test_a_mounted_secret_is_replaced_by_moving_a_link(tmp_path: Path) -> None:
    first, second = fresh(), fresh()
    tls.write_files(tmp_path / "one", first)
    tls.write_files(tmp_path / "two", second)
    link = tmp_path / "mounted"
    link.symlink_to("one")
    serving = Serving(link)
    serving.context()
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").replace(link)
    look_again(serving)
    assert served_certificate(serving).split() == second.certificate.split()


@pytest.mark.parametrize(
    ("days", "want"), [(0, False), (274, False), (276, True), (400, True)], ids=["new", "fresh", "ending", "ended"]
)
def test_a_certificate_of_its_own_is_replaced_before_it_ends(days: int, want: bool) -> None:
    issued = tls.issue(("localhost",), NOW)
    assert tls.is_due(issued.certificate, NOW + days * DAY) is want


def test_what_is_no_certificate_is_replaced() -> None:
    assert tls.is_due(b"spoilt", NOW) is True


def test_without_files_there_is_no_context(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        Serving(tmp_path).context()


def test_the_oldest_version_is_the_one_asked_for(tmp_path: Path) -> None:
    tls.write_files(tmp_path, fresh())
    assert context_of(tmp_path).minimum_version is ssl.TLSVersion.TLSv1_2
    assert context_of(tmp_path, ssl.TLSVersion.TLSv1_3).minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_silent_client_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admission.webhook.connections._HANDSHAKE_SECONDS", 0.05)
    tls.write_files(tmp_path, fresh())
    ours, theirs = socket.socketpair()
    with ours, context_of(tmp_path).wrap_socket(theirs, server_side=True, do_handshake_on_connect=False) as held:
        begun = time.monotonic()
        with pytest.raises(OSError, match="took too long"):
            held.do_handshake()
        assert time.monotonic() - begun < 2


@pytest.mark.parametrize(
    ("files", "want"),
    [
        pytest.param((), False, id="an empty folder is Muster's"),
        pytest.param(("tls.crt", "tls.key"), True, id="a certificate and its key are used as they are"),
        pytest.param(("tls.crt", "tls.key", "ca.crt"), True, id="an authority beside them makes them no one else's"),
        pytest.param(("tls.crt",), False, id="a certificate without a key serves nobody"),
        pytest.param(("tls.key",), False, id="a key without a certificate serves nobody"),
    ],
)
def test_whose_files_they_are(tmp_path: Path, files: tuple[str, ...], want: bool) -> None:
    (made := tmp_path / "made").mkdir()
    serving_certificate(made, NAMES[:1])
    (folder := tmp_path / "folder").mkdir()
    for name in files:
        (folder / name).write_bytes((made / name).read_bytes())
    assert tls.holds_others(folder) is want


def test_what_muster_wrote_is_its_own(tmp_path: Path) -> None:
    held = tls.issue(NAMES, NOW)
    for need in (Need.NOTHING, Need.AUTHORITY, Need.SERVING, Need.OLD_AUTHORITY):
        held = tls.rotate(held, need, NAMES, NOW)
        tls.write_files(tmp_path, held)
        assert not tls.holds_others(tmp_path), need
    (tmp_path / "tls.crt").write_text("not yet copied whole")
    assert tls.holds_others(tmp_path)


def test_there_may_be_no_folder(tmp_path: Path) -> None:
    assert not tls.holds_others(tmp_path / "none")
