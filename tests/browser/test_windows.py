"""What a window shows where there is no such page, or not for this caller; and that no page is left out of the tests.

With MUSTER_SHOTS=FOLDER every page of every test is also drawn at every width, to be looked at.
"""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

import pytest

from queues.inspection import pages
from tests.browser.conftest import WIDTHS, Visiting
from tests.browser.test_paths import PAGES, problems

MISSING = ("/queues/nothing", "/workloads/team-llm/nothing", "/nothing")
#: What a team has for itself.
OWN = ("/?namespace=team-safety", "/workloads?namespace=team-safety", "/usage?namespace=team-safety")
REFUSED = ("/", "/topology", "/workloads/team-llm/moe-ablation-12")
SHOTS = Path(os.environ["MUSTER_SHOTS"]) if "MUSTER_SHOTS" in os.environ else None


def test_every_page_is_among_those_that_are_looked_at() -> None:
    routes = set(re.findall(r'blueprint\.get\("(/[^".]*)"', inspect.getsource(pages))) - {"/assets/<file>"}
    looked_at = {path.partition("?")[0] for path in PAGES}
    patterns = {re.sub("<[^>]*>", "[^/]+", route) for route in routes}
    assert len(patterns) > 6
    assert [each for each in patterns if not any(re.fullmatch(each, path) for path in looked_at)] == []


@pytest.mark.parametrize(
    ("caller", "paths", "status"),
    [
        pytest.param("ada", MISSING, "404", id="what is not there"),
        pytest.param("sam", REFUSED, "403", id="what is not for them"),
        pytest.param("sam", OWN, "", id="what is a team's own"),
        pytest.param("ada", PAGES if SHOTS else (), "", id="pictures of all pages"),
    ],
)
def test_these_pages_fit_every_window_too(visit: Visiting, caller: str, paths: tuple[str, ...], status: str) -> None:
    visiting = visit(caller)
    for path in paths:
        page = visiting.go(path)
        assert problems(page) == [], path
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)
            if SHOTS is not None:
                name = f"{caller}{re.sub('[^a-z0-9]+', '-', path)}-{width}.png"
                page.screenshot(path=SHOTS / name, full_page=True)
    if status:
        told = [fault for fault in visiting.faults if status in fault]
        assert len(told) == len(paths), visiting.faults
        visiting.faults = [fault for fault in visiting.faults if status not in fault]
