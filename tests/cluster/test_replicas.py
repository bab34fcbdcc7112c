"""Two replicas: one leads, both answer, and whatever takes the leader away, the other goes on with nothing lost.

How long each change of the leader took is recorded as a property of the test; the judgement is made from every state
that the API server stored.
"""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from admission.settings import Integrations, Settings
from admission.webhook.configuration import ByUrl
from tests.cluster.account import NAMESPACE
from tests.cluster.replicas import DURATION, LEASE, RETRY, Balancer, Replica, balancer, certificates
from tests.cluster.steady_load import QUOTA, Admissions, Load, judge, team, workload
from tests.cluster.test_kills import none
from tests.cluster.town import Trails, gates, is_true, pod
from tests.cluster.webhook_process import install_callers, install_crds
from tests.controlplane.cluster import Api, ApiError, ControlPlane, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

#: Of a load of 50 a second.
SECONDS = 5
#: Creates a second while the webhooks are rolled, where the machine can do so many.
CREATES = float(os.environ.get("MUSTER_CREATES", "50"))
CREATORS = 8


class Pair:
    """Two replicas that are ready, with the API server pointed at both of them."""

    def __init__(self, plane: ControlPlane, folder: Path, front: Balancer) -> None:
        self.plane, self.folder, self.front = plane, folder, front
        self.held = certificates()
        install_crds(plane.api)
        self.replicas = [self.another(), self.another()]
        for each in self.replicas:
            each.wait_ready()
        front.backends = [each.port for each in self.replicas]
        settings = Settings(namespace=NAMESPACE, integrations=Integrations(frameworks=("batch/job", "pod")))
        install_callers(plane.api, settings, ByUrl(f"https://127.0.0.1:{front.port}", self.held.authorities))

    def another(self) -> Replica:
        return Replica(self.plane, self.folder / f"replica-{len(list(self.folder.iterdir()))}", self.held).start()

    def holder(self) -> str:
        lease = self.plane.api.find("Lease", LEASE, NAMESPACE)
        return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")

    def leader(self) -> Replica:
        def ask() -> Replica | None:
            holder = self.holder()
            return next((each for each in self.replicas if each.is_holder(holder)), None)

        return eventually(ask, message="one of them leads")

    def standby(self) -> Replica:
        leader = self.leader()
        return next(each for each in self.replicas if each is not leader)

    def replace(self, gone: Replica) -> None:
        """As a Deployment would."""
        self.replicas.remove(gone)
        self.replicas.append(self.another().wait_ready())
        self.front.backends = [each.port for each in self.replicas]


