"""Quantities: the exact value, what is counted of it, and the canonical text."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.api.quantities import QuantityError, amount, format_amount, parse
from admission.api.schema import QUANTITY_PATTERN

VALUES = {
    "0": 0,
    "1": 1,
    "+1": 1,
    "-1": -1,
    "1.": 1,
    ".5": Fraction(1, 2),
    "0.5": Fraction(1, 2),
    "-.5": Fraction(-1, 2),
    "1500m": Fraction(3, 2),
    "1n": Fraction(1, 10**9),
    "1u": Fraction(1, 10**6),
    "1k": 1000,
    "1M": 10**6,
    "1G": 10**9,
    "1T": 10**12,
    "1P": 10**15,
    "1E": 10**18,
    "1Ki": 2**10,
    "1Mi": 2**20,
    "1.5Gi": 3 * 2**29,
    "1Ti": 2**40,
    "1Pi": 2**50,
    "1Ei": 2**60,
    "1e3": 1000,
    "1E3": 1000,
    "1E+3": 1000,
    "1e-3": Fraction(1, 1000),
    "1.5e1": 15,
    "0001": 1,
    "99999999999999999999999": 99999999999999999999999,
}


@pytest.mark.parametrize(("text", "want"), VALUES.items())
def test_exact_value(text: str, want: Fraction) -> None:
    assert parse(text) == want


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", " 1", "a", "1K", "1mi", "1KI", "e3", "1e", "1e1.5", "1Gi3", "--1", "1.2.3", "0x10", "1_000",
     "NaN", "Infinity", "-", ".", "1m1", "٣", "1\n", "9" * 300, True],
)  # fmt: skip
def test_no_quantity(text: str) -> None:
    with pytest.raises(QuantityError, match="not a quantity"):
        parse(text)


NUMBERS = [(1, 1), (-3, -3), (2**70, 2**70), (0.5, Fraction(1, 2)), (0.1, Fraction(1, 10)), (1e21, 10**21)]


@pytest.mark.parametrize(("number", "want"), NUMBERS)
def test_numbers_are_read_as_their_json(number: float, want: Fraction) -> None:
    assert parse(number) == want


AMOUNTS = [
    ("cpu is counted in milli-units", "cpu", "1.5", 1500),
    ("a fraction of a milli-unit counts whole", "cpu", "1n", 1),
    ("cpu of any size", "cpu", "9223372036854775807", 9223372036854775807000),
    ("memory is counted in bytes", "memory", "1.5Gi", 1610612736),
    ("a fraction of a byte counts whole", "memory", "1m", 1),
    ("half a device counts whole", "nvidia.com/gpu", "0.5", 1),
    ("nothing is nothing", "nvidia.com/gpu", "0.0", 0),
    ("a negative fraction goes away from zero", "memory", "-1.5", -2),
    ("a negative fraction of cpu goes away from zero", "cpu", "-0.0015", -2),
    ("beyond 64 bits nothing wraps", "memory", "16Ei", 2**64),
    ("beyond 64 bits nothing rounds", "pods", "18446744073709551617", 2**64 + 1),
]


@pytest.mark.parametrize(
    ("resource", "text", "want"), [case[1:] for case in AMOUNTS], ids=[case[0] for case in AMOUNTS]
)
def test_amount(resource: str, text: str, want: int) -> None:
    assert amount(resource, text) == want


@pytest.mark.parametrize("text", ["1e999999999", "1E9223372036854775808", "1e-999999999", "9" * 256, "0e999999999"])
def test_a_hostile_text_is_cheap(text: str) -> None:
    counted = amount("cpu", text)
    assert counted >= 2**63 or counted in {0, 1}


FORMATS = [
    ("whole cpu", "cpu", 2000, "2"),
    ("milli cpu", "cpu", 1500, "1500m"),
    ("thousands of cpu", "cpu", 3_000_000, "3k"),
    ("no cpu", "cpu", 0, "0"),
    ("memory in binary", "memory", 2**31, "2Gi"),
    ("memory of no round size", "memory", 1536, "1536"),
    ("memory below a Ki", "memory", 1000, "1k"),
    ("memory in binary even when decimal is round", "memory", 1_000_000, "1000000"),
    ("negative memory", "memory", -2048, "-2Ki"),
    ("storage in binary", "ephemeral-storage", 2**20, "1Mi"),
    ("huge pages in binary", "hugepages-2Mi", 2**21, "2Mi"),
    ("devices in decimal", "nvidia.com/gpu", 8000, "8k"),
    ("devices of no round number", "nvidia.com/gpu", 2048, "2048"),
    ("nothing larger than E", "pods", 10**21, "1000E"),
    ("nothing larger than Ei", "memory", 2**70, "1024Ei"),
]


@pytest.mark.parametrize(
    ("resource", "counted", "want"), [case[1:] for case in FORMATS], ids=[case[0] for case in FORMATS]
)
def test_canonical_text(resource: str, counted: int, want: str) -> None:
    assert format_amount(resource, counted) == want


RESOURCES = st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-1Gi", "nvidia.com/gpu", "pods"])
SUFFIXES = st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
EXPONENTS = st.integers(-400, 400).map(lambda power: f"e{power}")
DIGITS = st.integers(0, 10**40).map(str)
QUANTITIES = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "+", "-"]),
        st.one_of(DIGITS, DIGITS.map(lambda digits: f".{digits}"), st.tuples(DIGITS, DIGITS).map(".".join)),
        st.one_of(SUFFIXES, EXPONENTS),
    ),
)


@given(RESOURCES, st.integers(-(10**40), 10**40))
def test_a_formatted_amount_reads_as_itself(resource: str, counted: int) -> None:
    assert amount(resource, format_amount(resource, counted)) == counted


@given(RESOURCES, QUANTITIES)
def test_an_amount_is_the_value_rounded_away_from_zero(resource: str, text: str) -> None:
    exact = parse(text) * (1000 if resource == "cpu" else 1)
    counted = amount(resource, text)
    assert abs(exact) <= abs(counted) < abs(exact) + 1
    assert exact * counted >= 0


@given(st.one_of(QUANTITIES, st.text("0123456789.eE+-KMGinum", max_size=12)))
def test_the_schema_accepts_what_is_read(text: str) -> None:
    accepted = re.search(QUANTITY_PATTERN, text, re.ASCII) is not None
    try:
        parse(text)
    except QuantityError:
        assert not accepted
    else:
        assert accepted


@given(QUANTITIES)
def test_a_sign_only_changes_the_sign(text: str) -> None:
    plain = text.lstrip("+-")
    assert parse(f"-{plain}") == -parse(plain) == -parse(f"+{plain}")
