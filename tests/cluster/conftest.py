"""Fixtures for tests against a real control plane: one for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controlplane.cluster import Api, ControlPlane
from tests.controlplane.cluster import control_plane as running


@pytest.fixture(scope="module")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane for this module. `CONTROL_PLANE = {"controllers": [...], "scheduler": True, "kwok": True}` in the
    module asks for more than an API server: the keyword arguments of `tests.controlplane.cluster.control_plane`."""
    with running(**getattr(request.module, "CONTROL_PLANE", {})) as plane:
        yield plane


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> Api:
    """REST client of the cluster's administrator."""
    return control_plane.api
