"""All that the core knows, and the one door in: `State().apply(event)`.

It keeps records, books and waiting lists up to date with each event and wakes whatever the event could help. It never
admits, evicts or chooses; that is `cycle.decide`, which works on this state.
"""

from __future__ import annotations

from typing import assert_never

from queues.core import events
from queues.core.activity import World, activity_of, flavors_named, inactive_reason
from queues.core.books import Books
from queues.core.demand import charges_of, keeps_its_place, placed_of, rank_of
from queues.core.expected_sizes import ExpectedSizes
from queues.core.model import (
    Admission,
    CheckName,
    ClusterQueue,
    ClusterQueueName,
    Cohort,
    CohortName,
    FlavorName,
    LocalQueue,
    Namespace,
    ObjectKey,
    QueueingStrategy,
    ResourceFlavor,
    Topology,
    TopologyName,
    Uid,
    Workload,
)
from queues.core.past import PastUse
from queues.core.policy import Policy
from queues.core.readings import Readings
from queues.core.records import HELD, HOLDING, NO_PROGRESS, QUEUED, Activity, QueueRecord, WorkloadRecord
from queues.core.reservations import Reservations
from queues.core.second_pass import SecondPass
from queues.core.tree import Node
from queues.core.waiting import Waiting


class State(Readings):
    """Applying the same event twice changes nothing."""

    def __init__(self) -> None:
        self.books = Books()
        self.world = World(flavors=self.books.flavors)
        self.waiting = Waiting(self.books, self.world)
        self.workloads: dict[Uid, WorkloadRecord] = {}
        self.past = PastUse(self.books, self.waiting)
        self.expected_sizes = ExpectedSizes(self.books)
        self.second_pass = SecondPass(self.books, self.world)
        self.reservations = Reservations()
        self._cohorts: dict[CohortName, Cohort] = {}
        self.policy: Policy | None = None
        self._ready: dict[Uid, bool] = {}
        self._flavor_users: dict[FlavorName, dict[QueueRecord, None]] = {}
        self._check_users: dict[CheckName, dict[QueueRecord, None]] = {}
        #: What was admitted and taken back again within the last decision, so that the plan says nothing of it.
        self.withdrawn: list[tuple[Workload, Admission]] = []
        #: How often workloads were judged so far.
        self.judgements = 0

    def apply(self, event: events.Event) -> None:  # noqa: C901, PLR0912, PLR0915
        match event:
            case events.WorkloadChanged(workload):
                self._workload_changed(workload)
            case events.WorkloadGone(uid):
                self._workload_gone(uid)
            case events.WriteRefused(uid):
                self._write_refused(uid)
            case events.PodsReadyChanged(uid, ready):
                self._pods_ready_changed(uid, ready=ready)
            case events.SizesRemembered(flavor_name, sizes):
                self.expected_sizes.remembered(flavor_name, sizes)
            case events.ClusterQueueChanged(queue):
                self._cluster_queue_changed(queue)
            case events.ClusterQueueGone(name):
                self._cluster_queue_gone(name)
            case events.CohortChanged(cohort):
                self._cohort_changed(cohort)
            case events.CohortGone(cohort_name):
                self._cohorts.pop(cohort_name, None)
                self.books.forest.drop_cohort(cohort_name)
            case events.LocalQueueChanged(local_queue):
                self._local_queue_changed(local_queue)
            case events.LocalQueueGone(key):
                self._local_queue_gone(key)
            case events.UsageRestored(key, consumed, at):
                self.past.restored(key, consumed, at)
            case events.NamespaceChanged(namespace):
                self._namespace_changed(namespace)
            case events.NamespaceGone(namespace_name):
                self.world.namespaces.pop(namespace_name, None)
            case events.FlavorChanged(flavor):
                self._flavor_changed(flavor)
            case events.FlavorGone(flavor_name):
                self._flavor_gone(flavor_name)
            case events.CheckChanged(check):
                self.world.checks[check.name] = check
                self._check_users_review(check.name)
            case events.CheckGone(check_name):
                self.world.checks.pop(check_name, None)
                self._check_users_review(check_name)
            case events.TopologyChanged(topology):
                self._topology_changed(topology)
            case events.TopologyGone(topology_name):
                self._topology_gone(topology_name)
            case events.NodeChanged(node):
                self.books.more_room(self.books.domains.node_changed(node))
            case events.NodeGone(node_name):
                self.books.more_room(self.books.domains.node_gone(node_name))
            case events.PodPlaced(pod, on_node, requests):
                self.books.domains.pod_placed(pod, on_node, requests)
            case events.PodGone(pod):
                self.books.more_room(self.books.domains.pod_gone(pod))
            case _:
                assert_never(event)

    # ------------------------------------------------------------------ workloads

    def _workload_changed(self, workload: Workload) -> None:
        record = self.workloads.get(workload.uid)
        if record is None:
            record = self.workloads[workload.uid] = WorkloadRecord(workload)
            record.ready = self._ready.get(workload.uid, False)
        elif record.workload == workload:
            return  # no news, whatever was decided since
        self._take_over(record, workload)

    def _take_over(self, record: WorkloadRecord, workload: Workload) -> None:
        """What the shell says is the truth: decisions that it does not know of are forgotten."""
        old, was_holding = record.workload, record.stage is HOLDING
        record.workload = workload
        if not was_holding and record.home is not None and record.home.key != workload.queue:
            self.waiting.withdraw(record)  # while it still has the LocalQueue that counts it
        if record.home is not None and record.home.key != workload.queue:
            self.past.left(record)
        self.books.move_home(record, self.books.local_queue(workload.queue))
        if workload.admission is not None:
            # News that an admission was written is older than an eviction that was decided since.
            confirms = was_holding and old.admission is None and record.evicted
            self._hold(record, old, workload.admission, evicted=workload.evicted or confirms)
            if was_holding and record.holder is not None and rank_of(old) != rank_of(workload):
                self.books.stir(record.holder, record.charges)  # others may evict it now
            return
        if was_holding:
            self.release(record)
        elif record.home is not None and record.group is not None and keeps_its_place(old, workload):
            return
        self._file(record)

    def _file(self, record: WorkloadRecord) -> None:
        """It holds nothing, and waits where it belongs by what is known now."""
        self.waiting.file(record)
        self.expected_sizes.looked_at(record)

    def _hold(self, record: WorkloadRecord, old: Workload, admission: Admission, *, evicted: bool) -> None:
        workload = record.workload
        if record.stage is not HOLDING:
            self.admit(record, admission)
        elif record.admission != admission or (
            old.pod_sets != workload.pod_sets  # what the same pod sets take by the same admission is charged already
            and (
                charges_of(workload, admission) != record.charges
                or placed_of(workload.pod_sets, admission.pod_sets) != tuple([one for _, one in record.placed])
            )
        ):
            self.books.recharge(record, admission)
        if evicted:
            self.books.leave(record)
        else:
            self.books.stay(record)
        self.second_pass.told(record)
        if admission.admitted:
            self.past.confirmed(record)

    def admit(self, record: WorkloadRecord, admission: Admission) -> None:
        """The workload holds this from now on and waits no more."""
        self.reservations.forget(record)
        self.waiting.withdraw(record)
        record.stage = HOLDING
        record.evicted = False
        record.told = None
        record.progress = NO_PROGRESS
        self.books.hold(record, admission)
        self.waiting.started(record)
        self.past.entered(record)
        self.expected_sizes.started(record)

    def release(self, record: WorkloadRecord) -> None:
        """The workload holds nothing any more."""
        queue = record.holder
        self.second_pass.forget(record.uid)
        self.books.drop(record)
        self.past.left(record)
        if queue is not None:
            self.books.forget_queue_if_unused(queue)
        record.evicted = False
        record.ready = False
        self._ready.pop(record.uid, None)
        record.stage = HELD

    def withdraw(self, record: WorkloadRecord) -> None:
        """An admission that nobody was told of yet is taken back: the workload waits as if it had never started."""
        assert record.admission is not None  # noqa: S101
        self.withdrawn.append((record.workload, record.admission))
        self.release(record)
        self._file(record)

    def _workload_gone(self, uid: Uid) -> None:
        record = self.workloads.pop(uid, None)
        self._ready.pop(uid, None)
        if record is None:
            return
        self.expected_sizes.gone(uid)
        self.reservations.forget(record)
        if record.stage is HOLDING:
            self.release(record)
        else:
            self.waiting.withdraw(record)
        home = record.home
        if home is not None:
            self.books.changed_local_queues[home.key] = None
            del home.workloads[uid]
            self.books.forget_if_unused(home)
        self.waiting.untold.pop(uid, None)

    def _write_refused(self, uid: Uid) -> None:
        record = self.workloads.get(uid)
        if record is not None:
            record.told = None
            self._take_over(record, record.workload)
            self.waiting.tell(record)

    def _pods_ready_changed(self, uid: Uid, *, ready: bool) -> None:
        self._ready[uid] = ready
        record = self.workloads.get(uid)
        if record is None:
            return
        record.ready = ready
        if ready:
            self.books.unready.pop(uid, None)
        elif record.stage is HOLDING:
            self.books.unready[uid] = record

    # ------------------------------------------------------------------ queues

    def _cluster_queue_changed(self, spec: ClusterQueue) -> None:
        queue = self.books.queue(spec.name)
        old = queue.spec
        if old == spec:
            return
        self._index(queue, old, spec)
        queue.spec = spec
        self.books.forest.put_queue(spec.name, spec.cohort, spec.groups, weight=spec.fair_weight)
        strict = spec.strategy is QueueingStrategy.STRICT_FIFO
        if queue.order.is_strict is not strict:
            queue.order.regroup(strict=strict, by_usage=queue.order.by_usage)
        self.past.changed(queue)
        self.second_pass.look_again()
        self._review(queue)
        if old is None or old.namespace_selector != spec.namespace_selector:
            self._refile(queue)
        if old is None or old.groups != spec.groups:
            for record in queue.pending.values():
                self.expected_sizes.looked_at(record)
        self.books.changed_queues[queue.name] = None

    def _cluster_queue_gone(self, name: ClusterQueueName) -> None:
        queue = self.books.queues.get(name)
        if queue is None or queue.spec is None:
            return
        self._index(queue, queue.spec, None)
        queue.spec = None
        self.books.forest.drop_queue(name)
        self._review(queue)
        self._refile(queue)
        self.books.changed_queues.pop(name, None)
        self.books.forget_queue_if_unused(queue)

    def _refile(self, queue: QueueRecord) -> None:
        for home in queue.homes.values():
            for record in home.workloads.values():
                if record.stage is not HOLDING:
                    self._file(record)

    def _index(self, queue: QueueRecord, old: ClusterQueue | None, new: ClusterQueue | None) -> None:
        """Remember which queues use which flavors and checks."""
        for flavor in flavors_named(old):
            self._flavor_users[flavor].pop(queue, None)
        for flavor in flavors_named(new):
            self._flavor_users.setdefault(flavor, {})[queue] = None
        for rule in () if old is None else old.checks:
            self._check_users[rule.name].pop(queue, None)
        for rule in () if new is None else new.checks:
            self._check_users.setdefault(rule.name, {})[queue] = None

    def _cohort_changed(self, cohort: Cohort) -> None:
        if self._cohorts.get(cohort.name) == cohort:
            return
        self._cohorts[cohort.name] = cohort
        self.books.forest.put_cohort(cohort.name, cohort.parent, cohort.groups, weight=cohort.fair_weight)

    def _local_queue_changed(self, spec: LocalQueue) -> None:
        home = self.books.local_queue(spec.key)
        old = home.spec
        if old == spec:
            return
        if old is not None:
            self._leave_queue(old)
        home.spec = spec
        self.books.queue(spec.cluster_queue).homes[spec.key] = home
        for record in list(home.workloads.values()):
            if record.stage is not HOLDING:
                self._file(record)
        self.books.changed_local_queues[spec.key] = None
        self.books.recounted[home] = None

    def _leave_queue(self, spec: LocalQueue) -> None:
        queue = self.books.queue(spec.cluster_queue)
        queue.homes.pop(spec.key, None)
        self.books.forget_queue_if_unused(queue)

    def _local_queue_gone(self, key: ObjectKey) -> None:
        home = self.books.local_queues.get(key)
        if home is None or home.spec is None:
            return
        self._leave_queue(home.spec)
        self.past.forget(key)
        home.spec = None
        for record in list(home.workloads.values()):
            if record.stage is not HOLDING:
                self._file(record)
        self.books.changed_local_queues.pop(key, None)
        self.books.forget_if_unused(home)

    def _namespace_changed(self, namespace: Namespace) -> None:
        if self.world.namespaces.get(namespace.name) == namespace.labels:
            return
        self.world.namespaces[namespace.name] = namespace.labels
        for home in self.books.homes_in.get(namespace.name, {}).values():
            for record in home.workloads.values():
                if record.stage is not HOLDING:
                    self._file(record)

    # ------------------------------------------------------------------ what queues refer to

    def _flavor_changed(self, flavor: ResourceFlavor) -> None:
        old = self.books.flavors.get(flavor.name)
        if old == flavor:
            return
        with_nodes = self._holders_of(flavor.name)
        for record in with_nodes:
            self.books.give_back(record.placed)
        self.books.flavors[flavor.name] = flavor
        self.books.domains.flavor_changed(flavor)
        for record in with_nodes:
            record.placed = self.books.take(tuple([one for _, one in record.placed]))
        self.expected_sizes.flavor_changed(old, flavor, self.workloads.values())
        self._review_users(flavor.name)

    def _flavor_gone(self, name: FlavorName) -> None:
        if self.books.flavors.pop(name, None) is not None:
            self.books.domains.flavor_gone(name)
            self._review_users(name)

    def _holders_of(self, flavor: FlavorName) -> list[WorkloadRecord]:
        """Who has pods placed by this flavor's topology. Cost: the workloads of all queues that use the flavor."""
        return [
            record
            for queue in self._flavor_users.get(flavor, ())
            for record in queue.holding.values()
            if any(flavor in one.flavors for _, one in record.placed)
        ]

    def _topology_changed(self, topology: Topology) -> None:
        if self.world.topologies.get(topology.name) == topology:
            return
        self.world.topologies[topology.name] = topology
        self.books.domains.topology_changed(topology)
        self._review_topology_users(topology.name)

    def _topology_gone(self, name: TopologyName) -> None:
        if self.world.topologies.pop(name, None) is not None:
            self.books.domains.topology_gone(name)
            self._review_topology_users(name)

    def _review_topology_users(self, name: TopologyName) -> None:
        for flavor in list(self.books.flavors.values()):
            if flavor.topology == name:
                self._review_users(flavor.name)

    def _review_users(self, flavor: FlavorName) -> None:
        for queue in self._flavor_users.get(flavor, ()):
            self._review(queue)
            self.waiting.wake_queue(queue)
        self.books.nodes_stirred = True

    def _check_users_review(self, check: CheckName) -> None:
        for queue in self._check_users.get(check, ()):
            self._review(queue)

    # ------------------------------------------------------------------ keeping up

    def _review(self, queue: QueueRecord) -> None:
        """Find out whether the queue is active, and let its workloads know when that changed."""
        spec = queue.spec
        if spec is None:
            activity = Activity(active=False, reason="NotFound", message=f"ClusterQueue {queue.name} not found")
        else:
            activity = activity_of(spec, self.world, in_cycle=queue.node.is_cyclic)
            topologies = [self.books.domains.levels_of(flavor) for flavor in flavors_named(spec)]
            queue.is_topology_only = all(levels is not None for levels in topologies)
        if activity == queue.activity:
            return
        queue.take_activity(activity)
        self.books.changed_queues[queue.name] = None
        self.books.changed_local_queues.update(dict.fromkeys(queue.homes))
        for record in list(queue.pending.values()):
            if record.stage is QUEUED:
                record.reason = None if activity.active else inactive_reason(queue)
                if not activity.active and record.claim is not None:
                    self.books.unclaim(record)
                    self.waiting.reorder(record)
                self.waiting.tell(record)
        if activity.active:
            self.waiting.wake_queue(queue)
        else:
            self.waiting.stand(queue, None)

    def settle(self) -> None:
        """Bring quota up to date with changed queues and cohorts. Costs nothing when none changed."""
        if self.books.forest.is_settled:
            return
        for node in self.books.forest.gone():
            self._forget_tree(node)
        for node in self.books.forest.settle():
            self._forget_tree(node)
            if node.is_cohort:
                self.books.changed_cohorts[CohortName(node.name)] = None
            queue = None if node.is_cohort else self.books.queues.get(ClusterQueueName(node.name))
            if queue is not None:
                queue.options = None
                self.books.borrowers.changed(queue)
                self.books.changed_queues[queue.name] = None  # its share depends on what others could lend
                self._review(queue)
                self.waiting.wake_queue(queue)

    def _forget_tree(self, root: Node) -> None:
        self.waiting.forget_parked(root)
        self.books.borrowers.forget(root)

    def get_ready(self, now: float, policy: Policy) -> None:
        """Before deciding: settle what changed and wake what time or events could help."""
        self.settle()
        self.withdrawn = []
        self.past.begin(now, policy.admission_fair_sharing)
        if policy is not self.policy and policy != self.policy:
            self.policy = policy
            for queue in self.books.queues.values():
                self.waiting.wake_queue(queue)
        if self.reservations.begin(now, policy.topology.reservation):
            self.books.nodes_stirred = True
        self.waiting.wake_due(now)

    def look_again(self) -> None:
        """The next decision judges everybody anew. For whoever doubts that all was woken that had to be."""
        self.second_pass.look_again()
        for queue in self.books.queues.values():
            self.waiting.wake_queue(queue)
