"""Which Kubernetes Events are left unsaid, and how they are counted when they are said again."""

from __future__ import annotations

from typing import cast

import pytest

from admission.controllers.events import Memory, Pace, Recorder
from admission.jobs.effects import Ref, Severity, Tell
from admission.kube.client import Client

KEY = ("Workload", "uid", "Pending", "no room")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(clock: Clock) -> Recorder:
    return Recorder(cast("Client", None), Pace(waiting=2), clock)


def tell(message: str = "m", *, name: str = "w", severity: Severity = Severity.NORMAL) -> Tell:
    return Tell(Ref("Workload", "default", name, f"uid-{name}"), "Reason", message, severity)


def waiting(recorder: Recorder) -> list[tuple[str, str, int]]:
    return [(event.ref.name, event.message, count) for event, count in recorder._waiting.values()]


def test_the_same_is_said_once_while_it_waits(recorder: Recorder) -> None:
    for _ in range(3):
        recorder.tell(tell())
    assert waiting(recorder) == [("w", "m", 3)]


def test_other_words_and_other_objects_are_news(recorder: Recorder) -> None:
    recorder.tell(tell("a"))
    recorder.tell(tell("b"))
    assert [message for _, message, _ in waiting(recorder)] == ["a", "b"]


def test_what_was_said_is_left_unsaid_for_a_while_and_counted(recorder: Recorder, clock: Clock) -> None:
    recorder.tell(tell())
    recorder._waiting.clear()
    clock.now += 30
    recorder.tell(tell())
    recorder.tell(tell())
    assert waiting(recorder) == []
    clock.now += 31
    recorder.tell(tell())
    assert waiting(recorder) == [("w", "m", 3)]


def test_when_there_are_too_many_the_oldest_ordinary_one_goes_and_may_be_said_again(recorder: Recorder) -> None:
    recorder.tell(tell("warning", severity=Severity.WARNING))
    recorder.tell(tell("a"))
    recorder.tell(tell("b"))
    assert [message for _, message, _ in waiting(recorder)] == ["warning", "b"]
    assert recorder.dropped == 1
    recorder._waiting.clear()
    recorder.tell(tell("a"))
    assert [message for _, message, _ in waiting(recorder)] == ["a"]


def test_the_memory_is_short() -> None:
    memory = Memory(60, 2)
    for number in range(5):
        assert memory.is_news((*KEY[:3], str(number)), 0)
    assert len(memory._said) == 2
    assert memory.is_news((*KEY[:3], "0"), 1), "it was forgotten"
    assert not memory.is_news((*KEY[:3], "4"), 1)
    assert memory.is_news(KEY, 61)
    assert len(memory._said) <= 2
