"""What an admission goes on being charged as pods end, and what pods share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from queues.core.demand import charges_of, shape_of
from queues.core.model import Admission, FlavorResource, PodSet, PodSetAssignment, Workload
from queues.core.plan import Admit
from tests.builders import admitted, cluster_queue, workload


def gang(pod_set: PodSet) -> Workload:
    return replace(workload("w").build(), pod_sets=(pod_set,))


@dataclass
class Case:
    count: int
    assigned: int
    reclaimable: int
    want: int
    shared: int = 0


CASES = {
    "all pods are left": Case(count=10, assigned=10, reclaimable=0, want=1000),
    "pods that ended give theirs back": Case(count=10, assigned=10, reclaimable=3, want=700),
    "all ended": Case(count=10, assigned=10, reclaimable=10, want=0),
    "with fewer pods admitted, the first that end give nothing back": Case(
        count=10, assigned=4, reclaimable=6, want=400
    ),
    "with fewer pods admitted, more ends do": Case(count=10, assigned=4, reclaimable=7, want=300),
    "what pods share stays": Case(count=10, assigned=10, reclaimable=3, want=708, shared=8),
    "what pods share stays to the end": Case(count=10, assigned=10, reclaimable=10, want=8, shared=8),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_charge(case: Case) -> None:
    pods = PodSet("main", case.count, {"gpu": 100}, reclaimable=case.reclaimable, shared={"gpu": case.shared})
    usage = {"gpu": 100 * case.assigned + case.shared}
    held = Admission("q", (PodSetAssignment("main", case.assigned, {"gpu": "f"}, usage),), 0.0, admitted=True)
    assert charges_of(gang(pods), held) == ({FlavorResource("f", "gpu"): case.want} if case.want else {})


def test_what_pods_share_is_charged_once_whatever_their_number(play) -> None:
    made = play().queues(cluster_queue("q").gpus(8))
    shared = PodSet("main", 4, {}, shared={"nvidia.com/gpu": 8}, min_count=1)
    made.submit(workload("w").queue("q")._with(pod_sets=(shared,)))
    (decision,) = [each for each in made.run() if isinstance(each, Admit)]
    assert decision.admission.pod_sets[0].usage == {"nvidia.com/gpu": 8}
    assert decision.admission.pod_sets[0].count == 4
    made.submit(workload("x").queue("q").gpus(1))
    assert admitted(made.run()) == []
    made.finish("w")
    assert admitted(made.run()) == ["x"]


def test_what_is_shared_makes_another_shape() -> None:
    assert shape_of(gang(PodSet("main", 1, {}))) != shape_of(gang(PodSet("main", 1, {}, shared={"gpu": 1})))
