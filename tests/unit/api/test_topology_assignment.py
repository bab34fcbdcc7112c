"""The compact form of topology assignments: what is shared is written once, and everything comes back in order."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.api import topology_assignment
from admission.api.decoding import plain
from admission.api.topology_assignment import Domain, decode, encode
from admission.api.workloads import TopologyAssignment

CASES = [
    (
        "one domain is universal",
        ["host"],
        [(("n1",), 3)],
        [{"domainCount": 1, "valuesPerLevel": [{"universal": "n1"}], "podCounts": {"universal": 3}}],
    ),
    (
        "equal counts and shared ends are written once",
        ["host"],
        [(("node-1.a",), 2), (("node-12.a",), 2)],
        [
            {
                "domainCount": 2,
                "valuesPerLevel": [{"individual": {"prefix": "node-1", "suffix": ".a", "roots": ["", "2"]}}],
                "podCounts": {"universal": 2},
            }
        ],
    ),
    (
        "a level that all share is universal",
        ["block", "rack"],
        [(("b", "r1"), 1), (("b", "s2"), 4)],
        [
            {
                "domainCount": 2,
                "valuesPerLevel": [{"universal": "b"}, {"individual": {"roots": ["r1", "s2"]}}],
                "podCounts": {"individual": [1, 4]},
            }
        ],
    ),
    (
        "hosts with long names are split by prefix where that is shorter",
        ["kubernetes.io/hostname"],
        [((f"gpu-{rack}-node-{i}",), 1) for rack in ("east-building", "west-building") for i in range(1, 9)],
        [
            {
                "domainCount": 8,
                "valuesPerLevel": [
                    {"individual": {"prefix": f"gpu-{rack}-node-", "roots": list("12345678")}},
                ],
                "podCounts": {"universal": 1},
            }
            for rack in ("east-building", "west-building")
        ],
    ),
    (
        "hosts with short names stay together",
        ["kubernetes.io/hostname"],
        [(("a1",), 1), (("a2",), 1), (("b1",), 1)],
        [
            {
                "domainCount": 3,
                "valuesPerLevel": [{"individual": {"roots": ["a1", "a2", "b1"]}}],
                "podCounts": {"universal": 1},
            }
        ],
    ),
    (
        "prefix and suffix do not overlap",
        ["host"],
        [(("aa",), 1), (("aaa",), 1)],
        [
            {
                "domainCount": 2,
                "valuesPerLevel": [{"individual": {"prefix": "aa", "roots": ["", "a"]}}],
                "podCounts": {"universal": 1},
            }
        ],
    ),
]


@pytest.mark.parametrize(("levels", "domains", "want"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_encoded(levels: list[str], domains: list[tuple[tuple[str, ...], int]], want: list[dict[str, object]]) -> None:
    assignment = encode(levels, [Domain(*domain) for domain in domains])
    assert plain(assignment) == {"levels": levels, "slices": want}


VALUES = st.text("ab1-.", max_size=6)


@given(st.data(), st.integers(1, 4))
def test_round_trip(data: st.DataObject, depth: int) -> None:
    values = st.tuples(*[VALUES] * depth)
    domains = data.draw(st.lists(st.builds(Domain, values, st.integers(1, 9)), min_size=1, max_size=12))
    assignment = encode([f"level{i}" for i in range(depth)], domains)
    over_the_wire = msgspec.json.decode(msgspec.json.encode(assignment), type=TopologyAssignment)
    assert list(decode(over_the_wire)) == domains


def test_a_long_assignment_takes_several_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_assignment, "MAX_DOMAINS", 3)
    domains = [Domain((f"n{i}",), 1) for i in range(7)]
    assignment = encode(["host"], domains)
    assert [piece.domain_count for piece in assignment.slices] == [3, 3, 1]
    assert list(decode(assignment)) == domains


@pytest.mark.parametrize(("levels", "domains"), [([], [Domain((), 1)]), (["a"], []), (["a", "b"], [Domain(("a",), 1)])])
def test_what_is_no_assignment(levels: list[str], domains: list[Domain]) -> None:
    with pytest.raises(ValueError, match="level"):
        encode(levels, domains)


def test_another_writers_mixed_slices_are_read() -> None:
    raw = {
        "levels": ["block", "host"],
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [{"universal": "b1"}, {"individual": {"prefix": "n", "roots": ["1", "2"]}}],
                "podCounts": {"individual": [1, 2]},
            },
            {
                "domainCount": 1,
                "valuesPerLevel": [{"universal": "b2"}, {"individual": {"suffix": "x", "roots": ["9"]}}],
                "podCounts": {"universal": 5},
            },
        ],
    }
    assert decode(msgspec.convert(raw, TopologyAssignment)) == (
        Domain(("b1", "n1"), 1),
        Domain(("b1", "n2"), 2),
        Domain(("b2", "9x"), 5),
    )
