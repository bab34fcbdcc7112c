"""What breaks around Muster, and in it, while gangs run: kills, an API server that restarts, an etcd that stands still.

Whatever happens: nothing is lost, no gate or finalizer is left, no quota is exceeded and nobody is admitted twice.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from tests.cluster import town as towns
from tests.cluster.town import FINALIZER, GROUP, Town, gates, is_true, job, pod
from tests.controlplane.cluster import ApiError, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CONTROL_PLANE = {"controllers": towns.CONTROLLERS, "scheduler": True, "kwok": True}


def again_and_again(act: Callable[[], Any]) -> Any:
    """As a client that keeps trying: whatever is refused for a moment is asked again."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return act()
        except ApiError as error:
            if error.status == 409 and "already exists" in error.message:
                return None
            if time.monotonic() > deadline:
                raise
        except requests.RequestException:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def gangs(town: Town, teams: list[str], count: int, first: int = 0) -> list[tuple[str, str, str]]:
    """Creates so many gangs, half of them Jobs and half groups of pods; (form, namespace, name) of each."""
    made = []
    for i in range(first, first + count):
        namespace, name = teams[i % len(teams)], f"gang-{i}"
        if i % 2:
            body = job(namespace, name, 2, 2, queue="default", run_for="300ms")
            again_and_again(lambda body=body: town.api.create(body))
            made.append(("Job", namespace, name))
        else:
            create_group(town, namespace, name)
            made.append(("Group", namespace, name))
    return made


def create_group(town: Town, namespace: str, name: str) -> None:
    for k in range(2):
        one = pod(namespace, f"{name}-{k}", 2, queue="default", group=name, total=2, run_for="300ms")
        again_and_again(lambda one=one: town.api.create(one))


def replace_stopped(town: Town, names: list[str]) -> None:
    """As whoever owns a group does: pods that were deleted because others reclaimed their quota are made again."""
    for form, _, place in (name.partition(" ") for name in names):
        namespace, name = place.split("/")
        if (
            form == "Group"
            and len([one for one in town.pods(namespace) if one["metadata"]["name"].startswith(f"{name}-")]) < 2
        ):
            create_group(town, namespace, name)


def unfinished(town: Town, made: list[tuple[str, str, str]]) -> list[str]:
    found = []
    jobs = {(j["metadata"]["namespace"], j["metadata"]["name"]): j for j in town.api.list("Job")}
    pods = {(p["metadata"]["namespace"], p["metadata"]["name"]): p for p in town.api.list("Pod")}
    for form, namespace, name in made:
        if form == "Job":
            done = is_true(jobs.get((namespace, name)), "Complete")
        else:
            members = [pods.get((namespace, f"{name}-{k}")) for k in range(2)]
            done = all(p is not None and p["status"].get("phase") == "Succeeded" for p in members)
        if not done:
            found.append(f"{form} {namespace}/{name}")
    return found


def assert_all_finish(town: Town, made: list[tuple[str, str, str]], patience: float = 120) -> None:
    """Waits as long as gangs go on finishing, for a machine may be slow; fails once none did for so many seconds."""
    # An etcd that stood still may have to find itself for a moment.
    left, since = again_and_again(lambda: unfinished(town, made)), time.monotonic()
    while left:
        time.sleep(0.2)
        now = again_and_again(lambda: unfinished(town, made))
        again_and_again(lambda now=now: replace_stopped(town, now))
        if len(now) < len(left):
            left, since = now, time.monotonic()
        assert time.monotonic() - since < patience, f"nothing finished any more:\n{described(town, left)}"


def described(town: Town, names: list[str]) -> str:
    """Every stored state of the gangs that did not end, and the last words of Muster."""
    lines = []
    for name in names:
        lines.append(name)
        namespace, gang = name.split()[1].split("/")
        for kind in ("Job", "Workload", "Pod"):
            for trail in town.trails.of(kind, namespace):
                if gang not in {trail.name, trail.first["metadata"].get("labels", {}).get(GROUP)} | named(trail.first):
                    continue
                lines.append(f"  {kind} {trail.name}")
                lines += [
                    f"    {seen.revision} {'gone' if seen.obj is None else summary(seen.obj)}" for seen in trail.states
                ]
    lines += town.muster.log.read_text(errors="replace").splitlines()[-20:]
    return "\n".join(lines)


