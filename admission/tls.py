"""Serving certificates: an authority of Muster's own, the certificate that it signs, and when each is replaced.

Decided from the certificates themselves and the time that is passed in. A new authority is trusted before it signs and
an old one is dropped only after nothing signed by it is served any more: no replacement may ever break a connection.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME: Final = timedelta(days=3650)
SERVING_LIFETIME: Final = timedelta(days=365)
#: A serving certificate is replaced this long before it expires.
SERVING_MARGIN: Final = timedelta(days=90)
#: An authority has to outlive every certificate that it may still sign.
AUTHORITY_MARGIN: Final = SERVING_LIFETIME + SERVING_MARGIN
#: How long a new authority is trusted before it signs, and an old one is kept after it signed last. Configurations
#: reach the API servers, and Secrets the replicas, within a minute.
OVERLAP: Final = timedelta(hours=1)
_CLOCK_SKEW: Final = timedelta(minutes=5)
_ORGANIZATION: Final = "muster"
_AUTHORITY_NAME: Final = "muster-ca-"

CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
AUTHORITY_FILE: Final = "ca.crt"
AUTHORITY_KEY_FILE: Final = "ca.key"


@dataclass(frozen=True, slots=True)
class Certificates:
    """All PEM. `authorities` are those to be trusted, newest first; `authority_key` is the newest one's."""

    authorities: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes


class Need(Enum):
    """What has to be replaced."""

    NOTHING = "nothing"
    ALL = "all of it"
    AUTHORITY = "the authority"
    SERVING = "the serving certificate"
    OLD_AUTHORITY = "an authority that signs no more"


# ------------------------------------------------------------------ pure


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """The names under which a Service is reached."""
    return (f"{service}.{namespace}.svc", service, f"{service}.{namespace}", f"{service}.{namespace}.svc.cluster.local")


def issue(names: Iterable[str], now: datetime) -> Certificates:
    """A new authority and a certificate that it signed for `names` (host names and addresses)."""
    authority, authority_key = _new_authority(now)
    certificate, key = _new_certificate(tuple(names), authority, authority_key, now)
    return Certificates(_pem(authority), _key_pem(authority_key), _pem(certificate), _key_pem(key))


def needs_rotation(held: Certificates, names: Iterable[str], now: datetime) -> Need:
    """The first of the things that have to be replaced; ask again after each."""
    try:
        authorities = x509.load_pem_x509_certificates(held.authorities)
        serving = x509.load_pem_x509_certificate(held.certificate)
        keys = [serialization.load_pem_private_key(pem, None) for pem in (held.authority_key, held.key)]
        signers = [each for each in authorities if _signed_by(serving, each)]
    except ValueError:
        return Need.ALL
    newest = authorities[0]
    if [each.public_key() for each in (newest, serving)] != [key.public_key() for key in keys] or not signers:
        return Need.ALL
    if newest.not_valid_after_utc - now < AUTHORITY_MARGIN:
        return Need.AUTHORITY
    is_trusted_long_enough = len(authorities) == 1 or now - _made(newest) >= OVERLAP
    if is_trusted_long_enough and (
        _is_ending(serving, now)
        or newest not in signers
        or not {str(_name(each).value) for each in names} <= set(names_of(serving))
    ):
        return Need.SERVING
    if len(authorities) > 1 and signers == [newest] and now - _made(serving) >= OVERLAP:
        return Need.OLD_AUTHORITY
    return Need.NOTHING


