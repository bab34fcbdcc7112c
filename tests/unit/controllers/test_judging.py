"""A bug in the core: nothing is decided on a state in doubt, nobody but its cause has to wait, and it is told."""

from __future__ import annotations

import pytest

from admission.controllers import judging
from admission.controllers.judging import Judge
from admission.controllers.metrics import Metrics
from queues.core import cycle, events
from queues.core.cycle import Misjudged
from queues.core.model import Timestamp
from queues.core.nomination import Entry, nominate
from queues.core.plan import Admit, Hold, Plan
from queues.core.policy import Policy
from queues.core.records import WorkloadRecord
from queues.core.state import State
from tests.unit.controllers.builders import NOW, settings, workload
from tests.unit.controllers.test_desk import CPU, Office


class Bench:
    """An office with a judge; `broken` are the workloads that the core cannot judge or hear of."""

    def __init__(self) -> None:
        self.office = Office()
        self.metrics = Metrics(settings())
        self.said: list[bool] = []
        self.judge = Judge(self.office.cluster, self.office.desk, self.metrics, self.said.append)
        self.broken: set[str] = set()
        self.always = False

    @property
    def faults(self) -> float:
        samples = [sample for family in self.metrics.registry.collect() for sample in family.samples]
        return sum(sample.value for sample in samples if sample.name == "muster_core_faults_total")

    def plan(self, now: float = NOW) -> list[str] | None:
        self.office.desk.workloads(now)
        plan = self.judge.plan(now, Policy())
        return None if plan is None else _words(plan)

    def carry_out(self) -> None:
        self.office.desk.workloads(NOW)
        self.office.desk.carry_out(self.judge.plan(NOW, Policy()) or (), NOW)


def _words(plan: Plan) -> list[str]:
    """Who is admitted."""
    return [each.uid for each in plan if isinstance(each, Admit)]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench()

    def judged(state: State, record: WorkloadRecord, *rest: object) -> Entry:
        if record.uid in bench.broken:
            raise ZeroDivisionError(record.uid)
        return nominate(state, record, *rest)  # type: ignore[arg-type]

    def decided(state: State, now: Timestamp, policy: Policy) -> Plan:
        if bench.always:
            raise ArithmeticError("nobody knows where")
        return cycle.decide(state, now, policy)

    monkeypatch.setattr(cycle, "nominate", judged)
    monkeypatch.setattr(judging, "decide", decided)
    return bench


def test_others_start_while_the_workload_that_breaks_the_core_is_kept_out(bench: Bench) -> None:
    bench.broken = {"uid-bad"}
    bench.office.see(workload("bad", count=1).spec(priority=9).obj, workload("good", count=1).obj)
    assert bench.plan() == ["uid-good"]
    assert bench.faults == 1
    assert bench.said == [], "it was mended within a moment"
    told = bench.office.cluster.told["uid-bad"]
    assert told.held is not None
    assert "ZeroDivisionError" in told.held


def test_what_broke_the_core_is_judged_again_after_a_minute(bench: Bench) -> None:
    bench.broken = {"uid-bad"}
    bad = workload("bad", count=1).obj
    bench.office.see(bad)
    assert bench.plan() == []
    bench.broken = set()
    assert bench.plan(NOW + 59) == []
    bench.office.cluster.dirty.workloads.update({("team", "bad"): None})  # type: ignore[dict-item]  # a key is a pair
    assert bench.plan(NOW + 61) == ["uid-bad"]


def test_an_admission_that_is_being_written_counts_after_the_core_began_anew(bench: Bench) -> None:
    """The queue has 2 cpu. What was promised to the first is not given to another one."""
    bench.office.see(workload("first").obj)
    bench.carry_out()
    assert bench.office.decisions() == ["Admit uid-first"]
    bench.broken = {"uid-bad"}
    bench.office.see(workload("bad", count=1).spec(priority=9).obj, workload("late", count=1).obj)
    assert bench.plan() == []
    assert bench.faults == 1
    queue = bench.office.cluster.state.books.queues["cq"]  # type: ignore[index]
    assert queue.reserved == {CPU: 2000}
    assert "uid-first" in queue.holding


