"""What becomes of effects on a real API server: done, overtaken, gone, refused, put off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from admission.controllers.act import Actor, Answer, Errand, Fate, Gone, Report, Written
from admission.controllers.tables import WRITTEN
from admission.jobs.effects import Create, Delete, Effect, Patch, PatchKind, Ref, Tell
from admission.kube.client import Client, connect
from tests.cluster.controller_rig import install_crds, workload
from tests.controlplane.cluster import Api, ControlPlane

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", autouse=True)
def crds(control_plane: ControlPlane) -> None:
    install_crds(control_plane)


class Told:
    def __init__(self) -> None:
        self.events: list[Tell] = []

    def tell(self, event: Tell) -> None:
        self.events.append(event)


def run(
    plane: ControlPlane,
    *effects: Effect,
    events: Told | None = None,
    is_overtaken: Callable[[Ref, str], bool] = lambda *_: False,
) -> list[Answer]:
    """All answers to one errand; its report comes last."""

    async def carry_out() -> list[Answer]:
        answers: list[Answer] = []
        done = asyncio.Event()

        def deliver(answer: Answer) -> None:
            answers.append(answer)
            if isinstance(answer, Report):
                done.set()

        client: Client
        async with await connect(plane.kubeconfig) as client:
            actor = Actor(client, WRITTEN, events or Told(), deliver, is_overtaken=is_overtaken)
            errand = Errand("owner", effects)
            actor.start(errand)
            assert all(actor.is_busy(key) for key in ("owner", *({("Workload", "default", "w")} & keys(effects))))
            await asyncio.wait_for(done.wait(), 30)
            actor.settle(errand)
            assert not actor.is_busy("owner")
        return answers

    return asyncio.run(carry_out())


def keys(effects: tuple[Effect, ...]) -> set[tuple[str, str, str]]:
    return {(each.ref.kind, each.ref.namespace, each.ref.name) for each in effects if not isinstance(each, Tell)}


@pytest.fixture
def w(api: Api) -> dict:
    """A fresh Workload "w"."""
    api.delete("Workload", "w", "default")
    return api.create(workload("w", "q"))


REF = Ref("Workload", "default", "w")
NOBODY = Ref("Workload", "default", "nobody")
LABEL = {"metadata": {"labels": {"a": "b"}}}


@dataclass(frozen=True)
class Case:
    """`effect` is made from the current resource version; `want` are the kinds of answers before the report."""

    effect: Callable[[str], Effect]
    fate: Fate
    want: tuple[type, ...]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            Case(lambda version: Patch(REF, LABEL, resource_version=version), Fate.DONE, (Written,)),
            id="a patch of the present version",
        ),
        pytest.param(
            Case(lambda _: Patch(REF, LABEL, resource_version="1"), Fate.CONFLICT, (Written,)),
            id="a patch of an old version brings the present one",
        ),
        pytest.param(
            Case(
                lambda _: Patch(
                    REF, [{"op": "add", "path": "/metadata/labels", "value": {}}], PatchKind.JSON, None, "1"
                ),
                Fate.CONFLICT,
                (Written,),
            ),
            id="the same for a JSON patch",
        ),
        pytest.param(
            Case(
                lambda _: Patch(REF, [{"op": "test", "path": "/spec/queueName", "value": "x"}], PatchKind.JSON),
                Fate.CONFLICT,
                (Written,),
            ),
            id="a test that does not hold is a conflict",
        ),
        pytest.param(Case(lambda _: Patch(NOBODY, LABEL), Fate.GONE, (Gone,)), id="a patch of nobody"),
        pytest.param(
            Case(lambda _: Patch(REF, {"spec": {"priority": "high"}}), Fate.REFUSED, ()), id="a patch that is invalid"
        ),
        pytest.param(Case(lambda _: Delete(REF), Fate.DONE, ()), id="a deletion"),
        pytest.param(Case(lambda _: Delete(NOBODY), Fate.DONE, (Gone,)), id="deleting nobody is no failure"),
        pytest.param(
            Case(lambda _: Delete(REF, resource_version="1"), Fate.CONFLICT, (Written,)),
            id="deleting another version than meant",
        ),
        pytest.param(
            Case(lambda _: Create(REF, workload("w", "q")), Fate.DONE, (Written,)),
            id="creating what is there already, of the same owner",
        ),
        pytest.param(
            Case(
                lambda _: Create(
                    REF,
                    {
                        **workload("w", "q"),
                        "metadata": {
                            "name": "w",
                            "namespace": "default",
                            "ownerReferences": [
                                {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
                            ],
                        },
                    },
                ),
                Fate.CONFLICT,
                (Written,),
            ),
            id="creating what somebody else has",
        ),
    ],
)
def test_fate(control_plane: ControlPlane, w: dict, case: Case) -> None:
    *answers, report = run(control_plane, case.effect(w["metadata"]["resourceVersion"]))
    assert isinstance(report, Report)
    assert (report.fate, tuple(type(answer) for answer in answers)) == (case.fate, case.want)
    for answer in answers:
        if isinstance(answer, Written):
            assert answer.obj.metadata.uid == w["metadata"]["uid"]


def test_the_first_failure_ends_an_errand(control_plane: ControlPlane, api: Api, w: dict) -> None:
    events = Told()
    effects = (Patch(REF, LABEL), Patch(REF, LABEL, resource_version="1"), Delete(REF), Tell(REF, "Done", "words"))
    *_, report = run(control_plane, *effects, events=events)
    assert isinstance(report, Report)
    assert report.fate is Fate.CONFLICT
    found = api.get("Workload", "w", "default")
    assert found["metadata"]["labels"] == {"a": "b"}, "what came before was done"
    assert not events.events, "and what comes after was not"


def test_an_errand_waits_out_an_api_server_that_restarts(control_plane: ControlPlane, w: dict) -> None:
    control_plane.kill("kube-apiserver")

    async def carry_out() -> Report:
        reports: asyncio.Queue[Report] = asyncio.Queue()
        async with await connect(control_plane.kubeconfig) as client:
            actor = Actor(
                client,
                WRITTEN,
                Told(),
                lambda answer: reports.put_nowait(answer) if isinstance(answer, Report) else None,
            )
            actor.start(Errand("owner", (Patch(REF, LABEL),)))
            return await reports.get()

    try:
        assert asyncio.run(carry_out()).fate is Fate.UNAVAILABLE
    finally:
        control_plane.restart("kube-apiserver")
    *_, report = run(control_plane, Patch(REF, LABEL))
    assert isinstance(report, Report)
    assert report.fate is Fate.DONE


def test_what_is_known_to_be_overtaken_is_not_written(control_plane: ControlPlane, w: dict) -> None:
    asked: list[str] = []

    def is_overtaken(ref: Ref, version: str) -> bool:
        asked.append(version)
        return True

    effect = Patch(REF, LABEL, resource_version=w["metadata"]["resourceVersion"])
    (report,) = run(control_plane, effect, is_overtaken=is_overtaken)
    assert isinstance(report, Report)
    assert report.fate is Fate.CONFLICT
    assert asked == [w["metadata"]["resourceVersion"]]
    assert "a" not in control_plane.api.get("Workload", "w", "default")["metadata"].get("labels", {})


def test_a_conflict_is_not_read_again_where_the_watch_tells_it(control_plane: ControlPlane, w: dict) -> None:
    """Known only after the write was refused: the watch was a moment behind."""
    del w
    times = iter((False, False, True))
    (report,) = run(control_plane, Patch(REF, LABEL, resource_version="1"), is_overtaken=lambda *_: next(times))
    assert isinstance(report, Report)
    assert report.fate is Fate.CONFLICT
