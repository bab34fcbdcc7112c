"""Past use on a real API server: it decides the order, is told in statuses and metrics, and survives a restart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admission.api.quantities import parse
from admission.commands.memory import Memory
from admission.settings import Settings
from admission.settings.configuration import (
    AdmissionFairSharing,
    FairSharing,
    Journal,
    LocalQueueMetrics,
    PreemptionStrategy,
)
from admission.settings.durations import Seconds
from tests.cluster.controller_rig import (
    SETTINGS,
    Running,
    Watched,
    cluster_queue,
    flavor,
    install_crds,
    local_queue,
    running,
    workload,
)
from tests.cluster.faulty import sample
from tests.controlplane.cluster import ControlPlane, eventually

pytestmark = pytest.mark.cluster

SCOPE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
USAGE = AdmissionFairSharing(usage_half_life_time=Seconds(3600), usage_sampling_interval=Seconds(1))


@dataclass
class Town:
    plane: ControlPlane
    settings: Settings

    @contextlib.contextmanager
    def controller(self) -> Iterator[Running]:
        """With a journal that is written to its end."""
        memory = Memory(self.settings)
        memory.open()
        try:
            with running(self.plane, self.settings, memory) as controller:
                yield controller
        finally:
            eventually(lambda: memory.health().lag == 0.0, message="the journal is written")
            memory.close(5)


@pytest.fixture
def town(control_plane: ControlPlane, tmp_path: Path) -> Town:
    install_crds(control_plane)
    muster = msgspec.structs.replace(SETTINGS.muster, journal=Journal(url=f"sqlite:///{tmp_path}/journal"))
    metrics = msgspec.structs.replace(SETTINGS.metrics, local_queue_metrics=LocalQueueMetrics(enable=True))
    settings = msgspec.structs.replace(SETTINGS, admission_fair_sharing=USAGE, muster=muster, metrics=metrics)
    return Town(control_plane, settings)


def told(watched: Watched, name: str) -> dict[str, Any]:
    sharing = watched.status("LocalQueue", name).get("fairSharing") or {}
    return dict(sharing.get("admissionFairSharingStatus") or {})


def consumed(watched: Watched, name: str) -> Fraction:
    return parse((told(watched, name).get("consumedResources") or {}).get("cpu", "0"))


def test_who_used_less_goes_first_also_after_a_restart(town: Town) -> None:
    api, watched = town.plane.api, Watched(town.plane.api)
    api.create(flavor("f1"))
    api.create(cluster_queue("cq", 4, flavors="f1", **SCOPE))
    api.create(local_queue("user", "cq"))
    api.create(local_queue("other", "cq"))
    with town.controller() as running_now:
        api.create(workload("big", "user", cpu=4))
        watched.admitted("big")
        api.create(workload("next", "user", priority=9))
        api.create(workload("last", "other", cpu=4))
        eventually(lambda: consumed(watched, "user") > 0, message="use is told")
        labels = {"name": "user", "namespace": "default", "cluster_queue": "cq", "replica_role": "standalone"}
        assert sample(running_now.metrics(), "kueue_local_queue_admission_fair_sharing_usage", **labels) > 0
    before, at = consumed(watched, "user"), told(watched, "user")["lastUpdate"]
    assert Fraction(1, 10**4) < before < 4
    # The journal alone has to do: the status is lost.
    api.patch("LocalQueue", "user", {"status": {"fairSharing": None}}, "default", sub="status")
    with town.controller():
        eventually(lambda: told(watched, "user").get("lastUpdate", "") > at, message="it goes on")
        assert consumed(watched, "user") >= before
        watched.finish("big")
        watched.admitted("last")
        assert not watched.is_true("next", "Admitted")
        watched.finish("last")
        watched.admitted("next")
    # And the status alone as well.
    (path := Path(town.settings.muster.journal.url.removeprefix("sqlite:///"))).unlink()
    assert not path.exists()
    before = consumed(watched, "user")
    with town.controller():
        at = told(watched, "user")["lastUpdate"]
        eventually(lambda: told(watched, "user")["lastUpdate"] > at, message="it goes on")
        assert consumed(watched, "user") > before * Fraction(99, 100)


def test_a_status_is_written_when_it_is_sampled_and_no_more_often(town: Town) -> None:
    api, watched = town.plane.api, Watched(town.plane.api)
    api.create(flavor("f2"))
    api.create(cluster_queue("quiet", 4, flavors="f2", **SCOPE))
    api.create(local_queue("quiet", "quiet"))
    usage = msgspec.structs.replace(USAGE, usage_sampling_interval=Seconds(600))
    town.settings = msgspec.structs.replace(town.settings, admission_fair_sharing=usage)
    with town.controller():
        api.create(workload("w1", "quiet"))
        watched.admitted("w1")
        first = eventually(lambda: told(watched, "quiet"), message="the first use is told")
        api.create(workload("w2", "quiet"))
        watched.admitted("w2")
        eventually(lambda: watched.status("LocalQueue", "quiet").get("admittedWorkloads") == 2)
        assert told(watched, "quiet") == first


def test_shares_of_queues_and_cohorts_are_told(town: Town) -> None:
    api, watched = town.plane.api, Watched(town.plane.api)
    api.create(flavor("f3"))
    api.create({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "root"}, "spec": {}})
    left = {"parentName": "root"}
    api.create({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "left"}, "spec": left})
    api.create(cluster_queue("borrower", 1, cohort="left", flavors="f3"))
    api.create(cluster_queue("zero", 0, cohort="left", flavors="f3", fairSharing={"weight": 0}))
    api.create(cluster_queue("lender", 7, cohort="root", flavors="f3"))
    api.create(local_queue("borrower", "borrower"))
    api.create(local_queue("zero", "zero"))
    strategies = (PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)
    town.settings = msgspec.structs.replace(town.settings, fair_sharing=FairSharing(preemption_strategies=strategies))

    def share(kind: str, name: str) -> int | None:
        found: int | None = (watched.status(kind, name).get("fairSharing") or {}).get("weightedShare")
        return found

    def shares() -> list[int | None]:
        queues = [share("ClusterQueue", name) for name in ("borrower", "zero", "lender")]
        return [*queues, share("Cohort", "left"), share("Cohort", "root")]

    with town.controller() as running_now:
        eventually(lambda: shares() == [0, 0, 0, 0, 0], message="nobody borrows")
        api.create(workload("b", "borrower", cpu=3))
        api.create(workload("z", "zero"))
        watched.admitted("b", "z")
        # 2 of 8 and 1 of 8 cores are borrowed, together 3 from above `left`.
        eventually(lambda: shares() == [250, 2**63 - 1, 0, 375, 0], message="shares are told")
        labels = {"cohort": "left", "replica_role": "standalone"}
        assert sample(running_now.metrics(), "kueue_cohort_weighted_share", **labels) == 375
        api.patch("ClusterQueue", "lender", {"spec": {"cohortName": "elsewhere"}})
        eventually(lambda: share("ClusterQueue", "borrower") == 2000, message="less can be lent")
        watched.finish("b")
        watched.finish("z")
        eventually(lambda: shares() == [0, 0, 0, 0, 0], message="nobody borrows any more")
