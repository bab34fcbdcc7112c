"""A ConversionReview (apiextensions.k8s.io/v1) from bytes to bytes: every object of it in the version that is wanted.

Reads the envelope and the parts of an object that differ between the versions; its metadata goes back byte for byte.
Whatever is asked, the answer is the converted objects or a status that says which object failed and why, never a fault.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from admission.api import names
from admission.webhook.conversion_rules import RULES, NotConvertible, Rule
from admission.webhook.review import Envelope, opened

logger = logging.getLogger(__name__)

API_VERSION: Final = "apiextensions.k8s.io/v1"
KIND: Final = "ConversionReview"

_VERSIONS: Final = (names.V1BETA1_API_VERSION, names.API_VERSION)


class _Request(msgspec.Struct, frozen=True):
    uid: str = ""
    wanted: str = msgspec.field(default="", name="desiredAPIVersion")
    objects: tuple[msgspec.Raw, ...] | None = None


class _Name(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


_reviews: Final = msgspec.json.Decoder(Envelope[_Request])
_objects: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def answer(body: bytes) -> bytes:
    """The review that answers the one in `body`. Raises NotAReview where there is none to answer."""
    request = opened(body, _reviews, KIND, API_VERSION)
    converted: list[msgspec.Raw] = []
    result: dict[str, Any] = {"status": "Success"}
    try:
        converted = [_converted(raw, request.wanted) for raw in request.objects or ()]
    except NotConvertible as error:
        logger.warning("not converted", extra={"uid": request.uid, "why": str(error)[:500]})
        result = {"status": "Failure", "message": str(error)}
    except Exception:  # whatever it is, the API server needs an answer, and a guess would be stored
        logger.exception("a conversion failed", extra={"uid": request.uid})
        result = {"status": "Failure", "message": "Muster failed to convert this; see the webhook's log"}
    response = {"uid": request.uid, "convertedObjects": converted, "result": result}
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _converted(raw: msgspec.Raw, wanted: str) -> msgspec.Raw:
    """One object, whole or NotConvertible with its name."""
    try:
        return _in_version(raw, wanted)
    except NotConvertible as error:
        raise NotConvertible(f"{_shown(raw)}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotConvertible(f"{_shown(raw)} cannot be read: {error}") from error
    except RecursionError as error:
        raise NotConvertible(f"{_shown(raw)} is nested too deeply to be read") from error


def _in_version(raw: msgspec.Raw, wanted: str) -> msgspec.Raw:
    fields = _objects.decode(raw)
    version, kind = (_text(fields.get(name)) for name in ("apiVersion", "kind"))
    for each in (version, wanted):
        if each not in _VERSIONS:
            raise NotConvertible(f"{each[:64] or 'no version'} is not one of {' and '.join(_VERSIONS)}")
    if kind not in RULES:
        raise NotConvertible("there is no such kind")
    if version == wanted:
        return raw
    rules = RULES[kind]
    changed = {
        part: _changed(fields[part], part, rule, is_up=wanted == names.API_VERSION)
        for part, rule in (("spec", rules.spec), ("status", rules.status))
        if part in fields
    }
    return msgspec.Raw(msgspec.json.encode({**fields, "apiVersion": wanted, **changed}))


def _changed(raw: msgspec.Raw, part: str, rule: Rule, *, is_up: bool) -> Any:
    """Spec or status in the other version; one that no rule is about stays as the bytes that came."""
    change = rule.up if is_up else rule.down
    if change is None:
        return raw
    match msgspec.json.decode(raw):
        case None:
            return None
        case dict() as fields:
            return change(fields)
        case _:
            raise NotConvertible(f"{part}: expected an object")


def _text(raw: msgspec.Raw | None) -> str:
    value = None if raw is None else msgspec.json.decode(raw)
    return value if isinstance(value, str) else ""


def _shown(raw: msgspec.Raw) -> str:
    """Which object it is, as far as that can be told."""
    try:
        fields = _objects.decode(raw)
        kind = _text(fields.get("kind"))
        metadata = msgspec.json.decode(fields.get("metadata", b"{}"), type=_Name)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "an object"
    name = f"{metadata.namespace}/{metadata.name}".strip("/")
    return " ".join(part[:253] for part in (kind or "an object of no kind", name) if part)
