"""From the JSON of an object to its type, with what many objects have in common kept once.

Most Workloads are made from a few templates and admitted alike: specs, labels, admissions and conditions with the same
bytes become the same value, and words that come again the same string. It must never give anything else than a plain
decode would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

import msgspec

from admission.alike import Alike
from admission.api.decoding import decode
from admission.api.kueue import Admission, Workload, WorkloadSpec, WorkloadStatus
from admission.api.meta import Condition, ObjectMeta

T = TypeVar("T")

#: Of so many different values of each sort it is known that they were read before.
_REMEMBERED: Final = 4_096
#: Of conditions fewer: they have times in them, so what comes again comes soon, as the answer of a write and its watch.
_REMEMBERED_CONDITIONS: Final = 512


#: The annotations of everything that has none. What others say in theirs is seldom the same.
_NO_ANNOTATIONS: Final[dict[str, str]] = {}


class _Metadata(ObjectMeta, frozen=True):
    """The same fields, two of them not read yet."""

    labels: msgspec.Raw = msgspec.Raw(b"{}")  # type: ignore[assignment]
    annotations: dict[str, str] = msgspec.field(default_factory=lambda: _NO_ANNOTATIONS)
    finalizers: msgspec.Raw = msgspec.Raw(b"[]")  # type: ignore[assignment]


class _Status(WorkloadStatus, frozen=True):
    """The same fields, two of them not read yet."""

    conditions: msgspec.Raw = msgspec.Raw(b"[]")  # type: ignore[assignment]
    admission: msgspec.Raw = msgspec.Raw(b"null")  # type: ignore[assignment]


class _Parts(msgspec.Struct):
    metadata: _Metadata = _Metadata()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: _Status = _Status()


class _Shared(Generic[T]):
    """The values of one sort that were read lately. They are frozen, and nobody changes what is in them."""

    def __init__(self, read: Callable[[bytes], T], most: int = _REMEMBERED) -> None:
        self._read = read
        self._most = most
        self._known: dict[bytes, T] = {}

    def value(self, raw: msgspec.Raw) -> T:
        body = bytes(raw)
        known = self._known.get(body)
        if known is None:
            known = self._read(body)
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[body] = known
        return known


_PARTS: Final = msgspec.json.Decoder(_Parts)
_RAWS: Final = msgspec.json.Decoder(tuple[msgspec.Raw, ...])
_A_CONDITION: Final = msgspec.json.Decoder(Condition)
#: A time or a reason is that of many objects.
_WORD: Final = Alike[str]().one


def _condition(body: bytes) -> Condition:
    read = _A_CONDITION.decode(body)
    return Condition(
        type=_WORD(read.type),
        status=_WORD(read.status),
        reason=_WORD(read.reason),
        message=_WORD(read.message),
        last_transition_time=_WORD(read.last_transition_time),
        observed_generation=read.observed_generation,
    )


def _conditions(body: bytes) -> tuple[Condition, ...]:
    """One by one: of those of a Workload seldom more than one is new."""
    return tuple(map(_EACH_CONDITION.value, _RAWS.decode(body)))


_SPECS: Final = _Shared[WorkloadSpec](msgspec.json.Decoder(WorkloadSpec).decode)
_LABELS: Final = _Shared[dict[str, str]](msgspec.json.Decoder(dict[str, str]).decode)
_FINALIZERS: Final = _Shared[tuple[str, ...]](msgspec.json.Decoder(tuple[str, ...]).decode)
_ADMISSIONS: Final = _Shared[Admission | None](msgspec.json.Decoder(Admission | None).decode)
_EACH_CONDITION: Final = _Shared[Condition](_condition, _REMEMBERED_CONDITIONS)
_CONDITIONS: Final = _Shared[tuple[Condition, ...]](_conditions, _REMEMBERED_CONDITIONS)


def read(body: bytes, type_: type[T]) -> T:
    """Decode JSON. Raises what `decode` raises."""
    return cast("T", _workload(body)) if type_ is Workload else decode(body, type_)


def _workload(body: bytes) -> Workload:
    try:
        parts = _PARTS.decode(body)
        return Workload(metadata=_metadata(parts.metadata), spec=_SPECS.value(parts.spec), status=_status(parts.status))
    except msgspec.ValidationError:
        return decode(body, Workload)


def _metadata(read: _Metadata) -> ObjectMeta:
    created = read.creation_timestamp
    return ObjectMeta(
        name=read.name,
        generate_name=read.generate_name,
        namespace=_WORD(read.namespace),
        uid=read.uid,
        resource_version=read.resource_version,
        generation=read.generation,
        creation_timestamp=None if created is None else _WORD(created),
        deletion_timestamp=read.deletion_timestamp,
        deletion_grace_period_seconds=read.deletion_grace_period_seconds,
        labels=_LABELS.value(read.labels),
        annotations=read.annotations,
        owner_references=read.owner_references,
        finalizers=_FINALIZERS.value(read.finalizers),
    )


def _status(read: _Status) -> WorkloadStatus:
    return WorkloadStatus(
        conditions=_CONDITIONS.value(read.conditions),
        admission=_ADMISSIONS.value(read.admission),
        requeue_state=read.requeue_state,
        reclaimable_pods=read.reclaimable_pods,
        admission_checks=read.admission_checks,
        resource_requests=read.resource_requests,
        accumulated_past_execution_time_seconds=read.accumulated_past_execution_time_seconds,
        scheduling_stats=read.scheduling_stats,
        nominated_cluster_names=read.nominated_cluster_names,
        cluster_name=read.cluster_name,
        unhealthy_nodes=read.unhealthy_nodes,
        preemption_gates=read.preemption_gates,
    )