def test_what_is_held_counts_after_the_core_began_anew(bench: Bench) -> None:
    bench.broken = {"uid-bad"}
    bench.office.see(workload("held").admitted().obj, workload("bad", count=1).spec(priority=9).obj)
    bench.office.see(workload("late", count=1).obj)
    assert bench.plan() == []
    queue = bench.office.cluster.state.books.queues["cq"]  # type: ignore[index]
    assert queue.reserved == {CPU: 2000}


def test_a_core_that_cannot_be_mended_decides_nothing_and_says_so(bench: Bench) -> None:
    bench.always = True
    bench.office.see(workload("a").obj)
    assert bench.plan() is None
    assert bench.said == [True]
    assert bench.judge.is_in_doubt
    assert bench.judge.mends_at is not None
    assert bench.judge.mends_at > NOW
    faults = bench.faults
    assert bench.plan(NOW + 0.1) is None
    assert bench.faults == faults, "not before it is time"
    bench.always = False
    assert bench.plan(bench.judge.mends_at) == ["uid-a"]
    assert bench.said == [True, False]
    assert not bench.judge.is_in_doubt


def test_while_the_core_is_in_doubt_it_hears_nothing_and_nothing_is_read(bench: Bench) -> None:
    bench.always = True
    assert bench.plan() is None
    state = bench.office.cluster.state
    bench.office.cluster.apply(events.WorkloadGone("uid-a"))  # type: ignore[arg-type]
    looked: list[float] = []
    bench.judge.look(looked.append, NOW)
    assert looked == []
    assert bench.office.cluster.state is state


def test_news_that_breaks_the_core_is_kept_out_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    real = State.apply

    def apply(self: State, event: events.Event) -> None:
        if isinstance(event, events.WorkloadChanged) and event.workload.uid == "uid-bad" and not event.workload.held:
            raise KeyError("half done")
        real(self, event)

    monkeypatch.setattr(State, "apply", apply)
    bench.office.see(workload("bad", count=1).obj, workload("good", count=1).obj)
    assert bench.plan() == ["uid-good"]
    assert bench.faults == 1


def test_a_fault_while_reading_is_noticed(bench: Bench) -> None:
    def look(now: float) -> None:
        raise LookupError(now)

    bench.judge.look(look, NOW)
    assert bench.judge.is_in_doubt
    assert bench.judge.mend(NOW)
    assert bench.faults == 1


def test_a_fault_that_was_only_noticed_is_mended_at_once(bench: Bench) -> None:
    """Nothing else may happen for a while that would bring up the next turn."""
    bench.office.cluster.doubted("adding up", ValueError("one too many"), None)
    assert bench.judge.mends_at == 0.0


def test_a_fault_in_every_turn_does_not_make_the_state_anew_in_every_turn(bench: Bench) -> None:
    """Reading fails each time, deciding does not."""

    def look(now: float) -> None:
        raise LookupError(now)

    bench.office.see(workload("a", count=1).obj)
    turns = [NOW + turn / 10 for turn in range(600)]
    decided = 0
    for now in turns:
        decided += bench.plan(now) is not None
        bench.judge.look(look, now)
    assert bench.faults < 25
    assert decided >= bench.faults - 1, "each time that it is mended there is a decision"
    assert bench.plan(NOW + 120) is not None
    bench.judge.look(look, NOW + 120)
    assert bench.plan(NOW + 120) is not None, "after a quiet time it is mended at once again"


def test_the_core_says_whom_it_judged(bench: Bench) -> None:
    bench.broken = {"uid-bad"}
    bench.office.see(workload("bad").obj)
    bench.office.desk.workloads(NOW)
    with pytest.raises(Misjudged, match="uid-bad"):
        cycle.decide(bench.office.cluster.state, NOW, Policy())


def test_hold_reasons_survive(bench: Bench) -> None:
    """Who waited for quota waits for it again."""
    bench.office.see(workload("held").admitted().obj, workload("late", count=1).obj)
    assert bench.plan() == []
    bench.broken = {"uid-bad"}
    bench.office.see(workload("bad", count=1).spec(priority=9).obj)
    bench.office.desk.workloads(NOW)
    plan = bench.judge.plan(NOW, Policy())
    assert plan is not None
    assert "uid-late" in [each.uid for each in plan if isinstance(each, Hold)]
