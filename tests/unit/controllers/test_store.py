"""Tables never go back in time, never bring back the dead, and keep their indexes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from admission.controllers.store import Change, Key, Table, is_newer


@dataclass(frozen=True)
class Meta:
    name: str
    resource_version: str
    uid: str = "u"
    namespace: str = "n"


@dataclass(frozen=True)
class Thing:
    metadata: Meta
    colours: tuple[str, ...] = field(default=())


def thing(name: str, version: str, uid: str = "", *colours: str) -> Thing:
    return Thing(Meta(name, version, uid or f"uid-{name}"), colours)


@pytest.fixture
def table() -> Table[Thing]:
    return Table({"colour": lambda obj: obj.colours})


@pytest.mark.parametrize(
    ("candidate", "known", "want"),
    [
        pytest.param("10", "9", True, id="numbers are compared as numbers"),
        pytest.param("9", "10", False, id="an older number is no news"),
        pytest.param("9", "9", False, id="the same version is no news"),
        pytest.param("b", "a", True, id="what is not a number is taken as it comes"),
        pytest.param("a", "a", False, id="but not twice"),
    ],
)
def test_is_newer(candidate: str, known: str, want: bool) -> None:
    assert is_newer(candidate, known) is want


def test_an_older_version_changes_nothing(table: Table[Thing]) -> None:
    new = thing("a", "10")
    assert table.upsert(new) == Change(None, new)
    assert table.upsert(thing("a", "9")) is None
    assert table.get("n", "a") is new


def test_the_late_answer_of_a_write_does_not_bring_the_dead_back(table: Table[Thing]) -> None:
    table.upsert(thing("a", "5"))
    table.remove("n", "a", "uid-a")
    assert table.upsert(thing("a", "9")) is None
    assert table.get("n", "a") is None


def test_a_new_object_of_the_same_name_replaces_the_old_one(table: Table[Thing]) -> None:
    old, new = thing("a", "5", "first"), thing("a", "6", "second")
    table.upsert(old)
    assert table.upsert(new) == Change(old, new)
    assert table.by_uid("first") is None
    assert table.by_uid("second") is new


def test_the_deletion_of_a_predecessor_leaves_the_new_object(table: Table[Thing]) -> None:
    table.upsert(thing("a", "6", "second"))
    assert table.remove("n", "a", "first") is None
    assert table.get("n", "a") is not None


def test_a_listing_drops_what_it_lacks_but_not_what_was_written_since(table: Table[Thing]) -> None:
    gone, kept, written = thing("gone", "3"), thing("kept", "4"), thing("written", "20")
    for each in (gone, kept, written):
        table.upsert(each)
    newer = thing("kept", "9")
    assert table.replace([newer]) == [Change(gone, None), Change(kept, newer)]
    assert table.get("n", "written") is written


def test_indexes_follow_the_objects(table: Table[Thing]) -> None:
    table.upsert(thing("a", "1", "", "red", "blue"))
    table.upsert(thing("b", "1", "", "red"))
    assert [each.metadata.name for each in table.where("colour", "red")] == ["a", "b"]
    table.upsert(thing("a", "2", "", "blue"))
    assert [each.metadata.name for each in table.where("colour", "red")] == ["b"]
    table.remove("n", "b")
    assert not table.has("colour", "red")
    assert table.values("colour") == ["blue"]


def test_whoever_remembers_an_object_holds_the_key_that_it_is_filed_under(table: Table[Thing]) -> None:
    table.upsert(thing("a", "5"))
    (filed,) = table.keys()
    assert table.key(thing("a", "6")) is filed
    table.upsert(thing("a", "7"))
    assert table.key(thing("a", "8")) is filed


def test_the_key_of_what_is_not_there_is_its_own(table: Table[Thing]) -> None:
    table.upsert(thing("a", "5", "uid"))
    assert table.key(thing("b", "6", "uid")) == Key("n", "b")
    assert table.key(thing("a", "6", "other")) == Key("n", "a")


def test_of_the_versions_of_an_object_one_uid_is_kept(table: Table[Thing]) -> None:
    first, second = (str(b"uid", "ascii") for _ in range(2))
    table.upsert(thing("a", "5", first))
    newer = thing("a", "6", second)
    table.upsert(newer)
    assert [uid for uid in table._by_uid if uid is newer.metadata.uid]
    assert table.by_uid("uid") is newer
