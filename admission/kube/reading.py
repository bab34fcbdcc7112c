"""From the JSON of an object to its type, with what many objects have in common kept once.

Most Workloads are made from a few templates, and a spec is most of a Workload: specs with the same bytes become the
same value. It must never give anything else than a plain decode would.
"""

from __future__ import annotations

from typing import Final, TypeVar, cast

import msgspec

from admission.api.decoding import decode
from admission.api.kueue import Workload, WorkloadSpec, WorkloadStatus
from admission.api.meta import ObjectMeta

T = TypeVar("T")

#: Of so many different specs it is known that they were read before.
_REMEMBERED: Final = 4_096


class _Parts(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: WorkloadStatus = WorkloadStatus()


_PARTS: Final = msgspec.json.Decoder(_Parts)
_SPECS: Final = msgspec.json.Decoder(WorkloadSpec)


class _Shared:
    """The specs that were read lately. Specs are frozen, and nobody changes the templates in them."""

    def __init__(self) -> None:
        self._specs: dict[bytes, WorkloadSpec] = {}

    def workload(self, body: bytes) -> Workload:
        try:
            parts = _PARTS.decode(body)
            return Workload(metadata=parts.metadata, spec=self._spec(bytes(parts.spec)), status=parts.status)
        except msgspec.ValidationError:
            return decode(body, Workload)

    def _spec(self, raw: bytes) -> WorkloadSpec:
        known = self._specs.get(raw)
        if known is None:
            known = _SPECS.decode(raw)
            if len(self._specs) >= _REMEMBERED:
                self._specs.clear()
            self._specs[raw] = known
        return known


_SHARED: Final = _Shared()


def read(body: bytes, type_: type[T]) -> T:
    """Decode JSON. Raises what `decode` raises."""
    if type_ is Workload:
        return cast("T", _SHARED.workload(body))
    return decode(body, type_)
