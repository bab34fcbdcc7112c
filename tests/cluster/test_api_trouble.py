"""An API server that refuses, hangs, cuts, forgets or is late: Muster catches up, and decides nothing on half a state.

Between Muster and the real API server stands a proxy that makes the trouble, while workloads come and end. The
judgement is made from every state that the real one stored.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.controller_rig import Running, install_crds
from tests.cluster.faulty import Answer, Asked, Cut, Expired, Fault, Faulty, Hang, Page, Swallow, faulty, sample
from tests.cluster.replicas import Replica, certificates
from tests.cluster.steady_load import Load, judge, team, workload
from tests.cluster.town import Trails, condition, is_true
from tests.controlplane.cluster import Api, ControlPlane, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def door(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    install_crds(control_plane)
    with faulty(control_plane, Path(tmp_path_factory.mktemp("faulty"))) as made:
        yield made


@pytest.fixture(scope="module")
def running(door: Faulty) -> Iterator[Running]:
    controller = Running(door.kubeconfig).start()
    yield controller
    controller.stop()


@pytest.fixture(scope="module")
def trails(api: Api, running: Running) -> Iterator[Trails]:
    made = Trails(api)
    made.start()
    yield made
    made.stop()


def every(number: int, fault: Fault, of: Callable[[Asked], bool] = lambda _: True) -> Callable[[Asked], Fault]:
    """Every so manieth of such requests."""
    counts = itertools.count(1)
    return lambda asked: fault if of(asked) and next(counts) % number == 0 else None


WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/workloads"


def is_write(asked: Asked) -> bool:
    return asked.method != "GET"


TROUBLES = {
    "429 to every other request": every(2, Answer(429, 1)),
    "500 to everything": lambda _: Answer(500),
    "503 to every watch": lambda asked: Answer(503) if asked.is_watch else None,
    "nothing answers": lambda _: Hang(),
    "answers to writes are lost": every(3, Swallow(), is_write),
    "connections break": every(3, Cut()),
    "reads are answered by pages for people": lambda asked: Page() if asked.method == "GET" else None,
    "watches are too old": lambda asked: Expired() if asked.is_watch else None,
}


@pytest.mark.parametrize("fault", TROUBLES.values(), ids=TROUBLES.keys())
def test_it_catches_up(
    door: Faulty,
    running: Running,
    trails: Trails,
    fault: Callable[[Asked], Fault],
    record_property: Callable[[str, object], None],
) -> None:
    namespace = team(door.plane.api, f"t{abs(hash(id(fault))) % 10**8}")
    before = door.injected
    with Load(door.plane.api, namespace, seconds=2, rate=10) as load:
        time.sleep(0.5)
        with door.trouble(fault, closing=lambda _: True):
            eventually(lambda: door.injected > before, message="there is trouble")
            time.sleep(1.5)
        over = time.monotonic()
        load.all_came()
        judge(trails, load)
    record_property("faults_injected", door.injected - before)
    record_property("seconds_to_the_end", round(time.monotonic() - over, 1))
    assert running.error is None


def test_watches_that_are_closed_all_the_time_lose_nothing(door: Faulty, running: Running, trails: Trails) -> None:
    namespace = team(door.plane.api, "closed")
    over, before = threading.Event(), door.closed.copy()

    def close() -> None:
        while not over.wait(0.2):
            door.close_watches()

    closer = threading.Thread(target=close)
    with Load(door.plane.api, namespace, seconds=3, rate=10) as load:
        closer.start()
        try:
            load.all_came()
            # Who is slow to open its watches again has them closed less often.
            eventually(lambda: door.closed[WORKLOADS] - before[WORKLOADS] > 2, message="watches are closed")
        finally:
            over.set()
            closer.join()
        closed = door.closed - before
        assert closed[WORKLOADS] > 2, closed
        judge(trails, load)
    assert running.error is None


def test_watches_that_are_five_seconds_late_exceed_no_quota(door: Faulty, running: Running, trails: Trails) -> None:
    namespace = team(door.plane.api, "late")
    door.behind = 5.0
    try:
        with Load(door.plane.api, namespace, seconds=3, rate=10) as load:
            load.all_came()
            time.sleep(3)
            eventually(lambda: door.late_by >= 5.0, message="watches are late")
            door.behind = 0.0
            judge(trails, load)
    finally:
        door.behind = 0.0
    assert running.error is None


def test_nothing_is_decided_while_changes_go_unseen(door: Faulty, running: Running) -> None:
    """The quota is taken away while nobody can tell Muster so; its other watches are well."""
    api, namespace = door.plane.api, team(door.plane.api, "unseen")
    api.create(workload(namespace, "first"))
    eventually(lambda: is_true(api.get("Workload", "first", namespace), "Admitted"))

    def fault(asked: Asked) -> Fault:
        return Answer(503) if asked.is_of("clusterqueues") and asked.method == "GET" else None

    said: list[bool] = []
    assert running.controller is not None
    running.controller.behind = said.append
    with door.trouble(fault, closing=lambda path: "clusterqueues" in path):
        eventually(lambda: sample(running.metrics(), "muster_informer_behind_seconds", kind="ClusterQueue") > 0)
        spec = api.get("ClusterQueue", namespace)["spec"]
        spec["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "1"
        api.patch("ClusterQueue", namespace, {"spec": spec})
        api.create(workload(namespace, "second"))
        eventually(lambda: said == [True], message="it says that it is behind")
        assert not is_true(api.get("Workload", "second", namespace), "Admitted")
    eventually(lambda: said == [True, False], seconds=40, message="it says that it has caught up")
    eventually(lambda: condition(api.get("Workload", "second", namespace), "QuotaReserved").get("status") == "False")
    assert sample(running.metrics(), "muster_informer_behind_seconds", kind="ClusterQueue") == 0
    running.controller.behind = lambda _: None


def test_who_may_not_lead_any_more_writes_nothing(door: Faulty, running: Running) -> None:
    """Neither decisions nor anything else; it goes on as soon as it is sure again."""
    api, namespace = door.plane.api, team(door.plane.api, "unsure")
    assert running.controller is not None
    running.controller.leads = lambda: False
    made = api.create(workload(namespace, "waits"))
    time.sleep(2)
    stored = api.get("Workload", "waits", namespace)
    assert stored["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    running.controller.leads = lambda: True
    eventually(lambda: is_true(api.get("Workload", "waits", namespace), "Admitted"))


def test_a_replica_that_is_behind_is_not_ready_but_answers_reviews(door: Faulty, tmp_path: Path) -> None:
    alone = {"leaderElect": False}
    replica = Replica(
        door.plane, tmp_path / "replica", certificates(), kubeconfig=door.kubeconfig, leaderElection=alone
    ).start()
    try:
        replica.wait_ready()

        def fault(asked: Asked) -> Fault:
            return Answer(503) if asked.is_of("nodes") and asked.method == "GET" else None

        with door.trouble(fault, closing=lambda path: "nodes" in path):
            eventually(lambda: replica.readiness() == "controller: not ready\n", seconds=30)
            eventually(lambda: replica.is_ready("readyz/serving"))
            assert replica.is_ready("healthz")
        eventually(replica.is_ready, seconds=40)
    finally:
        replica.end()
