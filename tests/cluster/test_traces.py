"""A gang's whole life as one trace, as a collector gets it from the real processes; and how much these log."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from admission.commands import levels
from admission.telemetry import trace_id
from tests.cluster import town as towns
from tests.cluster.town import Town, is_bound, job, pod
from tests.controlplane.cluster import ControlPlane, eventually

pytestmark = pytest.mark.cluster

CONTROL_PLANE = {"controllers": towns.CONTROLLERS, "scheduler": True, "kwok": True}


class Collector:
    """Takes OTLP over HTTP on loopback; spans by the id of their trace."""

    def __init__(self) -> None:
        self.traces: dict[int, list[Any]] = {}
        self.services: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/traces":
                    collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200 if self.path == "/v1/traces" else 404)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            self.services |= {
                each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
            }
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.traces.setdefault(int.from_bytes(span.trace_id), []).append(span)

    def whole(self, uid: str) -> list[Any]:
        """The spans of a gang once its first span, which ends last, is there."""

        def ask() -> list[Any]:
            found = list(self.traces.get(trace_id(uid), ()))
            return found if any(not span.parent_span_id for span in found) else []

        return eventually(ask, message="the trace ends")


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    one = Collector()
    yield one
    one.server.shutdown()
    one.server.server_close()


@pytest.fixture(scope="module")
def town(control_plane: ControlPlane, collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    tracing = {"endpoint": collector.address, "exportInterval": "200ms"}
    folder = Path(tmp_path_factory.mktemp("muster"))
    with towns.town(control_plane, folder, {"muster": {"tracing": tracing}}) as one:
        yield one
        one.all_razed()
        assert one.muster.complaints() == []


def tree(spans: list[Any]) -> dict[str, str]:
    """The parent of each, by name."""
    by_id = {span.span_id: span.name for span in spans}
    return {span.name: by_id[span.parent_span_id] if span.parent_span_id else "" for span in spans}


def said(span: Any) -> dict[str, Any]:
    values = {each.key: each.value for each in span.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}


PARENTS = {
    "gang": "",
    "create": "gang",
    "gate": "create",
    "gather": "gang",
    "wait": "gang",
    "decide": "gang",
    "write": "gang",
    "release": "gang",
    "bind": "gang",
}


def test_a_group_of_pods_is_one_trace_from_the_first_create_to_bound_pods(town: Town, collector: Collector) -> None:
    team = town.team(8)
    for i in range(4):
        town.api.create(pod(team, f"g-{i}", 2, queue="default", group="g", total=4))
    eventually(lambda: len([p for p in town.pods(team) if is_bound(p)]) == 4)
    [workload] = town.workloads(team)
    spans = collector.whole(workload["metadata"]["uid"])
    assert tree(spans) == PARENTS
    assert len(spans) == len(PARENTS) + 3, "a gate for each pod"
    by_name = {span.name: span for span in spans}
    ordered = ["gather", "wait", "decide", "write", "release", "bind"]
    for before, after in itertools.pairwise(ordered):
        assert by_name[before].start_time_unix_nano <= by_name[after].start_time_unix_nano
    root = by_name["gang"]
    for span in spans:
        assert root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= root.end_time_unix_nano
    assert {said(span)["muster.object"] for span in spans if span.name == "gate"} == {f"g-{i}" for i in range(4)}
    assert said(root) | {
        "k8s.namespace.name": team, "muster.workload.name": "g", "muster.cluster_queue": team, "muster.pods": 4,
        "muster.outcome": "bound",
    } == said(root)  # fmt: skip
    assert "nvidia.com/gpu=h100" in said(by_name["decide"])["muster.flavors"]
    assert collector.services == {"muster"}
    town.raze(team)


def test_a_job_that_has_to_wait_says_why_in_its_trace(town: Town, collector: Collector) -> None:
    team = town.team(4)
    town.api.create(pod(team, "first", 4))
    eventually(lambda: is_bound(town.api.get("Pod", "first", team)))
    town.api.create(job(team, "train", 2, 2))
    waiting = eventually(lambda: next((w for w in town.workloads(team) if "train" in w["metadata"]["name"]), None))
    name = waiting["metadata"]["name"]
    eventually(
        lambda: towns.condition(town.api.get("Workload", name, team), "QuotaReserved")["reason"] == "WaitingForQuota"
    )
    town.api.delete("Pod", "first", team)
    spans = collector.whole(waiting["metadata"]["uid"])
    assert tree(spans) == PARENTS
    by_name = {span.name: span for span in spans}
    assert "WaitingForQuota" in {mark.name for mark in by_name["wait"].events}
    assert said(by_name["gang"])["muster.owner.name"] == "train"
    assert said(by_name["bind"])["muster.pods.bound"] == 2
    town.raze(team)


def below(process: int) -> list[int]:
    """All processes that it has started, and these."""
    found = []
    for child in levels._children(process):
        found += [child, *below(child)]
    return found


def logged(town: Town) -> list[dict[str, Any]]:
    text = town.muster.log.read_text(errors="replace")
    lines = text[: text.rfind("\n") + 1].splitlines()  # the last one may be half written
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_every_process_can_be_told_to_log_more_and_less(town: Town) -> None:
    assert town.muster.process is not None
    top = town.muster.process.pid
    processes = [top, *below(top)]
    assert len(processes) >= 5, "the webhook has a master and a worker"
    assert all(levels.is_listening(each, levels.number("debug")) for each in processes)
    team, probes, number = town.team(8), town.team(40), itertools.count()

    def in_effect(level: str) -> bool:
        """Of a pod of its own: the level goes from process to process."""
        name = f"{level}-{next(number)}"
        town.api.create(pod(probes, name, 1))
        eventually(lambda: [line for line in told("admitted", probes) if name in line["workload"]])
        details = [line for line in told("created", probes) if name in line["workload"]]
        return bool(details) == (level == "debug")

    def told(what: str, of: str = team) -> list[dict[str, Any]]:
        mine = [line for line in logged(town) if str(line.get("workload", "")).startswith(f"{of}/")]
        return [line for line in mine if line["msg"] == what]

    for level in ("debug", "info"):
        levels.run(level, top)
        eventually(lambda level=level: in_effect(level))
        town.api.create(pod(team, level, 1))
        eventually(lambda level=level: is_bound(town.api.get("Pod", level, team)))
    assert set(processes) <= {top, *below(top)}, "nobody has ended"
    admitted = eventually(lambda: found if len(found := told("admitted")) == 2 else None)
    created = [line["workload"] for line in told("created")]
    assert len(created) == 1, "a detail, told only while all details were asked for"
    assert admitted[0]["workload"] == created[0]
    assert (admitted[0]["level"], admitted[0]["process"], admitted[0]["clusterQueue"]) == ("info", "controller", team)
    town.raze(team, probes)
