"""The syntax that Kubernetes demands of names, label keys, label values and selectors.

Each check looks at one text (or selector) and says what is wrong with it, or None; the caller knows the field.
It must cost no more for a hostile text than for a short one: lengths are looked at first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from admission.api.meta import LabelSelector, LabelSelectorRequirement
from admission.webhook import fields
from admission.webhook.fields import FieldError

_LABEL_PART: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL: Final = re.compile(_LABEL_PART)
_SUBDOMAIN: Final = re.compile(rf"{_LABEL_PART}(\.{_LABEL_PART})*")
_NAME_PART: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PLAIN_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}", flags=re.ASCII)
_INT32_MAX: Final = 2**31 - 1
_ANNOTATIONS_LIMIT: Final = 256 * 1024
_ENDS: Final = "beginning and ending with a letter or digit"

#: The words that Go's strconv.ParseBool takes, which is what the API was made with.
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def subdomain(text: str) -> str | None:
    """A DNS subdomain: the name of almost every object."""
    if not text:
        return "must not be empty"
    if len(text) > 253:
        return "must be no more than 253 characters"
    if not _SUBDOMAIN.fullmatch(text):
        return f"must be a DNS subdomain: lower case letters, digits, '-' and '.', {_ENDS}"
    return None


def dns_label(text: str) -> str | None:
    """A DNS label: the name of a pod set."""
    if not 0 < len(text) <= 63:
        return "must have 1 to 63 characters"
    if not _DNS_LABEL.fullmatch(text):
        return f"must be a DNS label: lower case letters, digits and '-', {_ENDS}"
    return None


def label_key(text: str) -> str | None:
    """A qualified name: the key of a label, annotation or taint, or the name of a resource."""
    prefix, slash, name = text.rpartition("/")
    if slash and (not prefix or "/" in prefix or len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return "the part before '/' must be a DNS subdomain"
    if not 0 < len(name) <= 63:
        return "the name must have 1 to 63 characters"
    if not _NAME_PART.fullmatch(name):
        return f"must consist of letters, digits, '-', '_' and '.', {_ENDS}, behind an optional 'prefix/'"
    return None


def label_value(text: str) -> str | None:
    if len(text) > 63:
        return "must be no more than 63 characters"
    if text and not _NAME_PART.fullmatch(text):
        return f"must be empty or consist of letters, digits, '-', '_' and '.', {_ENDS}"
    return None


def integer(text: str) -> int | None:
    """A plain decimal integer of 32 bits, as a user may write it in a label or annotation; None for anything else."""
    if not _PLAIN_INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT32_MAX - 1 <= number <= _INT32_MAX else None


def boolean(text: str) -> bool | None:
    """None for what is neither."""
    if text in _TRUE:
        return True
    return False if text in _FALSE else None


def metadata_errors(path: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Labels and annotations of an object that the API server itself does not look into, such as a pod template."""
    for name, value in labels.items():
        if problem := label_key(name):
            yield fields.invalid(f"{path}.labels", name, problem)
        if problem := label_value(value):
            yield fields.invalid(fields.key(f"{path}.labels", name), value, problem)
    size = 0
    for name, value in annotations.items():
        size += len(name) + len(value)
        if problem := label_key(name.lower()):
            yield fields.invalid(f"{path}.annotations", name, problem)
    if size > _ANNOTATIONS_LIMIT:
        yield fields.invalid(f"{path}.annotations", "", f"must have at most {_ANNOTATIONS_LIMIT} bytes in all")


def selector_errors(path: str, selector: LabelSelector | None) -> Iterator[FieldError]:
    """What is wrong with a label selector."""
    if selector is None:
        return
    for name, value in selector.match_labels.items():
        if problem := label_key(name):
            yield fields.invalid(f"{path}.matchLabels", name, problem)
        if problem := label_value(value):
            yield fields.invalid(fields.key(f"{path}.matchLabels", name), value, problem)
    for position, requirement in enumerate(selector.match_expressions):
        yield from _requirement_errors(fields.index(f"{path}.matchExpressions", position), requirement)


def _requirement_errors(path: str, requirement: LabelSelectorRequirement) -> Iterator[FieldError]:
    if problem := label_key(requirement.key):
        yield fields.invalid(f"{path}.key", requirement.key, problem)
    match requirement.operator:
        case "In" | "NotIn":
            if not requirement.values:
                yield fields.required(f"{path}.values", "must be given when operator is In or NotIn")
        case "Exists" | "DoesNotExist":
            if requirement.values:
                yield fields.forbidden(f"{path}.values", "may not be given when operator is Exists or DoesNotExist")
        case other:
            yield fields.not_supported(f"{path}.operator", other, ("In", "NotIn", "Exists", "DoesNotExist"))
    for place, value in enumerate(requirement.values):
        if problem := label_value(value):
            yield fields.invalid(fields.index(f"{path}.values", place), value, problem)
