"""Label selectors, conditions and timestamps."""

from __future__ import annotations

import msgspec
import pytest

from admission.api.meta import (
    Condition,
    LabelSelector,
    LabelSelectorRequirement,
    ObjectMeta,
    OwnerReference,
    epoch,
    find_condition,
    is_false,
    is_true,
    rfc3339,
    rfc3339_micro,
    selects,
    set_condition,
    without_condition,
)


def expression(key: str, operator: str, *values: str) -> LabelSelector:
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key=key, operator=operator, values=values),))


SELECTORS = [
    ("no selector matches nothing", None, False),
    ("an empty selector matches everything", LabelSelector(), True),
    ("a label", LabelSelector(match_labels={"team": "a"}), True),
    ("another value", LabelSelector(match_labels={"team": "b"}), False),
    ("all labels have to match", LabelSelector(match_labels={"team": "a", "env": "x"}), False),
    ("in", expression("team", "In", "a", "b"), True),
    ("in, but the label is missing", expression("env", "In", "a"), False),
    ("not in", expression("team", "NotIn", "b"), True),
    ("not in, as the label is missing", expression("env", "NotIn", "a"), True),
    ("not in, but it is", expression("team", "NotIn", "a"), False),
    ("exists", expression("team", "Exists"), True),
    ("exists not", expression("env", "Exists"), False),
    ("does not exist", expression("env", "DoesNotExist"), True),
    ("does exist", expression("team", "DoesNotExist"), False),
    ("an unknown operator matches nothing", expression("team", "Like", "a"), False),
]


@pytest.mark.parametrize(("selector", "want"), [case[1:] for case in SELECTORS], ids=[case[0] for case in SELECTORS])
def test_selects(selector: LabelSelector | None, want: bool) -> None:
    assert selects(selector, {"team": "a"}) is want


def cond(type_: str, status: str, at: str = "t1", **more: str) -> Condition:
    return Condition(type=type_, status=status, reason=more.get("reason", "R"), message="", last_transition_time=at)


def test_a_new_condition_comes_last() -> None:
    old = (cond("A", "True"),)
    assert set_condition(old, cond("B", "True")) == (cond("A", "True"), cond("B", "True"))


def test_a_condition_keeps_its_place_and_time_while_the_status_stays() -> None:
    old = (cond("A", "True"), cond("B", "True"))
    new = set_condition(old, cond("A", "True", at="t2", reason="Other"))
    assert new == (cond("A", "True", reason="Other"), cond("B", "True"))


def test_a_change_of_status_changes_the_time() -> None:
    assert set_condition((cond("A", "True"),), cond("A", "False", at="t2")) == (cond("A", "False", at="t2"),)


def test_nothing_changed_gives_the_same_tuple() -> None:
    old = (cond("A", "True"),)
    assert set_condition(old, cond("A", "True", at="t2")) is old
    assert without_condition(old, "B") is old


def test_a_condition_is_true_false_or_not_there() -> None:
    conditions = (cond("A", "True"), cond("B", "False"), cond("C", "Unknown"))
    assert [is_true(conditions, name) for name in "ABCD"] == [True, False, False, False]
    assert [is_false(conditions, name) for name in "ABCD"] == [False, True, False, False]
    assert find_condition(conditions, "D") is None
    assert without_condition(conditions, "B") == (cond("A", "True"), cond("C", "Unknown"))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-01-02T03:04:05Z", 1767323045.0),
        ("2026-01-02T04:04:05+01:00", 1767323045.0),
        ("2026-01-02T03:04:05.250000Z", 1767323045.25),
        ("2026-01-02T03:04:05.123456789Z", 1767323045.123456),
    ],
)
def test_epoch(text: str, want: float) -> None:
    assert epoch(text) == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-02T03:04:05", "2026-13-02T03:04:05Z"])
def test_no_timestamp(text: str) -> None:
    with pytest.raises(ValueError, match=r"(?i)timestamp|isoformat|month"):
        epoch(text)


def test_timestamps_are_written_as_kubernetes_does() -> None:
    assert rfc3339(1767323045.9) == "2026-01-02T03:04:05Z"
    assert rfc3339_micro(1767323045.25) == "2026-01-02T03:04:05.250000Z"


def test_the_controller_is_the_owner_that_says_so() -> None:
    owner = OwnerReference(kind="Job", name="j", controller=True)
    meta = ObjectMeta(owner_references=(OwnerReference(kind="X", name="x"), owner))
    assert meta.controller == owner
    assert msgspec.structs.replace(meta, owner_references=()).controller is None


def test_an_object_that_was_never_stored_is_of_no_age() -> None:
    assert ObjectMeta().created_at == 0
    assert not ObjectMeta().is_deleting
    assert ObjectMeta(creation_timestamp="1970-01-01T00:00:09Z", deletion_timestamp="x").created_at == 9
