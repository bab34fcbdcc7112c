"""The pages' colours: enough contrast to be read, in light and in dark."""

from __future__ import annotations

import re
from itertools import product

import pytest

from queues.inspection.pages import ASSETS

STYLE = (ASSETS / "muster.css").read_text()
COLOURS = dict(re.findall(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}, #[0-9a-f]{6})\)", STYLE))

TEXT = ("ink", "dim", "accent", "over-ink", "bad")
PAPER = ("paper", "card")
#: Marks that carry a meaning of their own.
MARKS = ("own", "over", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7")


def luminance(colour: str) -> float:
    def linear(part: int) -> float:
        value = part / 255
        return value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str, scheme: int) -> float:
    light, dark = sorted((luminance(COLOURS[name].split(", ")[scheme]) for name in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("one", "other", "least"),
    [
        *((text, paper, 4.5) for text, paper in product(TEXT, PAPER)),
        ("accent", "own-soft", 4.5),
        ("ink", "own-soft", 4.5),
        ("bad", "bad-soft", 4.5),
        ("dim", "sunk", 4.5),
        ("over-ink", "sunk", 4.5),
        *((mark, paper, 3.0) for mark, paper in product(MARKS, PAPER)),
    ],
)
def test_contrast(one: str, other: str, least: float, scheme: int) -> None:
    assert contrast(one, other, scheme) >= least


def test_every_colour_is_defined() -> None:
    used = set(re.findall(r"var\(--([a-z0-9-]+)", STYLE)) - {"c"}
    assert used <= set(re.findall(r"--([a-z0-9-]+):", STYLE))
