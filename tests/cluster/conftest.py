"""Fixtures for tests against a real control plane: one for each module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import account
from tests.cluster import town as towns
from tests.cluster.town import Town
from tests.controlplane.cluster import Api, ControlPlane, eventually
from tests.controlplane.cluster import control_plane as running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow modules first, so that no process is left alone with one of them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="module")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane for this module. `CONTROL_PLANE = {"controllers": [...], "scheduler": True, "kwok": True}` in the
    module asks for more than an API server: the keyword arguments of `tests.controlplane.cluster.control_plane`.

    Muster may ask for nothing that its ServiceAccount has no right to, but for what the module says it is refused by a
    regular expression, EXPECTED_REFUSALS."""
    wanted = dict(getattr(request.module, "CONTROL_PLANE", {}))
    wanted["api_args"] = (*account.AUDITED, *wanted.get("api_args", ()))
    with running(**wanted) as plane:
        # The API server makes its own namespaces a moment after it is ready.
        for name in ("default", "kube-system"):
            eventually(lambda name=name: plane.api.find("Namespace", name), message=f"there is a namespace {name}")
        yield plane
        expected = getattr(request.module, "EXPECTED_REFUSALS", None)
        assert [each for each in account.refused(plane) if expected is None or not re.search(expected, each)] == []


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> Api:
    """REST client of the cluster's administrator."""
    return control_plane.api


@pytest.fixture(scope="module")
def town(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """Muster with all of its processes beside this module's control plane; it may have nothing to complain about."""
    with towns.town(control_plane, Path(tmp_path_factory.mktemp("muster"))) as one:
        yield one
        one.all_razed()
        assert one.muster.complaints() == []
