"""Options before and after a command's name, names of objects, statuses: what a command line means."""

from __future__ import annotations

import pytest

from admission.commands import faults, naming, reach
from admission.commands.faults import Fault, told
from admission.commands.options import hoisted
from admission.kube.errors import from_answer


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["queues", "-n", "x"], ["queues", "-n", "x"]),
        (["-n", "x", "queues", "--hosts"], ["queues", "-n", "x", "--hosts"]),
        (["-nx", "--context=c", "-A", "-ojson", "workloads"], ["workloads", "-nx", "--context=c", "-A", "-ojson"]),
        (["--as", "queues", "queues"], ["queues", "--as", "queues"]),
        (["--help"], ["--help"]),
        (["-n", "x", "--help"], ["--help", "-n", "x"]),
        (["-n", "x"], ["-n", "x"]),
        (["-n"], ["-n"]),
        (["--colour", "queues"], ["--colour", "queues"]),
        ([], []),
    ],
)
def test_options_before_a_command_are_its_own(words: list[str], want: list[str]) -> None:
    assert hoisted(words) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [("w", ("team", "w")), ("a/w", ("a", "w")), ("a/", None), ("/w", None), ("a/b/w", None), ("", None)],
)
def test_a_namespace_may_stand_before_a_name(text: str, want: tuple[str, str] | None) -> None:
    if want is not None:
        assert naming.namespace_and_name(text, "team") == want
        return
    with pytest.raises(Fault) as fault:
        naming.namespace_and_name(text, "team")
    assert fault.value.status == faults.USAGE


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (("cq", "a", "b"), [("ClusterQueue", "a"), ("ClusterQueue", "b")]),
        (("LocalQueue", "a"), [("LocalQueue", "a")]),
        (("cq/a", "lq/b"), [("ClusterQueue", "a"), ("LocalQueue", "b")]),
        (("cq/a", "b"), None),
        (("cq/",), None),
        (("cq",), None),
        ((), None),
        (("pod", "a"), None),
    ],
)
def test_queues_are_named_by_kind(words: tuple[str, ...], want: list[tuple[str, str]] | None) -> None:
    if want is not None:
        assert naming.queues(words) == want
        return
    with pytest.raises(Fault) as fault:
        naming.queues(words)
    assert fault.value.status == faults.USAGE


@pytest.mark.parametrize(
    ("status", "body", "want", "says"),
    [
        (404, b'{"message": "clusterqueues \\"x\\" not found"}', 3, 'clusterqueues "x" not found'),
        (404, b"404 page not found", 3, "kubectl apply -k webhook-config"),
        (403, b'{"message": "user may not"}', 4, "does not let you: user may not"),
        (401, b'{"message": "Unauthorized"}', 4, "log in again"),
        (409, b'{"message": "changed", "reason": "Conflict"}', 1, "the API server says: 409 Conflict: changed"),
        (500, b"", 1, "500"),
    ],
)
def test_refusals_have_a_status_of_their_own(status: int, body: bytes, want: int, says: str) -> None:
    with pytest.raises(Fault) as fault, told():
        raise from_answer(status, body)
    assert fault.value.status == want
    assert says in str(fault.value)


@pytest.mark.parametrize(("text", "want"), [(None, 30), ("5", 5), ("1m30s", 90), ("0", 86_400), ("0s", 86_400)])
def test_a_timeout_is_a_duration_or_seconds(text: str | None, want: float) -> None:
    assert reach.seconds(text) == want


@pytest.mark.parametrize(("text", "says"), [("", "is not a dur"), ("-5s", "less than nothing"), ("x", "is not a dur")])
def test_what_is_no_timeout(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        reach.seconds(text)
