"""How past use fades, and what is charged for entering."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import pytest

from queues.core.model import Uid
from queues.core.usage_history import PARTS, WHOLE, History, Level, left_after, level_of, micros
from tests.builders import CPU, GPU

HOUR = micros(3600.0)


@dataclass
class Fading:
    elapsed: float
    left: float


FADING = {
    "at once nothing is forgotten": Fading(0, 1),
    "one half-life leaves one half": Fading(3600, 1 / 2),
    "two leave a quarter": Fading(7200, 1 / 4),
    "half of one leaves the square root of a half": Fading(1800, 0.5**0.5),
    "any time leaves what the formula says": Fading(300, 0.5 ** (300 / 3600)),
    "a clock that went back forgets nothing": Fading(-5, 1),
    "after very long nothing is left": Fading(3600 * 70, 0),
}


@pytest.mark.parametrize("case", FADING.values(), ids=FADING.keys())
def test_fading(case: Fading) -> None:
    assert left_after(micros(case.elapsed), HOUR) / WHOLE == pytest.approx(case.left, abs=1e-9)


@dataclass
class Average:
    """`steps`: seconds since the start, and what is held from then on."""

    steps: list[tuple[float, int]]
    want: float
    half_life: int = HOUR
    before: int = 0


AVERAGES = {
    "who holds nothing used nothing": Average([(0, 0), (3600, 0)], 0),
    "held for one half-life counts half": Average([(0, 8), (3600, 8)], 4),
    "looked at twice as often, it is the same": Average([(0, 8), (1800, 8), (3600, 8)], 4),
    "what was held counts until the change": Average([(0, 8), (3600, 0), (7200, 0)], 2),
    "held for ever counts as what is held": Average([(0, 8), (3600 * 100, 8)], 8),
    "past use fades": Average([(0, 0), (3600, 0)], 8, before=16),
    "a half-life of 0 remembers nothing": Average([(0, 8), (3600, 8)], 0, half_life=0, before=4),
}


@pytest.mark.parametrize("case", AVERAGES.values(), ids=AVERAGES.keys())
def test_average(case: Average) -> None:
    history = History()
    history.restore({GPU: case.before * PARTS}, 0, {})
    for at, held in case.steps:
        history.advance(micros(at), {GPU: held} if held else {}, case.half_life)
    assert history.consumed.get(GPU, 0) / PARTS == pytest.approx(case.want, abs=1e-6)


@dataclass
class Entering:
    """`calls` on a history that was advanced to 0 and is advanced to one half-life later in the end."""

    calls: list[str]
    at_once: float
    later: float
    half_life: int = HOUR
    amounts: dict[str, int] = field(default_factory=lambda: {"a": 8, "b": 2})


ENTERING = {
    "entering counts at once what one interval would": Entering(["enter a"], 4, 4),
    "it does not fade before it is settled": Entering(["enter a", "advance"], 4, 4),
    "entering twice is charged once": Entering(["enter a", "enter a"], 4, 4),
    "everybody is charged": Entering(["enter a", "enter b"], 5, 5),
    "settled, it counts on as part of the past": Entering(["enter a", "settle a"], 4, 4),
    "and fades from then on": Entering(["enter a", "settle a", "advance"], 4, 2),
    "settling twice counts once": Entering(["enter a", "settle a", "settle a", "advance"], 4, 2),
    "dropped, it leaves no trace": Entering(["enter a", "enter b", "drop a"], 1, 1),
    "what was settled cannot be dropped": Entering(["enter a", "settle a", "drop a"], 4, 4),
    "without a half-life nothing is charged": Entering(["enter a"], 0, 0, half_life=0),
}


@pytest.mark.parametrize("case", ENTERING.values(), ids=ENTERING.keys())
def test_entering(case: Entering) -> None:
    """The interval is one half-life, so that half of the request is charged."""
    history = History()
    history.advance(0, {}, case.half_life)
    for call in case.calls:
        match call.split():
            case ["enter", name]:
                history.enter(Uid(name), {GPU: case.amounts[name]}, HOUR, case.half_life)
            case ["settle", name]:
                history.settle(Uid(name))
            case ["drop", name]:
                history.drop(Uid(name))
            case _:
                history.advance(0, {}, case.half_life)
    assert float(history.used({})) == pytest.approx(case.at_once, abs=1e-6)
    history.advance(HOUR, {}, case.half_life)
    assert float(history.used({})) == pytest.approx(case.later, abs=1e-6)


def test_resources_count_by_their_factors() -> None:
    history = History()
    history.restore({CPU: 4000 * PARTS, GPU: 2 * PARTS}, 0, {})
    assert history.used({CPU: Fraction(1, 1000)}) == 6
    assert history.used({CPU: Fraction(0), GPU: Fraction(5, 2)}) == 5


def test_weights() -> None:
    used = Fraction(6)
    assert level_of(used, 2000) == Level(is_last=False, value=Fraction(3))
    assert level_of(used, 500) > level_of(used, 1000) > level_of(used, 2000)
    assert level_of(Fraction(0), 0) > level_of(Fraction(10**9), 1), "weight 0 comes last whatever it used"
