"""Past use between the core and the objects: what a status says is what is restored from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import msgspec
import pytest

from admission.api import kueue
from admission.api.meta import ObjectMeta
from admission.api.quantities import format_parts, parts
from admission.controllers import observe
from admission.controllers.loop import policy
from admission.controllers.status import local_queue_status
from admission.settings import AdmissionFairSharing, Settings
from admission.settings.configuration import Muster, PastUse
from admission.settings.durations import Seconds
from queues.core import events
from queues.core.cycle import decide
from queues.core.model import UNLIMITED, ObjectKey, ResourceName
from queues.core.policy import AdmissionFairSharing as Rules
from queues.core.state import State

CPU, GPU = ResourceName("cpu"), ResourceName("nvidia.com/gpu")
KEY = ObjectKey("ns", "lq")
USAGE = AdmissionFairSharing(
    usage_half_life_time=Seconds(3600), usage_sampling_interval=Seconds(60), resource_weights={"cpu": 0.1}
)


@dataclass
class Text:
    resource: str
    amount: Fraction
    text: str


TEXTS = {
    "whole devices": Text(GPU, Fraction(3), "3"),
    "parts of a device": Text(GPU, Fraction(1, 8), "125m"),
    "cpu is counted in thousandths": Text(CPU, Fraction(2500), "2500m"),
    "and in parts of these": Text(CPU, Fraction(1, 4), "250u"),
    "down to the billionth, rounded down": Text(GPU, Fraction(2, 3), "666666666n"),
    "less than that is nothing": Text(GPU, Fraction(1, 10**10), "0"),
    "bytes": Text("memory", Fraction(2**40), str(2**40)),
}


@pytest.mark.parametrize("case", TEXTS.values(), ids=TEXTS.keys())
def test_amounts_as_text(case: Text) -> None:
    text = format_parts(case.resource, case.amount)
    assert text == case.text
    assert 0 <= case.amount - parts(case.resource, text) < Fraction(1, 10**6)


def test_the_policy_has_what_is_configured() -> None:
    assert policy(Settings()).admission_fair_sharing is None
    rules = Rules(3600, 60, ((CPU, Fraction(1, 10)),))
    assert policy(Settings(admission_fair_sharing=USAGE)).admission_fair_sharing == rules
    wide = Settings(admission_fair_sharing=USAGE, muster=Muster(admission_fair_sharing=PastUse(across_cohorts=True)))
    assert policy(wide).admission_fair_sharing == replace(rules, across_cohorts=True)


def queue(mode: str | None) -> kueue.ClusterQueue:
    scope = None if mode is None else kueue.AdmissionScope(admission_mode=mode)
    return kueue.ClusterQueue(metadata=ObjectMeta(name="cq"), spec=kueue.ClusterQueueSpec(admission_scope=scope))


def local(weight: str = "1", status: kueue.LocalQueueStatus | None = None) -> kueue.LocalQueue:
    sharing = kueue.FairSharing(weight=weight)
    return kueue.LocalQueue(
        metadata=ObjectMeta(name="lq", namespace="ns"),
        spec=kueue.LocalQueueSpec(cluster_queue="cq", fair_sharing=sharing),
        status=status or kueue.LocalQueueStatus(),
    )


@pytest.mark.parametrize(
    ("mode", "want"), [(None, False), ("NoAdmissionFairSharing", False), ("UsageBasedAdmissionFairSharing", True)]
)
def test_the_scope_of_a_queue(mode: str | None, want: bool) -> None:
    assert observe.cluster_queue(queue(mode)).usage_based is want


@pytest.mark.parametrize(("weight", "thousandths"), [("1", 1000), ("500m", 500), ("0", 0), ("nonsense", 1000)])
def test_the_weight_of_a_local_queue(weight: str, thousandths: int) -> None:
    assert observe.local_queue(local(weight)).fair_weight == thousandths


def remembering(obj: kueue.LocalQueue, *told: events.Event, now: float = 1000.0) -> State:
    state = State()
    state.apply(events.ClusterQueueChanged(observe.cluster_queue(queue("UsageBasedAdmissionFairSharing"))))
    state.apply(events.LocalQueueChanged(observe.local_queue(obj)))
    for event in told:
        state.apply(event)
    decide(state, now, policy(Settings(admission_fair_sharing=USAGE)))
    return state


def test_a_status_says_what_is_restored_from_it() -> None:
    consumed = {CPU: Fraction(2500), GPU: Fraction(1, 3)}
    state = remembering(local(), events.UsageRestored(KEY, consumed, 990.0))
    status = local_queue_status(local(), None, state, 1000.0)
    assert msgspec.to_builtins(status)["fairSharing"] == {
        "weightedShare": 1,
        "admissionFairSharingStatus": {
            "consumedResources": {"cpu": "2500m", "nvidia.com/gpu": "333333333n"},
            "lastUpdate": "1970-01-01T00:16:30Z",
        },
    }
    restored = observe.past_use(local(status=status))
    assert restored is not None
    assert restored.at == 990.0
    again = remembering(local(status=status), restored)
    assert local_queue_status(local(status=status), None, again, 1000.0).fair_sharing == status.fair_sharing


def test_weight_0_is_the_largest_share() -> None:
    state = remembering(local("0"), events.UsageRestored(KEY, {GPU: Fraction(1)}, 990.0))
    status = local_queue_status(local("0"), None, state, 1000.0)
    assert status.fair_sharing is not None
    assert status.fair_sharing.weighted_share == UNLIMITED


def test_nothing_is_told_where_nothing_is_remembered() -> None:
    assert local_queue_status(local(), None, remembering(local()), 1000.0).fair_sharing is None
    assert observe.past_use(local()) is None


def test_what_is_no_quantity_counts_nothing() -> None:
    assert observe.consumed({"cpu": "many", "nvidia.com/gpu": "-2", "memory": "1Ki"}) == {GPU: 0, "memory": 1024}
