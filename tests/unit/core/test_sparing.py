"""Searching for victims in few trials finds what trying one by one finds."""

from __future__ import annotations

import random

import pytest

from queues.core.preemption import sparing


class Trial:
    """It fits when from each of the wanted sets everybody is gone, or from one of them with `any_of`."""

    def __init__(self, count: int, wanted: list[set[int]], *, any_of: bool) -> None:
        self.victims = list(range(count))
        self.gone = set(self.victims)
        self.wanted = wanted
        self.join = any if any_of else all
        self.trials = 0

    def fits(self) -> bool:
        self.trials += 1
        return self.join(each <= self.gone for each in self.wanted)

    def one_by_one(self) -> list[int]:
        gone = set(self.victims)
        for victim in reversed(self.victims[:-1]):
            if self.join(each <= gone - {victim} for each in self.wanted):
                gone.discard(victim)
        return sorted(gone)


@pytest.mark.parametrize("seed", range(60))
def test_as_one_by_one(seed):
    chance = random.Random(seed)
    count = chance.randint(1, 40)
    wanted = [{count - 1, *chance.sample(range(count), chance.randint(0, min(6, count)))} for _ in range(3)]
    trial = Trial(count, wanted, any_of=seed % 2 == 0)
    want = trial.one_by_one()
    assert sparing.needed(trial.victims, trial.gone.discard, trial.gone.add, trial.fits) == want
    assert trial.gone == set(want), "those taken out are those given back"


@pytest.mark.parametrize("known", [0, 3])
def test_the_shortest_run_that_is_enough(known):
    for enough in range(known + 1, 12):
        trial = Trial(12, [set(range(enough))], any_of=False)
        assert sparing.shortest(trial.victims, known, trial.gone.discard, trial.gone.add, trial.fits) == enough
        assert trial.gone == set(range(enough))


def test_of_many_few_are_tried():
    trial = Trial(5000, [{17, 900, 2500, 4999}], any_of=False)
    assert sparing.needed(trial.victims, trial.gone.discard, trial.gone.add, trial.fits) == [17, 900, 2500, 4999]
    assert trial.trials < 120
