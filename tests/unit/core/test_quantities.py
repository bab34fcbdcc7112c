from __future__ import annotations

import pytest

from queues.core import quantities
from queues.core.model import UNLIMITED


@pytest.mark.parametrize(
    ("got", "want"),
    [
        pytest.param(quantities.total(UNLIMITED, 5), UNLIMITED, id="unlimited plus anything stays unlimited"),
        pytest.param(quantities.total(UNLIMITED - 1, UNLIMITED - 1), UNLIMITED, id="bounded sums end at unlimited"),
        pytest.param(quantities.lendable(UNLIMITED, 5), UNLIMITED, id="unlimited minus bounded stays unlimited"),
        pytest.param(quantities.lendable(UNLIMITED, UNLIMITED), 0, id="unlimited minus unlimited is nothing"),
        pytest.param(quantities.private(12, None), 0, id="no lending limit keeps nothing private"),
        pytest.param(quantities.private(12, 1), 11, id="what may not be lent is private"),
        pytest.param(quantities.private(3, 5), 0, id="a lending limit above the quota keeps nothing private"),
        pytest.param(quantities.private(UNLIMITED, 5), UNLIMITED, id="an unlimited quota has an unlimited rest"),
        pytest.param(quantities.beyond(7, 5), 2, id="usage beyond the quota"),
        pytest.param(quantities.beyond(2 * UNLIMITED, UNLIMITED), 0, id="nothing is beyond an unlimited quota"),
        pytest.param(quantities.left(5, 7), -2, id="what is left can be negative"),
        pytest.param(quantities.left(UNLIMITED, 7), UNLIMITED, id="an unlimited quota never gets smaller"),
        pytest.param(quantities.fits(2 * UNLIMITED, UNLIMITED), True, id="any amount fits into unlimited room"),
        pytest.param(quantities.fits(6, 5), False, id="more than there is does not fit"),
    ],
)
def test_arithmetic(got, want):
    assert got == want


@pytest.mark.parametrize(
    ("resource", "amount", "want"),
    [
        ("cpu", 1000, "1"),
        ("cpu", 1500, "1500m"),
        ("cpu", 0, "0"),
        ("memory", 3 * 2**30, "3Gi"),
        ("memory", 1_000_000, "1000000"),
        ("nvidia.com/gpu", 1024, "1024"),
        ("hugepages-2Mi", 4 * 2**20, "4Mi"),
        ("memory", UNLIMITED, "unlimited"),
    ],
)
def test_text(resource, amount, want):
    assert quantities.text(resource, amount) == want
