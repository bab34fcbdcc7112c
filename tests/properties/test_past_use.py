"""Past use under random loads and random times: never negative, gone in the end, always the same."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from queues.core import events
from queues.core.cycle import decide
from queues.core.model import ClusterQueueName, LocalQueue, ObjectKey, Uid
from queues.core.plan import Hold
from queues.core.policy import AdmissionFairSharing, FairSharing, Policy
from queues.core.state import State
from queues.core.usage_history import PARTS, History, micros
from tests.builders import ANY, GPU, LOWER, NAMESPACE, Play, cluster_queue, flavor, workload
from tests.compiled import needs_interpreted_core
from tests.unit.core.invariants import check_invariants

HALF_LIVES = st.sampled_from([0.0, 0.5, 60.0, 3600.0, 604_800.0])
HAPPENS = ("arrive",) * 4 + ("run",) * 4 + ("end", "end", "release", "refuse", "weight", "gone")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "enter", "settle", "drop"]),
        st.integers(0, 5),
        st.integers(0, 64),
        st.floats(-10, 10_000, allow_nan=False),
    ),
    max_size=40,
)


@given(steps=STEPS, half_life=HALF_LIVES)
def test_a_history_is_never_negative_and_decays_to_zero(steps, half_life):
    history, other, now, most = History(), History(), 0, 0
    for kind, who, amount, later in steps:
        now += micros(later)
        for each in (history, other):
            match kind:
                case "hold":
                    each.advance(now, {GPU: amount} if amount else {}, micros(half_life))
                case "enter":
                    each.enter(Uid(str(who)), {GPU: amount}, micros(300.0), micros(half_life))
                case "settle":
                    each.settle(Uid(str(who)))
                case _:
                    each.drop(Uid(str(who)))
        most += 2 * amount
        for amounts in (history.consumed, history.pending, history.due, *history.entries.values()):
            assert all(value > 0 for value in amounts.values()) or amounts in history.entries.values()
        assert sum(history.due.values()) <= sum(history.pending.values())
        assert 0 <= history.used({}) <= most
    assert (history.consumed, history.pending, history.updated_at) == (other.consumed, other.pending, other.updated_at)
    for who in range(6):
        history.settle(Uid(str(who)))
    history.advance(now, {}, micros(half_life))
    history.advance(max(now, history.updated_at) + 200 * micros(max(half_life, 1.0)), {}, micros(half_life))
    assert history.is_empty
    assert history.used({}) == 0


@given(
    held=st.integers(0, 1000),
    before=st.integers(0, 1000),
    times=st.lists(st.integers(0, 10_000), max_size=6),
    half_life=st.sampled_from([60.0, 3600.0]),
)
def test_looking_at_it_changes_nothing(held, before, times, half_life):
    once, often = History(), History()
    for history in (once, often):
        history.restore({GPU: before * PARTS}, 0, {GPU: held})
    for at in sorted(times):
        often.advance(micros(at), {GPU: held}, micros(half_life))
    for history in (once, often):
        history.advance(micros(10_000), {GPU: held}, micros(half_life))
    assert abs(once.used({}) - often.used({})) < Fraction(1, 10**4)
    low, high = sorted([before, held])
    assert low - Fraction(1, 10**4) <= once.used({}) <= high


class Recorded(State):
    """Writes down what it is told, and when it decides."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[events.Event | float] = []

    def apply(self, event: events.Event) -> None:
        self.history.append(event)
        super().apply(event)

    def get_ready(self, now: float, policy: Policy) -> None:
        self.history.append(now)
        super().get_ready(now, policy)


class Load:
    """Random LocalQueues of two ClusterQueues that lend to one another, and random work; checked after every step."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        rules = AdmissionFairSharing(self.draw(HALF_LIVES), 300.0, across_cohorts=self.draw(st.booleans()))
        sharing = self.draw(st.sampled_from([None, FairSharing()]))
        self.play = Play(
            Policy(admission_fair_sharing=rules, fair_sharing=sharing),
            after_each=lambda each: check_invariants(each.state),
        )
        self.state = self.play.state = Recorded()
        self.play.flavors(flavor())
        self.arrived = 0
        for name in "xy":
            made = cluster_queue(name).cohort("c").gpus(self.draw(st.integers(0, 4))).within(LOWER).reclaim(ANY)
            made = made.strict() if self.draw(st.booleans()) else made
            made = made.by_past_use() if self.draw(st.booleans()) else made
            self.play.apply(events.ClusterQueueChanged(made.build()))
        for number in range(4):
            self.local_queue(number)

    def local_queue(self, number: int) -> None:
        key, queue = ObjectKey(NAMESPACE, f"l{number}"), ClusterQueueName("xy"[number % 2])
        weight = self.draw(st.sampled_from([0, 500, 1000, 1000]))
        self.play.apply(events.LocalQueueChanged(LocalQueue(key, queue, fair_weight=weight)))

    def step(self) -> None:
        play, draw = self.play, self.draw
        play.now += draw(st.sampled_from([0.0, 0.25, 1.0, 299.0, 5000.0]))
        match draw(
            st.sampled_from(["arrive"] * 4 + ["run"] * 4 + ["end", "end", "release", "refuse", "weight", "gone"])
        ):
            case "arrive":
                self.arrived += 1
                made = (
                    workload(f"w{self.arrived:02}").queue(f"l{draw(st.integers(0, 3))}").gpus(draw(st.integers(1, 3)))
                )
                play.submit(made.priority(draw(st.integers(0, 2))).at(play.now))
            case "run":
                play.run()
            case "end" if play.objects:
                play.finish(draw(st.sampled_from(sorted(play.objects))))
            case "release":
                play.release(*[name for name, each in play.objects.items() if each.evicted])
            case "refuse":
                for decision in play.decide():
                    play.apply(events.WriteRefused(decision.uid))
            case "weight":
                self.local_queue(draw(st.integers(0, 3)))
            case "gone":
                play.apply(events.LocalQueueGone(ObjectKey(NAMESPACE, f"l{draw(st.integers(0, 3))}")))
            case _:
                pass


def used(state: State) -> dict[ObjectKey, Fraction]:
    return {key: home.used for key, home in state.books.local_queues.items()}


@needs_interpreted_core
@given(data=st.data())
def test_promises_hold_where_past_use_counts(data):
    load = Load(data)
    play, state = load.play, load.state
    for _ in range(data.draw(st.integers(5, 30))):
        load.step()
        assert all(amount >= 0 for amount in used(state).values())
    last = play.run()
    before = used(state)

    again = State()
    plan = None
    for entry in state.history[: -len([d for d in last if not isinstance(d, Hold)]) or None]:
        if isinstance(entry, float):
            plan = decide(again, entry, play.policy)
        else:
            again.apply(entry)
    assert plan == last, "the same events gave another plan"
    assert used(again) == before, "the same events gave another past"

    play.finish(*list(play.objects))
    for _ in range(4):
        play.now += 200 * 604_800.0
        play.decide()
    assert not any(used(state).values()), "something is remembered for ever"
    assert state.next_wakeup() is None
