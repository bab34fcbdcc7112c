"""From the JSON of an object to its type, with what many objects have in common kept once.

Most Workloads are made from a few templates and admitted alike: specs, admissions and conditions with the same bytes
become the same value. It must never give anything else than a plain decode would.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from admission.api.decoding import decode
from admission.api.kueue import Admission, Workload, WorkloadSpec, WorkloadStatus
from admission.api.meta import Condition, ObjectMeta

T = TypeVar("T")

#: Of so many different values of each sort it is known that they were read before.
_REMEMBERED: Final = 4_096


class _Status(WorkloadStatus, frozen=True):
    """The same fields, two of them not read yet."""

    conditions: msgspec.Raw = msgspec.Raw(b"[]")  # type: ignore[assignment]
    admission: msgspec.Raw = msgspec.Raw(b"null")  # type: ignore[assignment]


class _Parts(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: _Status = _Status()


class _Shared(Generic[T]):
    """The values of one sort that were read lately. They are frozen, and nobody changes what is in them."""

    def __init__(self, type_: Any) -> None:
        self._decode = msgspec.json.Decoder(type_).decode
        self._known: dict[bytes, T] = {}

    def value(self, raw: msgspec.Raw) -> T:
        body = bytes(raw)
        known = self._known.get(body)
        if known is None:
            known = self._decode(body)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[body] = known
        return known


_PARTS: Final = msgspec.json.Decoder(_Parts)
_REST: Final = tuple(each for each in WorkloadStatus.__struct_fields__ if each not in {"conditions", "admission"})
_SPECS: Final = _Shared[WorkloadSpec](WorkloadSpec)
_ADMISSIONS: Final = _Shared[Admission | None](Admission | None)
_CONDITIONS: Final = _Shared[tuple[Condition, ...]](tuple[Condition, ...])


def read(body: bytes, type_: type[T]) -> T:
    """Decode JSON. Raises what `decode` raises."""
    return cast("T", _workload(body)) if type_ is Workload else decode(body, type_)


def _workload(body: bytes) -> Workload:
    try:
        parts = _PARTS.decode(body)
        status = WorkloadStatus(
            conditions=_CONDITIONS.value(parts.status.conditions),
            admission=_ADMISSIONS.value(parts.status.admission),
            **{name: getattr(parts.status, name) for name in _REST},
        )
        return Workload(metadata=parts.metadata, spec=_SPECS.value(parts.spec), status=status)
    except msgspec.ValidationError:
        return decode(body, Workload)
