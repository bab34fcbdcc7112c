"""A run of work during which the controller is killed at random: none is lost, none starts twice, nothing stays held.

Workloads, Jobs and gangs of pods of two priorities come all the time, take turns on a small quota and preempt one
another, while Kubernetes' own controllers and fake kubelets run them. The judgement is made from every state that the
API server stored, and never from what Muster says. `MUSTER_KILLS` and `MUSTER_KILL_WORKLOADS` set the size.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
from requests import RequestException

from tests.cluster import town
from tests.cluster.controller_rig import install_crds
from tests.cluster.killable import Killable
from tests.cluster.town import GPU, GROUP, PRIORITY, Trail, Trails, gates, is_true, kueue, spans
from tests.controlplane.cluster import KUEUE, Api, ApiError, ControlPlane, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CONTROL_PLANE = {"controllers": town.CONTROLLERS, "scheduler": True, "kwok": True}

KILLS = int(os.environ.get("MUSTER_KILLS", "8"))
WORKLOADS = int(os.environ.get("MUSTER_KILL_WORKLOADS", "48"))
SEED = int(os.environ.get("MUSTER_KILL_SEED", "1"))
#: GPUs that may be held at once: about an eighth of the work, so that most of it waits.
QUOTA = max(8, WORKLOADS // 8)
PLACE = "kills"
RUN_FOR = "1s"


@pytest.fixture
def controller(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Killable]:
    install_crds(control_plane)
    made = Killable(control_plane, tmp_path)
    yield made
    made.kill()


# ------------------------------------------------------------------ what comes


def plain_workload(i: int, rng: random.Random) -> list[dict[str, Any]]:
    gpus = rng.choice([1, 1, 2, 3])
    pod_set = {"name": "main", "count": gpus, "template": {"spec": town.template(1)["spec"]}}
    return [kueue("Workload", f"w{i}", {"queueName": "q", "podSets": [pod_set], "priority": rng.choice([0, 5])}, PLACE)]


def job(i: int, rng: random.Random) -> list[dict[str, Any]]:
    """As the webhook would have made it."""
    made = town.job(
        PLACE, f"j{i}", rng.choice([1, 1, 2]), queue="q", priority=rng.choice(["low", "low", "high"]), run_for=RUN_FOR
    )
    made["spec"]["suspend"] = True
    return [made]


def gang(i: int, rng: random.Random) -> list[dict[str, Any]]:
    """Of the priority that nobody preempts: nobody would replace its pods."""
    total = rng.choice([2, 3])
    pods = []
    for member in range(total):
        made = town.pod(
            PLACE,
            f"g{i}-{member}",
            queue="q",
            group=f"g{i}",
            total=total,
            labels={"kueue.x-k8s.io/managed": "true", PRIORITY: "high"},
            annotations={"kueue.x-k8s.io/role-hash": "0badcafe"},
            run_for=RUN_FOR,
        )
        made["metadata"]["finalizers"] = [town.FINALIZER]
        made["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
        pods.append(made)
    return pods


def prepare(api: Api) -> None:
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}})
    for i in range(4):
        api.create(town.node(f"host-{i}", "rack", gpus_=QUOTA))
    api.create(kueue("ResourceFlavor", "h100", {"nodeLabels": {"example.com/gpu": "h100"}}))
    quotas = [{"name": GPU, "nominalQuota": str(QUOTA)}, {"name": "cpu", "nominalQuota": "10k"}]
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": [GPU, "cpu"], "flavors": [{"name": "h100", "resources": quotas}]}],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    api.create(kueue("ClusterQueue", "q", spec))
    api.create(kueue("LocalQueue", "q", {"clusterQueue": "q"}, PLACE))
    for name, value in (("low", 10), ("high", 1000)):
        api.create({"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value})


class Work:
    """Comes little by little, and ends plain Workloads some time after they were admitted."""

    def __init__(self, api: Api, seconds: float) -> None:
        self._api = api
        self._pause = seconds / WORKLOADS
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._come, self._end)]
        self.error: Exception | None = None
        self.all_came = threading.Event()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _come(self) -> None:
        rng = random.Random(SEED)
        try:
            for i in range(WORKLOADS):
                for obj in (plain_workload, job, job, gang)[i % 4](i, rng):
                    self._api.create(obj)
                if self._stop.wait(self._pause):
                    return
        except Exception as error:  # noqa: BLE001  # the test is told
            self.error = error
        self.all_came.set()

    def _end(self) -> None:
        seen: set[str] = set()
        while not self._stop.wait(max(0.5, WORKLOADS / 1000)):
            try:
                found = plain(self._api)
            except (ApiError, RequestException):
                continue  # an API server that has too much to do
            admitted = [w for w in found if is_true(w, "Admitted") and not is_true(w, "Finished")]
            for each in admitted:
                if each["metadata"]["uid"] in seen:
                    with suppress(ApiError, RequestException):  # evicted meanwhile: it has not ended
                        finish(self._api, each)
            seen = {each["metadata"]["uid"] for each in admitted}


def plain(api: Api) -> list[dict[str, Any]]:
    return [each for each in api.list("Workload", PLACE) if not each["metadata"].get("ownerReferences")]


def finish(api: Api, workload: dict[str, Any]) -> None:
    """Only if it is as it was seen."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    done = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": now}
    meta = workload["metadata"]
    body = {
        "metadata": {"resourceVersion": meta["resourceVersion"]},
        "status": {"conditions": [*workload["status"]["conditions"], done]},
    }
    api.patch("Workload", meta["name"], body, PLACE, sub="status")


