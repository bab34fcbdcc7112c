"""Timers keep the earliest time for each key and hand keys out once."""

from __future__ import annotations

from admission.controllers.wakes import Wakes


def test_the_earliest_time_counts_and_each_key_comes_once() -> None:
    wakes = Wakes()
    wakes.at("a", 30)
    wakes.at("b", 20)
    wakes.at("a", 10)
    wakes.at("a", 40)
    assert wakes.next() == 10
    assert wakes.due(25) == ["a", "b"]
    assert wakes.due(100) == []
    assert wakes.next() is None


def test_a_cancelled_key_does_not_come() -> None:
    wakes = Wakes()
    wakes.at("a", 10)
    wakes.at("b", 20)
    wakes.cancel("a")
    assert wakes.next() == 20
    assert wakes.due(30) == ["b"]


def test_a_key_may_be_set_again_after_it_came() -> None:
    wakes = Wakes()
    wakes.at("a", 10)
    wakes.due(10)
    wakes.at("a", 50)
    assert wakes.next() == 50


def test_what_nobody_waits_for_is_not_kept_until_its_time_comes() -> None:
    wakes = Wakes()
    wakes.at("late", 5_000_000)
    for number in range(10_000):
        wakes.at(number, 1_000_000 + number)
        wakes.cancel(number)
    assert len(wakes) < 2_000
    assert wakes.due(10_000_000) == ["late"]
