"""Expressions of device selectors: which devices they mean, which have no answer, and which are refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from admission.api.cel import compiled
from admission.api.cel_operations import Device, Unanswered, by_domain
from admission.api.cel_syntax import CelError
from admission.api.cel_values import amount, version

DEVICE = Device(
    driver="gpu.nvidia.com",
    attributes=by_domain(
        {
            "productName": "NVIDIA H100 80GB HBM3",
            "type": "mig",
            "profile": "1g.10gb",
            "index": 3,
            "healthy": True,
            "driverVersion": version("550.54.15"),
            "resource.kubernetes.io/pcieRoot": "pci0000:01",
        },
        "gpu.nvidia.com",
    ),
    capacity=by_domain({"memory": amount("9728Mi"), "multiprocessors": amount("16")}, "gpu.nvidia.com"),
)
GPU = 'device.attributes["gpu.nvidia.com"]'
CAPACITY = 'device.capacity["gpu.nvidia.com"]'


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        pytest.param("true", True, id="everything"),
        pytest.param('device.driver == "gpu.nvidia.com"', True, id="a driver"),
        pytest.param("device.driver == 'gpu.amd.com'", False, id="another driver"),
        pytest.param(f'{GPU}.profile == "1g.10gb" && {GPU}.type == "mig"', True, id="two attributes"),
        pytest.param(f'{GPU}["profile"] == "1g.10gb"', True, id="an attribute by its name in brackets"),
        pytest.param(f'{GPU}.profile in ["1g.10gb", "2g.20gb"]', True, id="one of a list"),
        pytest.param(f'{GPU}.productName.lowerAscii().contains("h100")', True, id="part of a name"),
        pytest.param(f'{GPU}.productName.startsWith("NVIDIA A")', False, id="the start of a name"),
        pytest.param(f'{GPU}.productName.matches("^NVIDIA H[0-9]+ ")', True, id="a pattern"),
        pytest.param(f'{CAPACITY}.memory.compareTo(quantity("9728Mi")) >= 0', True, id="as much memory"),
        pytest.param(f'{CAPACITY}.memory.isGreaterThan(quantity("40Gi"))', False, id="more memory"),
        pytest.param(f'{CAPACITY}.memory == quantity("9961472Ki")', True, id="memory in other units"),
        pytest.param(f'{GPU}.driverVersion.isGreaterThan(semver("535.1.0"))', True, id="a newer version"),
        pytest.param(f"{GPU}.driverVersion.major() == 550", True, id="a part of a version"),
        pytest.param(f"{GPU}.index < 4 && {GPU}.index * 2 + 1 == 7", True, id="numbers"),
        pytest.param(f"{GPU}.index % 2 == 1 ? {GPU}.healthy : false", True, id="a choice"),
        pytest.param("-7 / 2 == -3 && -7 % 2 == -1", True, id="division goes towards zero"),
        pytest.param(f'"other" in device.attributes || has({GPU}.profile)', True, id="whether it has an attribute"),
        pytest.param(f"has({GPU}.missing)", False, id="an attribute that it has not"),
        pytest.param('has(device.attributes["other.com"].x)', False, id="a domain that it has nothing of"),
        pytest.param(f"{GPU}.?missing.orValue(5) == 5", True, id="a value in place of one that is missing"),
        pytest.param(f"{GPU}.?index.orValue(5) == 3", True, id="a value that is there"),
        pytest.param(f'{GPU}.missing == 1 || {GPU}.type == "mig"', True, id="what decides needs no other answer"),
        pytest.param(f'{GPU}.missing == 1 && {GPU}.type == "gpu"', False, id="nor does what decides against"),
        pytest.param(f'cel.bind(g, {GPU}, g.type == "mig" && g.index == 3)', True, id="a name for a part"),
        pytest.param(f'["mig", "gpu"].exists(t, t == {GPU}.type)', True, id="one of a list is"),
        pytest.param("[1, 2, 3].all(n, n > 1)", False, id="all of a list are"),
        pytest.param("[1, 2, 3].filter(n, n > 1).map(n, n * 2) == [4, 6]", True, id="lists of lists"),
        pytest.param(f'{GPU}.profile == "1g.10gb" // or so', True, id="a comment"),
        pytest.param(r'"a\"\u0062\n" == r"a" + "\"b" + "\n"', True, id="escapes"),
        pytest.param("!(1 == 2) && !!true", True, id="negation"),
        pytest.param("1 == 1.0 && !(1 == '1')", True, id="numbers of both kinds are equal, texts are not"),
        pytest.param('device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:01"', True, id="another domain"),
    ],
)
def test_which_devices_are_meant(expression: str, want: bool) -> None:
    assert compiled(expression).matches(DEVICE) is want


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        pytest.param(f"{GPU}.missing == 1", "there is no missing", id="an attribute that it has not"),
        pytest.param(f"{GPU}.profile", "neither true nor false", id="no condition"),
        pytest.param(f"{GPU}.profile > 3", "different kinds", id="a text and a number"),
        pytest.param(f"{GPU}.index + 1.5 > 3", "no numbers of one kind", id="whole and other numbers"),
        pytest.param('quantity("x") == quantity("1")', "quantity() does not take that", id="no quantity"),
        pytest.param(f"{GPU}.index.startsWith('a')", "startsWith() does not take that", id="no text"),
        pytest.param(f"{GPU}.index / 0 == 1", "divided by zero", id="division by zero"),
        pytest.param("9223372036854775807 + 1 > 0", "too large", id="a number that would wrap"),
        pytest.param("nobody == 1", "there is no nobody", id="an unknown name"),
        pytest.param(
            "[1,2,3,4,5,6,7,8,9,0].all(a, [1,2,3,4,5,6,7,8,9,0].all(b, [1,2,3,4,5,6,7,8,9,0].all(c, "
            "[1,2,3,4,5,6,7,8,9,0].all(d, a+b+c+d >= 0))))",
            "too many steps",
            id="too much work",
        ),
        pytest.param(
            f'"{"a" * 2000}".matches("a*a*a*b")', "too many steps", id="a pattern that takes long on a long text"
        ),
        pytest.param(f"size({' + '.join(['[1,2,3,4,5,6,7,8,9,0]'] * 101)}) > 0", "gets too long", id="a long list"),
    ],
)
def test_what_has_no_answer_says_why(expression: str, words: str) -> None:
    with pytest.raises(Unanswered, match=words.replace("(", r"\(").replace(")", r"\)")):
        compiled(expression).matches(DEVICE)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        pytest.param("device.driver ==", "ends too early", id="half an expression"),
        pytest.param("device.driver == 'a' 'b'", "where it should end", id="one and a half"),
        pytest.param("(true", "lacks '\\)'", id="an open bracket"),
        pytest.param("device.shell('rm')", "calls shell\\(\\), which is not understood here", id="an unknown method"),
        pytest.param("type(1) == int", "calls type\\(\\)", id="an unknown function"),
        pytest.param("1u == 1u", "unsigned", id="unsigned numbers"),
        pytest.param("{'a': 1}.a == 1", "is not understood here", id="maps"),
        pytest.param("(" * 200 + "true" + ")" * 200, "nested too deeply", id="a deep nest"),
        pytest.param("!" * 5000 + "true", "nested too deeply", id="many negations"),
        pytest.param("true" + " || true" * 4000, "longer than", id="a long text"),
        pytest.param("99999999999999999999 > 1", "too large", id="a large number"),
        pytest.param("[1].exists(x)", "with 1 arguments", id="a macro without its body"),
    ],
)
def test_what_is_not_understood_is_refused(expression: str, words: str) -> None:
    with pytest.raises(CelError, match=words):
        compiled(expression)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(?=a)", "a*b*c*d*e*", r"(a)\\1", "a" * 300])
def test_patterns_that_could_take_long_are_refused(pattern: str) -> None:
    with pytest.raises(Unanswered, match="pattern"):
        compiled(f'{GPU}.productName.matches("{pattern}")').matches(DEVICE)


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [("1.2.3", "1.2.10"), ("1.0.0-rc.1", "1.0.0"), ("1.0.0-2", "1.0.0-10"), ("1.0.0-9", "1.0.0-a")],
)
def test_versions_have_an_order(smaller: str, larger: str) -> None:
    first, second = version(smaller), version(larger)
    assert first is not None
    assert second is not None
    assert first < second
    assert version("1.0.0+a") == version("1.0.0+b")
    assert version("01.0.0") is version("1.0") is None


@dataclass(frozen=True)
class Reads:
    expression: str
    want: set[tuple[str, str, str]] | None


@pytest.mark.parametrize(
    "case",
    [
        Reads(f'{GPU}.type == "mig"', {("attributes", "gpu.nvidia.com", "type")}),
        Reads(
            f'device.driver == "d" && {CAPACITY}.memory.isLessThan(quantity("1"))',
            {("capacity", "gpu.nvidia.com", "memory")},
        ),
        Reads(f"cel.bind(g, {GPU}, g.type == 'mig')", None),
        Reads("'x' in device.attributes", None),
        Reads("true", set()),
    ],
    ids=lambda case: case.expression,
)
def test_it_is_known_what_an_expression_looks_at(case: Reads) -> None:
    """Devices that are equal in it are judged once."""
    reads = compiled(case.expression).reads
    assert (None if reads is None else set(reads)) == case.want
