"""Where a search for victims is left out because it would be in vain, it would have been."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from queues.core import tournament
from queues.core.preemption import candidates, classical, fair
from tests.compiled import needs_interpreted_core
from tests.properties.storms import FLAVORS, Climate, Storm
from tests.properties.test_storms import DEEP, FAIR

CLIMATES = {
    "flat, limits, two flavors": Climate(limits=True, flavors=FLAVORS),
    "deep": Climate(cohorts=DEEP),
    "fair, flat": Climate(FAIR),
    "fair, limits, two flavors": Climate(FAIR, limits=True, flavors=FLAVORS),
    "fair, deep": Climate(FAIR, cohorts=DEEP),
}


@needs_interpreted_core
@pytest.mark.parametrize("climate", CLIMATES.values(), ids=CLIMATES.keys())
def test_no_search_is_left_out_that_would_find_somebody(monkeypatch: pytest.MonkeyPatch, climate: Climate) -> None:
    seen: Counter[str] = Counter()
    said: list[bool] = []
    could_be_enough, is_in_vain = candidates._could_be_enough, fair.is_in_vain

    def enough(need: Any, classes: Any) -> bool:
        said.append(not could_be_enough(need, classes))
        return any(classes)

    def in_vain(*args: Any) -> bool:
        said.append(is_in_vain(*args))
        return False

    def checked(search: Any) -> Any:
        def searched(*args: Any) -> Any:
            said.clear()
            found = search(*args)
            assert not (any(said) and found), "somebody would have been found"
            seen["in vain" if any(said) else "found" if found else "not found"] += 1
            return found

        return searched

    monkeypatch.setattr(candidates, "_could_be_enough", enough)
    monkeypatch.setattr(fair, "is_in_vain", in_vain)
    monkeypatch.setattr(classical, "find_targets", checked(classical.find_targets))
    monkeypatch.setattr(fair, "find_targets", checked(fair.find_targets))
    for seed in range(4):
        storm = Storm(seed, climate)
        for _ in range(1000):
            storm.step()
    assert seen["in vain"] > 10 or climate is CLIMATES["fair, deep"], "there, nothing is left out"
    assert seen["found"] > 10


@needs_interpreted_core
@pytest.mark.parametrize("name", ["fair, flat", "fair, limits, two flavors"])
def test_the_line_of_a_flat_tree_finds_whom_the_general_one_finds(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seen: Counter[bool] = Counter()
    find_targets, is_plain = fair.find_targets, fair.is_plain

    def compared(*args: Any) -> Any:
        found = find_targets(*args)
        monkeypatch.setattr(fair, "is_plain", lambda *_: False)
        assert [(one.record.uid, one.reason) for one in found] == [
            (one.record.uid, one.reason) for one in find_targets(*args)
        ]
        monkeypatch.setattr(fair, "is_plain", is_plain)
        seen[bool(found)] += 1
        return found

    monkeypatch.setattr(fair, "find_targets", compared)
    for seed in range(2):
        storm = Storm(seed, CLIMATES[name])
        for _ in range(1000):
            storm.step()
    assert seen[True] > 10
    assert seen[False] > 10


@needs_interpreted_core
@pytest.mark.parametrize("name", ["fair, flat", "fair, limits, two flavors"])
def test_a_flat_tournament_has_the_winners_of_the_general_one(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seen: Counter[int] = Counter()

    class Compared(tournament._Flat):
        def __init__(self, contenders: Any, *args: Any, **rules: Any) -> None:
            super().__init__(contenders, *args, **rules)
            self.left, self.rules = list(contenders), rules

        def __iter__(self) -> Iterator[Any]:
            for winner in super().__iter__():
                root = tournament._node(winner).root
                assert winner is tournament._winner(root, self.left, **self.rules)
                seen[len(self.left)] += 1
                self.left.remove(winner)
                yield winner
            assert not self.left

    monkeypatch.setattr(tournament, "_Flat", Compared)
    for seed in range(4):
        storm = Storm(seed, CLIMATES[name])
        for _ in range(1000):
            storm.step()
    assert seen[2] + seen[3] > 100