# ------------------------------------------------------------------ what is asked of it


def unfinished(api: Api) -> list[str]:
    """What has not run to its end; gangs and Jobs by their Workloads as well as by themselves."""
    workloads = api.list("Workload", PLACE)
    left = [each["metadata"]["name"] for each in workloads if not is_true(each, "Finished")]
    left += [each["metadata"]["name"] for each in api.list("Job", PLACE) if not is_true(each, "Complete")]
    pods = [each for each in api.list("Pod", PLACE) if GROUP in each["metadata"]["labels"]]
    left += [each["metadata"]["name"] for each in pods if each["status"].get("phase") != "Succeeded"]
    if len(workloads) < WORKLOADS:
        left.append(f"{WORKLOADS - len(workloads)} without a Workload")
    return left


def still_held(api: Api) -> list[str]:
    """Gates and finalizers of Muster on what has ended."""
    held = [each["metadata"]["name"] for each in api.list("Pod", PLACE) if gates(each) & town.GATES]
    for kind in ("Pod", "Job", "Workload"):
        for each in api.list(kind, PLACE):
            ours = [one for one in each["metadata"].get("finalizers") or [] if one.startswith("kueue.x-k8s.io/")]
            held += [f"{kind} {each['metadata']['name']}: {one}" for one in ours]
    return held


def none(found: list[str]) -> bool:
    """For questions that are asked until there is nothing left to name."""
    assert not found, f"{len(found)} left: {sorted(found)[:12]}"
    return True


def started_without_end(trail: Trail) -> str:
    """A Workload that was admitted more often than it was evicted and once, or after it had finished."""
    admitted = spans(trail)
    stats = trail.last.get("status", {}).get("schedulingStats", {}).get("evictions") or []
    evictions = sum(each["count"] for each in stats)
    finished = trail.first_that(lambda obj: is_true(obj, "Finished"))
    if len(admitted) > evictions + 1:
        return f"{trail.name}: admitted {len(admitted)} times and evicted {evictions} times"
    if finished is not None and any(start > finished for start, _ in admitted):
        return f"{trail.name}: admitted after it had finished"
    return ""


def twice(trails: Trails) -> list[str]:
    """Jobs and gangs with more than one Workload that finished."""
    ended = [each for each in trails.of("Workload", PLACE) if is_true(each.last, "Finished")]
    jobs = Counter(owner for each in ended for owner in town.owners(each.last))
    return [owner for owner, count in jobs.items() if count > 1]


@pytest.fixture
def trails(api: Api) -> Iterator[Trails]:
    made = Trails(api)
    made.start()
    yield made
    made.stop()


def test_kills_lose_nothing(
    api: Api, controller: Killable, trails: Trails, record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(SEED)
    prepare(api)
    lives = [rng.uniform(1.5, 3.5) for _ in range(KILLS)]
    with Work(api, sum(lives) * 0.8) as work:
        for life in lives:
            controller.start()
            time.sleep(life)
            assert controller.process is not None
            assert controller.process.poll() is None, "it lives until it is killed"
            controller.kill()
        controller.start()
        started = time.monotonic()
        assert work.all_came.wait(60 + WORKLOADS / 10)
        assert work.error is None, work.error
        eventually(lambda: none(unfinished(api)), seconds=60 + WORKLOADS * 0.5, every=1)
        record_property("seconds_until_all_ran", round(time.monotonic() - started, 1))
        print(f"everything had run {time.monotonic() - started:.1f} s after the last of {KILLS} kills")
        eventually(lambda: none(still_held(api)), seconds=60, every=0.5)

    found = trails.of("Workload", PLACE)
    assert [line for each in found if (line := started_without_end(each))] == []
    assert trails.admitted_twice(PLACE) == []
    assert twice(trails) == []
    assert trails.bound_early(PLACE) == []
    assert trails.over_quota({"all": QUOTA}, {PLACE: "all"}) == []

    # Nothing keeps what is deleted.
    for kind in ("Job", "Pod", "Workload"):
        for each in api.list(kind, PLACE):
            api.delete(kind, each["metadata"]["name"], PLACE)
    for kind in ("ClusterQueue", "ResourceFlavor"):
        for each in api.list(kind):
            api.delete(kind, each["metadata"]["name"])
    for kind in ("Pod", "Job", "Workload", "ClusterQueue", "ResourceFlavor"):
        eventually(lambda kind=kind: not api.list(kind), seconds=90 + WORKLOADS * 0.05, every=0.5, message=f"no {kind}")
