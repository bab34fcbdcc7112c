"""What may run at once, what is busy meanwhile, and how a stale write is made to fail."""

from __future__ import annotations

import pytest

from admission.controllers.act import Errand, Fate, guarded_body, independent, is_failed_test, is_passing, touched
from admission.controllers.errands import delay
from admission.jobs.effects import Create, Delete, Effect, Patch, PatchKind, Ref, Tell
from admission.kube.errors import ApiError, Forbidden, Invalid, ServerFailed, TooManyRequests, Unreachable


def pod(name: str) -> Patch:
    return Patch(Ref("Pod", "n", name), {})


JOB = Patch(Ref("Job", "n", "j"), {})
WORKLOAD = Create(Ref("Workload", "n", "w"), {})


@pytest.mark.parametrize(
    ("effects", "want"),
    [
        pytest.param((pod("a"), pod("b"), pod("c")), [["a", "b", "c"]], id="the gates of a gang come off together"),
        pytest.param(
            (pod("a"), pod("b"), pod("a")), [["a", "b"], ["a"]], id="two writes to one object keep their order"
        ),
        pytest.param((JOB, pod("a"), pod("b")), [["j"], ["a", "b"]], id="kinds keep their order"),
        pytest.param((pod("a"), Delete(Ref("Pod", "n", "b"))), [["a"], ["b"]], id="sorts keep their order"),
        pytest.param((), [], id="nothing to do"),
    ],
)
def test_independent(effects: tuple[Effect, ...], want: list[list[str]]) -> None:
    assert [[effect.ref.name for effect in together] for together in independent(effects)] == want


def test_what_is_only_told_about_is_not_busy() -> None:
    errand = Errand("owner", (WORKLOAD, JOB, Tell(Ref("Pod", "n", "p"), "Reason", "words"), WORKLOAD))
    assert list(touched(errand)) == ["owner", ("Workload", "n", "w"), ("Job", "n", "j")]


def test_a_merge_patch_carries_the_version_it_was_made_for() -> None:
    patch = Patch(Ref("Workload", "n", "w"), {"metadata": {"labels": {"a": "b"}}}, resource_version="7")
    assert guarded_body(patch) == {"metadata": {"labels": {"a": "b"}, "resourceVersion": "7"}}
    assert patch.body == {"metadata": {"labels": {"a": "b"}}}, "the effect itself stays as it was"


def test_a_json_patch_replaces_the_version_by_itself() -> None:
    patch = Patch(Ref("Pod", "n", "p"), [{"op": "remove", "path": "/x"}], PatchKind.JSON, resource_version="7")
    assert guarded_body(patch) == [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "remove", "path": "/x"},
    ]


@pytest.mark.parametrize(
    ("error", "want"),
    [
        pytest.param(TooManyRequests(429, "", ""), True, id="too many requests passes"),
        pytest.param(ServerFailed(500, "", ""), True, id="a failed webhook passes"),
        pytest.param(Unreachable("refused"), True, id="no connection passes"),
        pytest.param(Forbidden(403, "", ""), False, id="forbidden stays"),
        pytest.param(Invalid(422, "", ""), False, id="invalid stays"),
    ],
)
def test_is_passing(error: ApiError, want: bool) -> None:
    assert is_passing(error) is want


def test_only_a_json_patch_can_fail_a_test() -> None:
    error = Invalid(422, "Invalid", "the server rejected our request due to an error in our request")
    assert is_failed_test(Patch(Ref("Pod", "n", "p"), [], PatchKind.JSON), error)
    assert not is_failed_test(Patch(Ref("Pod", "n", "p"), {}), error)


@pytest.mark.parametrize(
    ("fate", "failures", "want"),
    [
        pytest.param(Fate.CONFLICT, 1, 0.05, id="somebody else was faster: hardly at all"),
        pytest.param(Fate.REFUSED, 1, 0.5, id="a refusal waits"),
        pytest.param(Fate.REFUSED, 3, 2.0, id="each refusal in a row waits twice as long"),
        pytest.param(Fate.UNAVAILABLE, 1000, 60.0, id="never longer than a minute"),
    ],
)
def test_delay(fate: Fate, failures: int, want: float) -> None:
    assert delay(fate, failures) == want
