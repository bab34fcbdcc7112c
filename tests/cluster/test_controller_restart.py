"""The controller is killed between any two of its writes, again and again: nothing is lost, doubled or half done."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import town
from tests.cluster.controller_rig import Watched, cluster_queue, flavor, install_crds, local_queue, workload
from tests.cluster.killable import Killable
from tests.controlplane.cluster import Api, ControlPlane, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

QUOTA = 6


@pytest.fixture
def controller(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Killable]:
    install_crds(control_plane)
    made = Killable(control_plane, tmp_path)
    yield made
    made.kill()


def job(name: str, queue: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


def pod(name: str, group: str, total: int, queue: str) -> dict[str, Any]:
    """As the webhook would have made it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {
                "kueue.x-k8s.io/queue-name": queue,
                "kueue.x-k8s.io/managed": "true",
                "kueue.x-k8s.io/pod-group-name": group,
            },
            "annotations": {
                "kueue.x-k8s.io/pod-group-total-count": str(total),
                "kueue.x-k8s.io/role-hash": "0badcafe",
            },
            "finalizers": ["kueue.x-k8s.io/managed"],
        },
        "spec": {
            "restartPolicy": "Never",
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
    }


def is_true(obj: dict[str, Any], type_: str) -> bool:
    return any(
        each["type"] == type_ and each["status"] == "True" for each in obj.get("status", {}).get("conditions") or []
    )


def held(api: Api) -> int:
    return sum(town.held(obj, "cpu") for obj in api.list("Workload", "default"))


def test_kills_between_any_two_writes(api: Api, controller: Killable) -> None:
    """Jobs, gangs of pods and Workloads come, run and end while the controller is killed again and again."""
    rng = random.Random(7)
    watched = Watched(api)
    api.create(flavor())
    api.create(cluster_queue("q", QUOTA))
    api.create(local_queue("q", "q"))
    for i in range(5):
        api.create(workload(f"w{i}", "q"))
        api.create(job(f"j{i}", "q"))
        for member in range(3):
            api.create(pod(f"g{i}-{member}", f"g{i}", 3, "q"))
    deadline = time.monotonic() + 150
    kills = 0
    while time.monotonic() < deadline and not all_done(api):
        controller.start()
        # Start-up takes a second or so; the kill comes while the first writes are under way, or some time later.
        end = time.monotonic() + rng.uniform(1.0, 3.0)
        while time.monotonic() < end:
            assert held(api) <= QUOTA
            if kills >= 2:  # until then what runs goes on, or a fast machine is done before the third kill
                finish_what_runs(api, watched)
            time.sleep(0.05)
        if kills < 15:
            controller.kill()
            kills += 1
        else:
            eventually(lambda: finish_what_runs(api, watched) or all_done(api), seconds=120, every=0.2)
    assert all_done(api), [(w["metadata"]["name"], w.get("status")) for w in api.list("Workload", "default")]
    assert kills >= 3, "it has to be killed for this to say anything"


def finish_what_runs(api: Api, watched: Watched) -> bool:
    """Ends Workloads and Jobs that may run, and gangs all of whose pods were let go: never part of one."""
    for obj in api.list("Workload", "default"):
        if obj["metadata"]["name"].startswith("w") and is_true(obj, "Admitted") and not is_true(obj, "Finished"):
            watched.finish(obj["metadata"]["name"])
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for obj in api.list("Job", "default"):
        if obj["spec"]["suspend"] or is_true(obj, "Complete"):
            continue
        conditions = [
            {"type": kind, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": now}
            for kind in ("SuccessCriteriaMet", "Complete")
        ]
        status = {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": conditions}
        api.patch("Job", obj["metadata"]["name"], {"status": status}, "default", sub="status")
    groups: dict[str, list[dict[str, Any]]] = {}
    for obj in api.list("Pod", "default"):
        groups.setdefault(obj["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"], []).append(obj)
    for members in groups.values():
        if all(not each["spec"].get("schedulingGates") for each in members):
            for each in members:
                if each.get("status", {}).get("phase") != "Succeeded":
                    api.patch(
                        "Pod", each["metadata"]["name"], {"status": {"phase": "Succeeded"}}, "default", sub="status"
                    )
    return False


def all_done(api: Api) -> bool:
    """Everybody ran to the end: fifteen Workloads, all finished, and nobody holds anything."""
    found = api.list("Workload", "default")
    return len(found) == 15 and all(is_true(obj, "Finished") for obj in found) and held(api) == 0


def test_an_api_server_that_restarts_is_waited_for(
    control_plane: ControlPlane, api: Api, controller: Killable, record_property: Callable[[str, object], None]
) -> None:
    """What was admitted before stays so, and what comes after the restart is admitted as well."""
    watched = Watched(api)
    api.create(flavor("again"))
    api.create(cluster_queue("again", 2, flavors="again"))
    api.create(local_queue("again", "again"))
    controller.start()
    api.create(workload("before", "again"))
    watched.admitted("before", seconds=60)
    version = watched.version("before")
    control_plane.restart("kube-apiserver")
    answers = time.monotonic()
    # It may say that it is ready a moment before it serves what has a CRD.
    eventually(lambda: api.create(workload("after", "again")))
    watched.admitted("after", seconds=60)
    record_property("seconds_after_the_api_server_answers", round(time.monotonic() - answers, 1))
    print(f"admitted {time.monotonic() - answers:.1f} s after the API server answered again")
    assert controller.process is not None
    assert controller.process.poll() is None, "it lived through it"
    assert watched.version("before") == version