@pytest.fixture(scope="module")
def pair(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with balancer() as front:
        made = Pair(control_plane, Path(tmp_path_factory.mktemp("replicas")), front)
        yield made
        for each in made.replicas:
            each.end()
            assert "Traceback" not in each.log.read_text()


@pytest.fixture(scope="module")
def trails(api: Api, pair: Pair) -> Iterator[Trails]:
    made = Trails(api)
    made.start()
    yield made
    made.stop()


def test_one_leads_and_both_answer(pair: Pair) -> None:
    leader, standby = pair.leader(), pair.standby()
    assert leader is not standby
    for each in (leader, standby):
        assert ssl.get_server_certificate(("127.0.0.1", each.port))
        eventually(lambda each=each: inspected(each), seconds=60, message="inspection answers on every replica")


def inspected(replica: Replica) -> bool:
    with contextlib.suppress(requests.RequestException):
        # Whoever says nothing about themselves is turned away, which is an answer.
        answer = requests.get(f"https://127.0.0.1:{replica.inspection}/", verify=False, timeout=5)
        return answer.status_code in {200, 302, 401, 403}
    return False


@pytest.mark.parametrize(
    ("way", "take_away"),
    [
        pytest.param("kill", lambda leader: leader.end(signal.SIGKILL), id="kill -9"),
        pytest.param("order", lambda leader: leader.end(signal.SIGTERM), id="an orderly end"),
    ],
)
def test_another_takes_over_under_load(
    pair: Pair,
    trails: Trails,
    way: str,
    take_away: Callable[[Replica], None],
    record_property: Callable[[str, object], None],
) -> None:
    namespace = team(pair.plane.api, f"load-{way}")
    leader, standby = pair.leader(), pair.standby()
    admissions = Admissions(pair.plane.api, namespace)
    with Load(pair.plane.api, namespace, seconds=SECONDS, gangs=True) as load:
        time.sleep(1)
        if way == "order":
            pair.front.backends = [standby.port]
            time.sleep(1)  # preStop, in short
        when = time.monotonic()
        take_away(leader)
        pair.front.backends = [standby.port]
        load.all_came()
        eventually(lambda: none(load.left()), seconds=90, every=0.5, message="everything runs to its end")
    admissions.stop()
    judge(trails, load)
    if way == "order":
        assert load.refused == []
    took = admissions.after(when + RETRY) + RETRY if way == "kill" else admissions.pause(when)
    record_property(f"seconds_without_admission_{way}", round(took, 2))
    print(f"{way}: {took:.2f} s without an admission, of a lease of {DURATION} s")
    assert pair.holder()
    assert standby.is_holder(pair.holder())
    pair.replace(leader)


def test_a_leader_that_stood_still_writes_nothing_when_it_goes_on(pair: Pair, trails: Trails) -> None:
    """Its state is old, and the quota that it knows to be free is another's by now."""
    namespace = team(pair.plane.api, "still")
    api, leader = pair.plane.api, pair.leader()
    standby = pair.standby()
    api.create(workload(namespace, "first", QUOTA))
    eventually(lambda: is_true(api.get("Workload", "first", namespace), "Admitted"))
    controller = int(pair.holder().split("_")[1])
    os.kill(controller, signal.SIGSTOP)
    api.delete("Workload", "first", namespace)
    for number in range(4):
        api.create(workload(namespace, f"w{number}", QUOTA))
    eventually(lambda: admitted(api, namespace) == 1, seconds=DURATION + 60)
    assert standby.is_holder(pair.holder())
    os.kill(controller, signal.SIGCONT)
    time.sleep(2)
    assert admitted(api, namespace) == 1
    assert trails.over_quota({"all": QUOTA}, {namespace: "all"}) == []
    assert standby.is_holder(pair.holder())
    eventually(leader.is_ready, seconds=60, message="who lost the Lease stands by again")


def admitted(api: Api, namespace: str) -> int:
    return sum(is_true(each, "Admitted") for each in api.list("Workload", namespace))


def test_no_create_fails_while_the_webhooks_are_rolled(
    pair: Pair, record_property: Callable[[str, object], None]
) -> None:
    """As the Deployment says: the new one is ready first, the old one is left out, stays for a while, and ends."""
    namespace = team(pair.plane.api, "rolled")
    over, made, failed = threading.Event(), [0] * CREATORS, []

    def create(number: int) -> None:
        began, count = time.monotonic(), 0
        while not over.is_set():
            # One in ten is kept: what is judged here is the webhook, which is asked about all of them alike.
            body = pod(namespace, f"p-{number}-{count}", 1, queue="default")
            try:
                assert gates(pair.plane.api.create(body, dry_run=count % 10 != 0))
                made[number] += 1
            except (ApiError, AssertionError, requests.RequestException) as error:
                failed.append(str(error))
            count += 1
            time.sleep(max(0.0, began + count * CREATORS / CREATES - time.monotonic()))

    creators = [threading.Thread(target=create, args=(number,)) for number in range(CREATORS)]
    began = time.monotonic()
    for each in creators:
        each.start()
    for old in list(pair.replicas):
        new = pair.another().wait_ready()
        pair.replicas.append(new)
        pair.replicas.remove(old)
        pair.front.backends = [each.port for each in pair.replicas]
        time.sleep(1)  # preStop, in short
        old.end(signal.SIGTERM)
    over.set()
    for each in creators:
        each.join()
    rate = sum(made) / (time.monotonic() - began)
    record_property("creates_a_second_while_rolled", round(rate))
    print(f"{sum(made)} creates, {rate:.0f} a second, while both replicas were replaced")
    assert failed == []
    assert sum(made) > 100
