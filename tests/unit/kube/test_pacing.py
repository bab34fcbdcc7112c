"""When a request may leave."""

from __future__ import annotations

from admission.kube.pacing import Pace


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_leaves_at_once_and_the_rest_at_the_rate() -> None:
    clock = Clock()
    pace = Pace(10.0, 3, clock)
    assert [pace.wait() for _ in range(3)] == [0.0, 0.0, 0.0]
    assert [round(pace.wait(), 6) for _ in range(3)] == [0.1, 0.2, 0.3]


def test_tokens_come_back_with_time_up_to_the_burst() -> None:
    clock = Clock()
    pace = Pace(10.0, 3, clock)
    for _ in range(4):
        pace.wait()
    clock.now += 0.1
    assert round(pace.wait(), 6) == 0.1
    clock.now += 3600
    assert [pace.wait() for _ in range(3)] == [0.0, 0.0, 0.0]
    assert pace.wait() > 0
