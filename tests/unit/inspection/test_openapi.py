"""The OpenAPI document asked of the endpoints with made-up values: they answer as described, and never fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import schemathesis
from flask import Flask
from hypothesis import HealthCheck, settings

from queues.inspection.access import Authorizer
from queues.inspection.app import create_app
from queues.inspection.openapi import document
from queues.journal import migrate
from queues.journal.database import open_database
from tests.browser import seed
from tests.unit.inspection.conftest import Cluster
from tests.unit.journal.test_read import remember

#: Names that exist, for the paths that nobody would guess.
KNOWN = {"queue": "pretraining", "namespace": "team-llm", "workload": "moe-ablation-12"}
CALLER = {"Authorization": "Bearer admin-token"}

#: Times in the wrong order, or too many steps between them, are refused though each value is right by itself.
TOGETHER = {"/usage", "/usage.csv"}

few = settings(max_examples=8, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))


class Later:
    """The application, which is not there yet when tests are collected."""

    app: Flask

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        return self.app(environ, start_response)


server = Later()
api = schemathesis.openapi.from_dict(document("/api/v1"))
api.app = server


@pytest.fixture(scope="module", autouse=True)
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    url = f"sqlite:///{tmp_path_factory.mktemp('described')}/journal.sqlite3"
    migrate.upgrade(url)
    remember(url, *seed.everything())
    engine = open_database(url)
    server.app = create_app(engine, Authorizer(Cluster()), clock=lambda: seed.NOW)
    yield
    engine.dispose()


def ask(case: schemathesis.Case, *unasked: str) -> None:
    case.call_and_validate(
        headers=CALLER, excluded_checks=[schemathesis.checks.CHECKS.get_one(check) for check in unasked]
    )


@api.parametrize()
@few
def test_made_up_values(case: schemathesis.Case) -> None:
    ask(case, *(["positive_data_acceptance"] if case.path in TOGETHER else []))


@api.include(path_regex="{").parametrize()
@few
def test_of_things_that_exist(case: schemathesis.Case) -> None:
    case.path_parameters = {name: KNOWN[name] for name in case.path_parameters}
    ask(case, "negative_data_rejection")
