"""The core's value of each Workload, made from the object and from what else decides about its requests.

Templates are parsed once for each content and each change of the LimitRanges and RuntimeClasses around it: thousands of
Workloads are made from one template. It must never tell the core anything itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace
from typing import Final

import msgspec

from admission.api import names
from admission.api.kueue import Workload
from admission.controllers import conditions, observe_workload
from admission.controllers.look import Look
from admission.jobs.pod_sets import core_pod_sets
from admission.jobs.requests import Misconfigured
from queues.core import model

_PodSets = tuple[model.PodSet, ...] | Misconfigured

#: Of so many different templates it is remembered what they come to.
_REMEMBERED: Final = 4_096
_CLAIMS: Final = b'"resourceClaims"'


class _Known(msgspec.Struct):
    """Of one Workload: its pod sets and the `version` of what they were read from, None where that is another by now.

    Then what the value was made from, and the value: it is asked for when the object comes, and when it is admitted.
    """

    version: object
    pod_sets: _PodSets
    workload: Workload
    kept_back: str | None = None
    exact: float | None = None
    value: model.Workload | None = None


class Values:
    """`decided_at` keeps the exact time of reservations of this process, which conditions cut to whole seconds."""

    def __init__(self, look: Look) -> None:
        self.decided_at: dict[str, float] = {}
        self._look = look
        self._known: dict[str, _Known] = {}
        self._by_content: OrderedDict[Hashable, _PodSets] = OrderedDict()
        self._limits: dict[str, int] = {}
        self._classes = 0

    def limits_changed(self, namespace: str) -> None:
        """LimitRanges of the namespace: requests there are read again."""
        self._limits[namespace] = self._limits.get(namespace, 0) + 1

    def classes_changed(self) -> None:
        """RuntimeClasses or device classes: all requests are read again."""
        self._classes += 1

    def claims_changed(self, uid: str) -> None:
        """What the Workload's pods claim is another: its requests are read again."""
        if (known := self._known.get(uid)) is not None:
            known.version = None

    def forget(self, uid: str) -> None:
        self._known.pop(uid, None)
        self.decided_at.pop(uid, None)

    def of(self, workload: Workload, kept_back: str | None = None) -> model.Workload:
        """The value as the object stands. `kept_back` keeps it out of the queue for a reason of the controller's."""
        uid = workload.metadata.uid
        exact = self.decided_at.get(uid)
        before = self._known.get(uid)
        known = self._read(workload, before)
        if (
            known is before
            and known.value is not None
            and known.workload is workload
            and (known.kept_back, known.exact) == (kept_back, exact)
        ):
            return known.value
        value = self._made(workload, known.pod_sets, kept_back, exact)
        known.workload, known.kept_back, known.exact, known.value = workload, kept_back, exact, value
        return value

    def _made(
        self, workload: Workload, pod_sets: _PodSets, kept_back: str | None, exact: float | None
    ) -> model.Workload:
        value = observe_workload.workload(
            workload,
            () if isinstance(pod_sets, Misconfigured) else pod_sets,
            self._look.settings,
            misconfigured=pod_sets.message if isinstance(pod_sets, Misconfigured) else None,
            kept_back=kept_back,
        )
        if value.admission is not None and exact is not None and int(exact) == int(value.admission.reserved_at):
            return replace(value, admission=replace(value.admission, reserved_at=exact))
        return value

    def _read(self, workload: Workload, known: _Known | None) -> _Known:
        """What is known of it, anew where its requests may be others."""
        metadata = workload.metadata
        answers = [
            check.pod_set_updates for check in workload.status.admission_checks if check.state == names.CHECK_READY
        ]
        version = (
            metadata.generation,
            workload.status.reclaimable_pods,
            tuple(answers),
            conditions.holds_quota(workload),
            self._classes,
            self._limits.get(metadata.namespace, 0),
        )
        if known is not None and known.version == version:
            return known
        known = self._known[metadata.uid] = _Known(version, self._of_content(workload), workload)
        return known

    def _of_content(self, workload: Workload) -> _PodSets:
        """What others with the same templates, under the same circumstances, came to."""
        templates = msgspec.json.encode(workload.spec.pod_sets)
        has_answers = any(check.pod_set_updates for check in workload.status.admission_checks)
        if has_answers or _CLAIMS in templates:
            return core_pod_sets(workload, self._look)
        namespace = workload.metadata.namespace
        content = (
            templates,
            workload.status.reclaimable_pods,
            conditions.holds_quota(workload),
            namespace if self._look.has_limits(namespace) else "",
            self._classes,
            self._limits.get(namespace, 0),
        )
        known = self._by_content.get(content)
        if known is None:
            known = self._by_content[content] = core_pod_sets(workload, self._look)
            if len(self._by_content) > _REMEMBERED:
                self._by_content.popitem(last=False)
        else:
            self._by_content.move_to_end(content)
        return known
