"""The observed cluster: every object as last seen, what the core is told about it, and who has to look at what changed.

It turns deltas and answers into core events and a list of what is dirty, and makes the core's values on demand. It must
never write to the cluster or decide: that is the loop's, with what it finds here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from admission.api import core, devices, kueue, names
from admission.controllers import conditions, observe
from admission.controllers.act import Answer, Gone, Written
from admission.controllers.device_news import DeviceNews
from admission.controllers.inbox import Observed
from admission.controllers.look import Look
from admission.controllers.node_health import NodeHealth
from admission.controllers.occupancy import Occupancy
from admission.controllers.rules import Facts, Ownership
from admission.controllers.store import Change, Key, key_of
from admission.controllers.tables import OF_INTEGRATIONS, Tables
from admission.controllers.units import Units
from admission.controllers.values import Values
from admission.jobs.interface import Adapter, UnitKey
from admission.kube.informers import Deleted, Replaced, Upserted
from admission.settings import Settings
from queues.core import events, model
from queues.core.plan import Admit, Decision, Evict, GiveUp, Place
from queues.core.state import State
from queues.journal.entries import PastUseRow

log = logging.getLogger(__name__)

#: Kinds with the finalizer that keeps them while they are in use.
FINALIZED = ("ClusterQueue", "ResourceFlavor", "AdmissionCheck", "Topology")


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why the core's state cannot be relied on: what raised, during what, and whose news or judgement it was."""

    during: str
    cause: Exception
    uid: str | None = None


@dataclass(slots=True)
class Dirty:
    """What has to be looked at; dictionaries keep the order in which it became so."""

    workloads: dict[Key, None] = field(default_factory=dict)
    units: dict[UnitKey, None] = field(default_factory=dict)
    finalizers: dict[tuple[str, str], None] = field(default_factory=dict)
    cluster_queues: dict[str, None] = field(default_factory=dict)
    local_queues: dict[Key, None] = field(default_factory=dict)
    cohorts: dict[str, None] = field(default_factory=dict)