def named(obj: dict[str, Any]) -> set[str]:
    return {owner["name"] for owner in obj["metadata"].get("ownerReferences") or []}


def summary(obj: dict[str, Any]) -> str:
    status, metadata = obj.get("status", {}), obj["metadata"]
    conditions = [f"{c['type']}={c['status']}({c.get('reason', '')})" for c in status.get("conditions") or []]
    words = [status.get("phase"), obj["spec"].get("nodeName"), obj["spec"].get("schedulingGates")]
    words += [metadata.get("deletionTimestamp"), metadata.get("finalizers"), status.get("reason")]
    return " ".join(str(word) for word in [*words, *conditions] if word)


def is_settled(town: Town, teams: list[str]) -> bool:
    """Every Workload finished; no gate and no finalizer of Muster's left on a pod that has ended."""
    for team in teams:
        for workload in town.workloads(team):
            assert is_true(workload, "Finished"), workload["metadata"]["name"]
            assert not workload["metadata"].get("finalizers"), workload["metadata"]
        for one in town.pods(team):
            assert not gates(one), one["metadata"]["name"]
            assert FINALIZER not in one["metadata"].get("finalizers", []), one["metadata"]["name"]
    return True


def assert_in_order(town: Town, teams: list[str], limit: int) -> None:
    for team in teams:
        assert town.trails.bound_early(team) == []
        assert town.trails.admitted_twice(team) == []
    assert town.trails.over_quota({"all": limit}, dict.fromkeys(teams, "all")) == []


@contextlib.contextmanager
def meanwhile(act: Callable[[random.Random], None]) -> Iterator[None]:
    """Does something again and again until the block ends."""
    over = threading.Event()
    dice = random.Random(7)

    def repeat() -> None:
        while not over.is_set():
            act(dice)

    worker = threading.Thread(target=repeat)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()


def test_kills_of_the_controller_at_any_moment_lose_nothing(town: Town) -> None:
    teams = [town.team(8, cohort="killed"), town.team(8, cohort="killed")]

    def kill(dice: random.Random) -> None:
        time.sleep(dice.uniform(0.3, 4))
        town.muster.kill("controller")

    with meanwhile(kill):
        made = gangs(town, teams, 100)
        time.sleep(15)
    assert_all_finish(town, made)
    eventually(lambda: is_settled(town, teams), seconds=30)
    assert_in_order(town, teams, 16)
    town.raze(*teams)


def test_kills_of_the_webhook_let_nothing_through_ungated(town: Town) -> None:
    teams = [town.team(16)]

    def kill(dice: random.Random) -> None:
        town.steady()  # on a slow machine it would else be killed again before it ever answers
        time.sleep(dice.uniform(1, 3))
        town.muster.kill("webhook")

    made = []
    with meanwhile(kill):
        until = time.monotonic() + 20
        while time.monotonic() < until or len(made) <= 10:
            made += gangs(town, teams, 2, first=len(made))
    town.steady()
    assert all(
        "kueue.x-k8s.io/admission" in gates(t.first)
        for t in town.trails.of("Pod", teams[0])
        if "-" in t.name and not t.first["metadata"].get("ownerReferences")
    )
    assert_all_finish(town, made)
    eventually(lambda: is_settled(town, teams), seconds=30)
    assert_in_order(town, teams, 16)
    town.raze(*teams)


def test_an_api_server_that_restarts_and_an_etcd_that_stands_still_lose_nothing(town: Town) -> None:
    teams = [town.team(8, cohort="unsteady"), town.team(8, cohort="unsteady")]
    made: list[tuple[str, str, str]] = []
    worker = threading.Thread(target=lambda: made.extend(gangs(town, teams, 40)))
    worker.start()
    time.sleep(2)
    town.plane.restart("kube-apiserver")
    time.sleep(3)
    town.plane.kill("etcd", signal.SIGSTOP, wait=False)
    time.sleep(5)
    town.plane.kill("etcd", signal.SIGCONT, wait=False)
    worker.join()
    assert len(made) == 40
    assert_all_finish(town, made)
    eventually(lambda: is_settled(town, teams), seconds=30)
    assert_in_order(town, teams, 16)
    town.raze(*teams)
