"""Ids, samples and stamps of traces, the buffer before a collector, and what traces cost where they are off."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest

from admission import telemetry
from admission.settings import Seconds, SettingsError, Tracing, parse
from admission.telemetry import Collector, Span, endpoint, is_sampled, read_stamp, span_id, stamp, trace_id

UID = "8d6f0f4e-93a1-4f6c-9d5e-2f1f7f0c6a11"


def span(key: str = "gang") -> Span:
    return Span(UID, key, key, 1.0, 2.0)


def test_the_trace_of_a_workload_is_its_uid() -> None:
    assert trace_id(UID) == UUID(UID).int
    assert trace_id("not-a-uuid") == trace_id("not-a-uuid") != 0


def test_ids_are_those_of_any_other_process() -> None:
    assert span_id(UID, "gang") == span_id(UID, "gang") < 2**64
    assert len({span_id(UID, key) for key in ("gang", "gang/wait", "again 1/wait")}) == 3


@pytest.mark.parametrize(("ratio", "least", "most"), [(0.0, 0, 0), (0.25, 180, 320), (1.0, 1000, 1000)])
def test_about_the_share_that_is_asked_for_is_sampled(ratio: float, least: int, most: int) -> None:
    uids = [str(UUID(int=uuid4().int)) for _ in range(1000)]
    assert least <= sum(is_sampled(uid, ratio) for uid in uids) <= most


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        ("https://collector/otlp/v1/traces", "https://collector/otlp/v1/traces"),
    ],
)
def test_where_traces_go(given: str, want: str) -> None:
    assert endpoint(given) == want


def test_a_stamp_is_read_as_it_was_written() -> None:
    began = time.time()
    found = read_stamp(stamp(began), began)
    assert found is not None
    assert found[0] == pytest.approx(began, abs=1e-5)
    assert found[0] <= found[1]


@pytest.mark.parametrize("text", ["", "x", "1+", "+1", "nan+0", "1000+nan", "inf+0", "1000+-1", "1000+1e9", "2000+0"])
def test_a_stamp_that_somebody_else_wrote_is_none(text: str) -> None:
    assert read_stamp(text, 1000.0) is None


class Receiver:
    """Takes batches; fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.spans: list[Span] = []
        self.got = threading.Event()

    def send(self, batch: Sequence[Span]) -> bool:
        if self.failures:
            self.failures -= 1
            if self.failures % 2:
                raise OSError("no route")
            self.got.set()
            return False
        self.spans += batch
        self.got.set()
        return True


def test_what_waits_is_sent_at_the_end() -> None:
    receiver = Receiver()
    collector = Collector(Tracing(export_interval=Seconds(3600)), receiver.send)
    for key in ("a", "b"):
        collector.put(span(key))
    collector.close(10)
    assert [each.key for each in receiver.spans] == ["a", "b"]
    assert collector.dropped == 0


def test_a_collector_that_is_away_costs_spans_and_nothing_else() -> None:
    receiver = Receiver(failures=2)
    collector = Collector(Tracing(export_interval=Seconds(0.001)), receiver.send)
    collector.put(span("lost"))
    while receiver.failures:
        collector.put(span("lost as well"))
        time.sleep(0.001)
    receiver.got.wait(10)
    collector.put(span("kept"))
    collector.close(10)
    assert receiver.spans[-1].key == "kept"
    assert collector.dropped >= 2


def test_the_buffer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_CAPACITY", 3)
    collector = Collector(Tracing(export_interval=Seconds(3600)), Receiver().send)
    for _ in range(5):
        collector.put(span())
    assert collector.dropped == 2
    collector.close(10)


#: Everything that runs, and a collector that nobody has asked for.
OFF = """
import sys
import admission.commands.controller, admission.commands.webhook, admission.commands.run, admission.commands.inspection
import admission.controllers.loop, admission.webhook.app, admission.webhook.server, admission.telemetry
from admission.controllers.loop import Controller
from admission.settings import parse
controller = Controller(None, parse("apiVersion: config.kueue.x-k8s.io/v1beta2\\nkind: Configuration"))
assert controller._traces is None
found = sorted(name for name in sys.modules if name.startswith("opentelemetry"))
assert not found, found
"""


def test_where_traces_are_off_nothing_of_opentelemetry_is_loaded() -> None:
    subprocess.run([sys.executable, "-c", OFF], check=True)


@pytest.mark.parametrize(
    ("tracing", "problem"),
    [
        ("{endpont: x}", "muster.tracing.endpont: unknown field; did you mean endpoint?"),
        ("{endpoint: collector}", "muster.tracing.endpoint: 'collector' is no address"),
        ("{endpoint: 'http://'}", "muster.tracing.endpoint: 'http://' is no address"),
        ("{endpoint: 'http://c:port'}", "muster.tracing.endpoint: 'http://c:port' is no address"),
        ("{sampleRatio: 2}", "muster.tracing.sampleRatio: 2 is no share"),
        ("{exportInterval: 0s}", "muster.tracing.exportInterval: has to be above 0s"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(tracing: str, problem: str) -> None:
    document = f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmuster: {{tracing: {tracing}}}"
    with pytest.raises(SettingsError, match=problem.replace("?", r"\?")):
        parse(document)