class Cluster:
    """`told` is what the core was last told of each Workload; `stirred`, that it heard of anything since it decided."""

    def __init__(self, settings: Settings, adapters: Iterable[Adapter], clock: Callable[[], float]) -> None:
        self.settings = settings
        self.tables = Tables()
        self.units = Units(adapters, self.tables, settings)
        self.look = Look(self.tables, settings, clock, self.units.kinds)
        self.values = Values(self.look)
        self.nodes = NodeHealth(self.tables, settings)
        self.state = State()
        #: Set when the core raised. Until it `begin_anew`s, it hears nothing and must not be asked anything.
        self.doubt: Doubt | None = None
        self.dirty = Dirty()
        self.told: dict[str, model.Workload] = {}
        #: Workloads that the controller itself keeps out of the queue for a while, and why.
        self.kept_back: dict[str, str] = {}
        #: Uids of those that are gone or finished, for whoever remembers something of them.
        self.ended: list[str] = []
        #: Pods that a scheduling gate came off, and which, for whoever counts that.
        self.ungated: list[tuple[core.Pod, str]] = []
        self.stirred = False
        #: What the journal remembers of sizes that started, for each core that is begun.
        self._remembered: list[events.SizesRemembered] = []
        self.occupancy = Occupancy(self.tables, self.apply)
        self._devices = DeviceNews(settings, self.tables, self.look, self.values)
        #: Uids of Workloads that hold quota and whose pods the core knows to be ready.
        self._ready: set[str] = set()
        waiting = settings.wait_for_pods_ready
        self._tells_readiness = waiting is not None and waiting.block_admission
        self._on: dict[str, Callable[[Change[Any]], None]] = {
            "ResourceFlavor": self._flavor,
            "Topology": self._topology,
            "AdmissionCheck": self._check,
            "Cohort": self._cohort,
            "ClusterQueue": self._cluster_queue,
            "Namespace": self._namespace,
            "LocalQueue": self._local_queue,
            "WorkloadPriorityClass": self._workload_priority_class,
            "PriorityClass": self._priority_class,
            "RuntimeClass": self._runtime_class,
            "DeviceClass": self._device_class,
            "ResourceSlice": self._resource_slice,
            "ResourceClaimTemplate": self._claim,
            "ResourceClaim": self._claim,
            "LimitRange": self._limit_range,
            "Node": self._node,
            "Pod": self._pod,
            "Job": partial(self._job, "Job"),
            **{each.kind: partial(self._job, each.kind) for each in OF_INTEGRATIONS.values()},
            "Workload": self._workload,
        }

    # ------------------------------------------------------------------ taking in

    def take(self, item: Observed | Answer) -> None:
        """One delta or answer."""
        for kind, change in self._changes(item):
            self._hear(kind, change)
        self._look_at(self._devices.owed())

    def fill(self, item: Observed | Answer) -> None:
        """The same before anything may be decided: only the objects; `tell_everything` follows."""
        for _ in self._changes(item):
            pass

    def tell_everything(self) -> None:
        """The core hears of every object, and everything is dirty: the start after all informers are synced.

        Workloads that are finished come last: nobody waits for them.
        """
        for kind in self.tables.kinds():
            for obj in self.tables.of(kind):
                self._hear(kind, Change(None, obj))
        self._look_at(self._devices.owed())
        dirty, self.dirty.workloads = self.dirty.workloads, {}
        finished: dict[Key, None] = {}
        for key in dirty:
            workload = self.tables.workloads.get(*key)
            is_over = workload is not None and conditions.is_finished(workload)
            (finished if is_over else self.dirty.workloads)[key] = None
        self.dirty.workloads.update(finished)

    def tell_again(self, kind: str, obj: Any) -> None:
        """The core hears of an object as if it were new."""
        self._hear(kind, Change(None, obj))
        self._look_at(self._devices.owed())

    def _hear(self, kind: str, change: Change[Any]) -> None:
        try:
            self._on[kind](change)
        except Exception:  # a fault that one object brings to light must not stop everything, now and at each start
            meta = change.either.metadata
            log.exception(
                "an object was not understood", extra={"kind": kind, "object": f"{meta.namespace}/{meta.name}"}
            )

    def _changes(self, item: Observed | Answer) -> list[tuple[str, Change[Any]]]:
        match item:
            case Observed(kind, Replaced(items, version)):
                return [(kind, change) for change in self.tables.of(kind).replace(items, version)]
            case Observed(kind, Upserted(obj)) | Written(kind, obj):
                change = self.tables.of(kind).upsert(obj) if kind in self._on else None
            case Observed(kind, Deleted(obj)):
                change = self.tables.of(kind).remove(*key_of(obj), obj.metadata.uid)
            case Gone(ref):
                kind = ref.kind
                change = self.tables.of(kind).remove(ref.namespace, ref.name, ref.uid) if kind in self._on else None
            case _:
                return []
        return [] if change is None else [(kind, change)]

    def apply(self, event: events.Event) -> None:
        if self.doubt is not None:
            return  # it is going to hear of everything anew
        try:
            self.state.apply(event)
        except Exception as error:  # noqa: BLE001  # whatever it is: the state may be half changed now
            news = event.workload if isinstance(event, events.WorkloadChanged) else None
            self.doubted("taking in news", error, None if news is None or news.admission else news.uid)
        self.stirred = True

    def doubted(self, during: str, cause: Exception, uid: str | None) -> None:
        """The core raised. The first fault counts, what follows from it does not."""
        if self.doubt is None:
            self.doubt = Doubt(during, cause, uid)

    def begin_anew(self) -> None:
        """A new core hears of every object but the Workloads, which are to be told after this."""
        self.doubt = None
        self.state = State()
        self.told.clear()
        self.occupancy.begin_anew()
        self._ready.clear()
        for event in self._remembered:
            self.apply(event)
        self.tell_everything()

    def promise(self, decision: Admit) -> None:
        """An admission of the old core that is being written: the new one counts it as held as well."""
        record = self.state.workloads.get(decision.uid)
        if self.doubt is not None or record is None or record.admission is not None:
            return
        try:
            self.state.admit(record, decision.admission)
        except Exception as error:  # noqa: BLE001  # the same as above
            self.doubted("taking in news", error, None)

    # ------------------------------------------------------------------ queues and what they refer to

    def _flavor(self, change: Change[kueue.ResourceFlavor]) -> None:
        name = change.either.metadata.name
        if change.after is None:
            self.apply(events.FlavorGone(model.FlavorName(name)))
        elif change.before is None or observe.flavor(change.before) != observe.flavor(change.after):
            self.apply(events.FlavorChanged(observe.flavor(change.after)))
        self._may_go("ResourceFlavor", name)
        for flavor in (change.before, change.after):
            if flavor is not None and flavor.spec.topology_name:
                self._may_go("Topology", flavor.spec.topology_name)

    def _topology(self, change: Change[kueue.Topology]) -> None:
        name = change.either.metadata.name
        if change.after is None:
            self.apply(events.TopologyGone(model.TopologyName(name)))
        elif change.before is None or change.before.spec != change.after.spec:
            self.apply(events.TopologyChanged(observe.topology(change.after)))
        self._may_go("Topology", name)

    def _check(self, change: Change[kueue.AdmissionCheck]) -> None:
        name = change.either.metadata.name
        if change.after is None:
            self.apply(events.CheckGone(model.CheckName(name)))
        else:
            self.apply(events.CheckChanged(observe.check(change.after)))
        self._may_go("AdmissionCheck", name)

    def _cohort(self, change: Change[kueue.Cohort]) -> None:
        if change.after is None:
            self.apply(events.CohortGone(model.CohortName(change.either.metadata.name)))
        elif change.before is None or change.before.spec != change.after.spec:
            self.apply(events.CohortChanged(observe.cohort(change.after)))
        self.dirty.cohorts[change.either.metadata.name] = None

    def _cluster_queue(self, change: Change[kueue.ClusterQueue]) -> None:
        queue = change.either
        name = queue.metadata.name
        self._may_go("ClusterQueue", name)
        if _is_status_only(change):
            return
        if change.after is None:
            self.apply(events.ClusterQueueGone(model.ClusterQueueName(name)))
        else:
            self.apply(events.ClusterQueueChanged(observe.cluster_queue(change.after)))
        self.dirty.cluster_queues[name] = None
        for each in (change.before, change.after):
            if each is not None:
                for flavor in observe.flavor_names(each):
                    self._may_go("ResourceFlavor", flavor)
                for check in observe.check_names(each):
                    self._may_go("AdmissionCheck", check)
        self._look_at(self.tables.workloads.where("holds", name))
        for local_queue in self.tables.local_queues.where("queue", name):
            self.dirty.local_queues[key_of(local_queue)] = None
            self._queue_workloads(key_of(local_queue))

    def _local_queue(self, change: Change[kueue.LocalQueue]) -> None:
        queue = change.either
        key = key_of(queue)
        if _is_status_only(change):
            return
        if change.after is None:
            self.apply(events.LocalQueueGone(model.ObjectKey(*key)))
        else:
            self.apply(events.LocalQueueChanged(observe.local_queue(change.after)))
            past = observe.past_use(change.after) if change.before is None else None
            if past is not None:
                self.apply(past)
        self.dirty.local_queues[key] = None
        for each in (change.before, change.after):
            if each is not None:
                self.dirty.cluster_queues[each.spec.cluster_queue] = None
        self._queue_workloads(key)
        self._units_of(key.namespace)

    def recall(self, row: PastUseRow) -> None:
        """What the journal remembers of a LocalQueue, unless that is another one of the same name."""
        queue = self.tables.local_queues.get(row.namespace, row.name)
        if queue is not None and queue.metadata.uid == row.uid:
            key = model.ObjectKey(row.namespace, row.name)
            self.apply(events.UsageRestored(key, observe.consumed(row.consumed), row.at))

    def remember(self, event: events.SizesRemembered) -> None:
        """What the journal remembers of sizes that started on a flavor."""
        self._remembered.append(event)
        self.apply(event)

    def _queue_workloads(self, queue: Key) -> None:
        self._look_at(self.tables.workloads.where("queue", tuple(queue)))

    def _may_go(self, kind: str, name: str) -> None:
        self.dirty.finalizers[kind, name] = None

    def is_in_use(self, kind: str, name: str) -> bool:
        match kind:
            case "ClusterQueue":
                return self.tables.workloads.has("holds", name)
            case "ResourceFlavor":
                return self.tables.cluster_queues.has("flavor", name)
            case "AdmissionCheck":
                return self.tables.cluster_queues.has("check", name)
            case "Topology":
                return self.tables.flavors.has("topology", name)
            case _:
                raise KeyError(kind)

    # ------------------------------------------------------------------ namespaces, classes, limits

    def _namespace(self, change: Change[core.Namespace]) -> None:
        name = change.either.metadata.name
        if change.after is None:
            self.apply(events.NamespaceGone(model.NamespaceName(name)))
        elif change.before is not None and change.before.metadata.labels == change.after.metadata.labels:
            return
        else:
            self.apply(events.NamespaceChanged(observe.namespace(change.after)))
        self._units_of(name)

    def _workload_priority_class(self, change: Change[kueue.WorkloadPriorityClass]) -> None:
        named = (names.WORKLOAD_PRIORITY_CLASS_KIND, change.either.metadata.name)
        self._look_at(self.tables.workloads.where("priority class", named))
        self.dirty.units.update(dict.fromkeys(self.units.all()))

    def _priority_class(self, change: Change[core.PriorityClass]) -> None:
        del change
        self.dirty.units.update(dict.fromkeys(self.units.all()))

    def _runtime_class(self, change: Change[core.RuntimeClass]) -> None:
        del change
        self.values.classes_changed()
        self._look_at(self.tables.workloads)

    def _device_class(self, change: Change[devices.DeviceClass]) -> None:
        self._look_at(self._devices.of_class(change))

    def _resource_slice(self, change: Change[devices.ResourceSlice]) -> None:
        self._devices.of_slice(change)

    def _claim(self, change: Change[devices.ResourceClaim] | Change[devices.ResourceClaimTemplate]) -> None:
        self._look_at(self._devices.of_claim(change))

    def _look_at(self, workloads: Iterable[kueue.Workload]) -> None:
        for workload in workloads:
            self.dirty.workloads[key_of(workload)] = None

    def _limit_range(self, change: Change[core.LimitRange]) -> None:
        namespace = change.either.metadata.namespace
        self.values.limits_changed(namespace)
        self._look_at(self.tables.workloads_in(namespace))
        self._units_of(namespace)

    def _units_of(self, namespace: str) -> None:
        self.dirty.units.update(dict.fromkeys(self.units.in_namespace(namespace)))

    # ------------------------------------------------------------------ nodes and pods

    def _node(self, change: Change[core.Node]) -> None:
        self._look_at(self.nodes.changed(change.before, change.after))
        if change.after is None:
            self.apply(events.NodeGone(model.NodeName(change.either.metadata.name)))
            return
        node = observe.node(change.after)
        if change.before is None or observe.node(change.before) != node:
            self.apply(events.NodeChanged(node))

    def _pod(self, change: Change[core.Pod]) -> None:
        pod = change.either
        self.occupancy.tell(pod, there=change.after is not None)
        if pod.spec.node_name in self.nodes.troubled and (name := observe.workload_name(pod)) is not None:
            self.dirty.workloads[Key(pod.metadata.namespace, name)] = None
        if change.before is not None and change.after is not None and change.before.spec.scheduling_gates:
            left = {gate.name for gate in change.after.spec.scheduling_gates}
            self.ungated += [(pod, gate.name) for gate in change.before.spec.scheduling_gates if gate.name not in left]
        self.dirty.units.update(dict.fromkeys(self.units.member_changed("Pod", key_of(pod), change.after)))

    def _job(self, kind: str, change: Change[Any]) -> None:
        key = key_of(change.either)
        self.dirty.units.update(dict.fromkeys(self.units.member_changed(kind, key, change.after)))

    # ------------------------------------------------------------------ workloads

    def _workload(self, change: Change[kueue.Workload]) -> None:
        workload = change.either
        key = self.tables.workloads.key(workload)
        self.dirty.workloads[key] = None
        before, after = change.before, change.after
        if before is not None and (after is None or before.metadata.uid != after.metadata.uid):
            self.forget(before)
        self.dirty.units.update(dict.fromkeys(self.units.workload_changed(key, after)))
        held_before = None if before is None else before.status.admission
        held_after = None if after is None or conditions.is_finished(after) else after.status.admission
        if held_before is not None and (held_after is None or held_after.cluster_queue != held_before.cluster_queue):
            self._may_go("ClusterQueue", held_before.cluster_queue)
        if held_before != held_after:
            for pod in self._pods_of(workload):
                self.occupancy.tell(pod, there=True)

    def _pods_of(self, workload: kueue.Workload) -> Iterable[core.Pod]:
        return self.tables.pods.where("workload", (workload.metadata.namespace, workload.metadata.name))

    def forget(self, workload: kueue.Workload) -> None:
        """It is gone, or finished: it neither waits nor holds."""
        uid = workload.metadata.uid
        self.values.forget(uid)
        self.nodes.forget(uid)
        self.kept_back.pop(uid, None)
        self._ready.discard(uid)
        self.ended.append(uid)
        if self.told.pop(uid, None) is not None:
            self.apply(events.WorkloadGone(model.Uid(uid)))

    def tell(self, workload: kueue.Workload) -> bool:
        """Tells the core what the Workload is now; whether that was news."""
        uid = workload.metadata.uid
        if conditions.is_finished(workload):
            known = uid in self.told
            self.forget(workload)
            return known
        value = self.value(workload)
        is_news = self.told.get(uid) != value
        if is_news:
            self.told[uid] = value
            self.apply(events.WorkloadChanged(value))
        if self._tells_readiness:
            self._tell_readiness(value, workload)
        return is_news

    def _tell_readiness(self, value: model.Workload, workload: kueue.Workload) -> None:
        """It is not part of the value: where it stops nobody from starting, it must not make anything look again."""
        if value.admission is None:
            self._ready.discard(value.uid)
            return
        is_ready = conditions.is_true(workload, names.PODS_READY)
        if is_ready is not (value.uid in self._ready):
            self.apply(events.PodsReadyChanged(value.uid, is_ready))
        (self._ready.add if is_ready else self._ready.discard)(value.uid)

    def reports_readiness(self, workload: kueue.Workload) -> bool:
        """Whether an adapter here says when its pods are ready."""
        return self.settings.wait_for_pods_ready is not None and self.ownership(workload) is Ownership.JOB

    def value(self, workload: kueue.Workload) -> model.Workload:
        """The core's value of a Workload as it stands."""
        return self.values.of(workload, self.kept_back.get(workload.metadata.uid))

    def stands_by(self, decision: Decision) -> bool:
        """Whether the core still means it: what it heard since may have made it forget a decision that had to wait."""
        record = self.state.workloads.get(decision.uid)
        match decision:
            case Admit(_, admission) | Place(_, admission):
                return record is not None and record.admission == admission
            case Evict() | GiveUp():
                return record is not None and record.evicted
            case _:
                return record is not None

    def ownership(self, workload: kueue.Workload) -> Ownership:
        owners = workload.metadata.owner_references
        if not owners:
            # Pods whose owner was deleted without them still hold what it was given, and somebody looks after them.
            left = names.JOB_OWNER_NAME in workload.metadata.annotations and self.units.claiming(workload)
            return Ownership.JOB if left else Ownership.NONE
        kinds = self.units.kinds
        return Ownership.JOB if any(owner.kind in kinds for owner in owners) else Ownership.FOREIGN

    def facts(self, workload: kueue.Workload) -> Facts:
        local = self.tables.local_queues.get(workload.metadata.namespace, workload.spec.queue_name or "")
        admission = workload.status.admission
        above = local.spec.cluster_queue if admission is None and local is not None else ""
        queue = self.tables.cluster_queues.get("", above if admission is None else admission.cluster_queue)
        ref = workload.spec.priority_class_ref
        value = None
        if ref is not None and ref.kind == names.WORKLOAD_PRIORITY_CLASS_KIND:
            found = self.look.workload_priority_class(ref.name)
            value = None if found is None else found.value
        return Facts(self.settings, self.ownership(workload), local, queue, value, self.nodes.failed(workload))


def _is_status_only(change: Change[Any]) -> bool:
    """Whether nothing but the status and the metadata that nobody reads is different."""
    before, after = change.before, change.after
    return (
        before is not None
        and after is not None
        and before.metadata.uid == after.metadata.uid
        and before.metadata.is_deleting == after.metadata.is_deleting
        and before.spec == after.spec
    )
