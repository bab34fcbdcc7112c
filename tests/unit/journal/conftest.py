"""A database for each test, empty or with the schema."""

from __future__ import annotations

import pytest

from tests.unit.journal.databases import Databases


@pytest.fixture
def url(databases: Databases) -> str:
    """An empty database."""
    return databases.empty()


@pytest.fixture
def migrated(databases: Databases, template: str) -> str:
    """A database with the schema and nothing else."""
    return databases.emptied(template)
