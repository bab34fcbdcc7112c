"""Decides whose claims on devices are to be read again when classes, slices or claims change.

From the change and from which Workloads claim devices. Whoever holds quota keeps what it is charged; the others are
read again once for however many devices changed together. It must never read a claim itself: `Values` does, when asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from admission.api import devices
from admission.api.kueue import Workload
from admission.controllers import conditions
from admission.controllers.look import Look
from admission.controllers.store import Change, key_of
from admission.controllers.tables import Tables
from admission.controllers.values import Values
from admission.jobs.device_claims import measures_of_class
from admission.settings import Settings


class DeviceNews:
    """Each method gives the Workloads that are to be looked at."""

    def __init__(self, settings: Settings, tables: Tables, look: Look, values: Values) -> None:
        self._tables = tables
        self._look = look
        self._values = values
        self._measures = bool(measures_of_class(settings))
        #: Whether what claims cost may be another than was read.
        self._is_owed = False

    def of_class(self, change: Change[devices.DeviceClass]) -> Iterator[Workload]:
        specs = [each.spec for each in (change.before, change.after) if each is not None]
        if len(specs) > 1 and specs[0] == specs[1]:
            return
        self._is_owed = self._is_owed or self._measures
        if any(spec.extended_resource_name for spec in specs):
            self._values.classes_changed()
            yield from self._tables.workloads

    def of_slice(self, change: Change[devices.ResourceSlice]) -> None:
        """Other devices: what those who wait for some cost may be another; `owed` gives them."""
        if not _is_same(change):
            self._look.pools.pop(change.either.spec.driver, None)
            self._is_owed = True

    def of_claim(
        self, change: Change[devices.ResourceClaim] | Change[devices.ResourceClaimTemplate]
    ) -> Iterator[Workload]:
        """Where the scheduler writes allocations into claims, their spec stays as it is."""
        if _is_same(change):
            return
        claim = change.either
        for workload in self._tables.workloads.where("claim", (claim.kind, *key_of(claim))):
            self._values.claims_changed(workload.metadata.uid)
            yield workload

    def owed(self) -> Iterator[Workload]:
        """All that wait for devices, once after these changed. Cost: these."""
        if not self._is_owed:
            return
        self._is_owed = False
        for workload in self._tables.workloads.where("claims devices", True):
            if not conditions.holds_quota(workload) and not conditions.is_finished(workload):
                self._values.claims_changed(workload.metadata.uid)
                yield workload


def _is_same(
    change: Change[devices.ResourceSlice] | Change[devices.ResourceClaim] | Change[devices.ResourceClaimTemplate],
) -> bool:
    return change.before is not None and change.after is not None and change.before.spec == change.after.spec