def rotate(held: Certificates, need: Need, names: Iterable[str], now: datetime) -> Certificates:
    """The next step; what is served stays trusted through all of them."""
    match need:
        case Need.NOTHING:
            return held
        case Need.ALL:
            return issue(names, now)
        case Need.AUTHORITY:
            authority, key = _new_authority(now)
            return replace(held, authorities=_pem(authority) + held.authorities, authority_key=_key_pem(key))
        case Need.SERVING:
            authority = x509.load_pem_x509_certificates(held.authorities)[0]
            authority_key = serialization.load_pem_private_key(held.authority_key, None)
            if not isinstance(authority_key, ec.EllipticCurvePrivateKey):
                return issue(names, now)
            certificate, serving_key = _new_certificate(tuple(names), authority, authority_key, now)
            return replace(held, certificate=_pem(certificate), key=_key_pem(serving_key))
        case Need.OLD_AUTHORITY:
            return replace(held, authorities=_pem(x509.load_pem_x509_certificates(held.authorities)[0]))


def is_due(certificate: bytes, now: datetime) -> bool:
    """Whether a certificate that stands for itself is to be replaced: it ends soon, or is none."""
    try:
        return _is_ending(x509.load_pem_x509_certificate(certificate), now)
    except ValueError:
        return True


def is_ours(certificate: bytes) -> bool:
    """Whether an authority of Muster's signed it, by the authority's name. What is no certificate is not ours."""
    try:
        issuer = x509.load_pem_x509_certificate(certificate).issuer
    except ValueError:
        return False
    organizations = [each.value for each in issuer.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    names = [str(each.value) for each in issuer.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return organizations == [_ORGANIZATION] and any(name.startswith(_AUTHORITY_NAME) for name in names)


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The host names and addresses that a certificate is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in found)


def to_secret(held: Certificates) -> dict[str, str]:
    """The data of a Secret."""
    parts = {
        AUTHORITY_FILE: held.authorities,
        AUTHORITY_KEY_FILE: held.authority_key,
        CERTIFICATE_FILE: held.certificate,
        KEY_FILE: held.key,
    }
    return {name: base64.b64encode(part).decode() for name, part in parts.items()}


def from_secret(data: Mapping[str, str] | None) -> Certificates | None:
    """None for a Secret that holds no certificates (yet), such as the empty one of a manifest."""
    try:
        parts = {name: base64.b64decode(value, validate=True) for name, value in (data or {}).items()}
        found = Certificates(parts[AUTHORITY_FILE], parts[AUTHORITY_KEY_FILE], parts[CERTIFICATE_FILE], parts[KEY_FILE])
    except (KeyError, ValueError):
        return None
    return found if found.authorities and found.certificate else None


def _is_ending(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_after_utc - now < SERVING_MARGIN


def _made(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + _CLOCK_SKEW


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _new_authority(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    # The serial makes each authority's name its own: two of the same name confuse whoever builds chains.
    serial = x509.random_serial_number()
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, f"{_AUTHORITY_NAME}{serial:x}"[:64]),
        ]
    )
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _new_certificate(
    names: tuple[str, ...], authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(min(now + SERVING_LIFETIME, authority.not_valid_after_utc))
        .add_extension(x509.SubjectAlternativeName([_name(each) for each in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return certificate, key


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


# ------------------------------------------------------------------ files


def holds_others(folder: Path) -> bool:
    """Whether somebody else put certificate and key into `folder`, such as a Secret that is mounted there."""
    try:
        return (folder / KEY_FILE).is_file() and not is_ours((folder / CERTIFICATE_FILE).read_bytes())
    except FileNotFoundError:
        return False


def write_files(folder: Path, held: Certificates) -> bool:
    """Put what is served into `folder`, each file at once; whether anything changed.

    The key comes first: who finds the old certificate beside it goes on with what it has loaded, and looks again.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    parts = {KEY_FILE: held.key, CERTIFICATE_FILE: held.certificate, AUTHORITY_FILE: held.authorities}
    changed = False
    for name, content in parts.items():
        path = folder / name
        with contextlib.suppress(OSError):
            if path.read_bytes() == content:
                continue
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            Path(temporary).replace(path)
        except BaseException:  # interrupted as well: half a file of a key must not stay behind
            Path(temporary).unlink(missing_ok=True)
            raise
        changed = True
    return changed
