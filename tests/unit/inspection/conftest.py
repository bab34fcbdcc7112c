"""An inspection application over a remembered cluster, and callers with rights of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from flask import Flask
from flask.testing import FlaskClient

from queues.inspection.access import Access, Aggregation, Authorizer, ReviewError, User
from queues.inspection.app import create_app
from queues.journal.database import open_database
from queues.journal.entries import Kind, Owner, QuotaRow, UsageEnded, WorkloadState
from tests.unit.journal.databases import Databases
from tests.unit.journal.rows import GPU, decision, local_queue, queue, started, workload
from tests.unit.journal.test_read import remember

#: For tests in which the database makes no difference.
ON_SQLITE = pytest.mark.parametrize("databases", ["sqlite"], indirect=True, scope="session")

NOW = 1_000_000.0
KUEUE = "kueue.x-k8s.io"
VISIBILITY = "visibility.kueue.x-k8s.io"

TOKENS = {
    "admin-token": User("admin", ("system:masters",)),
    "viewer-token": User("viewer", ("viewers",)),
    "team-token": User("team", ("team-a",)),
    "nobody-token": User("nobody"),
}


class Cluster:
    """A reviewer with a table of rights in place of RBAC."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.is_away = False

    def review_token(self, token: str) -> User | None:
        self._ask(token)
        return TOKENS.get(token)

    def review_access(self, user: User, access: Access) -> bool:
        self._ask((user, access))
        if access.path:
            return "system:authenticated" in user.groups
        match user.name:
            case "viewer":
                return access.group in {KUEUE, VISIBILITY}
            case "team":
                mine = {
                    ("list", KUEUE, "workloads", "", "team-a"),
                    ("get", VISIBILITY, "localqueues", "pendingworkloads", "team-a"),
                }
                right = (access.verb, access.group, access.resource, access.subresource, access.namespace)
                return right in mine
            case _:
                return False

    def aggregation(self) -> Aggregation | None:
        self._ask("aggregation")
        return Aggregation(client_ca="CA", allowed_names=("front-proxy",))

    def _ask(self, question: object) -> None:
        self.asked.append(question)
        if self.is_away:
            raise ReviewError("connection refused")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


JOB = (Owner("batch/v1", "Job", "train", "j1"),)
TOLD = (
    queue("cq", quotas=(QuotaRow("h100", GPU, 16, 8, None, 20, 12, 4), QuotaRow("h100", "cpu", 64_000, None, 0, 1500))),
    queue("stopped", cohort="", active=False, reason="Stopped", message="stopped by <b>hand</b>", quotas=()),
    local_queue("lq", "team-a"),
    local_queue("lq", "team-b"),
    local_queue("astray", "team-a", "nowhere"),
    workload("w1", namespace="team-a", name="job-train", owners=JOB, priority=5, queued_at=NOW - 500,
             code="WaitingForQuota", message="needs 8 of nvidia.com/gpu, 5 are free", remedy="free 3",
             shortages=({"flavor": "h100", "resource": GPU, "needed": 8, "free": 5},)),
    workload("w2", namespace="team-b", name="secret", priority=9, queued_at=NOW - 100, code="WaitingForQuota"),
    workload("w3", namespace="team-a", name="later", priority=0, queued_at=NOW - 50, code="ExceedsMaxQuota"),
    workload("w4", namespace="team-a", name="runs", state=WorkloadState.ADMITTED, state_since=NOW - 7200,
             flavors={GPU: "h100"}),
    workload("w5", namespace="team-a", name="lost", local_queue="astray", cluster_queue="nowhere"),
    decision("w1", NOW - 500, Kind.CREATED, namespace="team-a", name="job-train"),
    decision("w1", NOW - 300, Kind.EVICTED, namespace="team-a", name="job-train", code="Preempted", cause="w2"),
    decision("w2", NOW - 100, Kind.CREATED, namespace="team-b", name="secret"),
    decision("w0", NOW - 900, Kind.FINISHED, namespace="team-a", name="done", code="Succeeded", message="ended"),
    started("w4", NOW - 7200, 8, namespace="team-a"),
    started("x", NOW - 7200, 2, namespace="team-b"),
    UsageEnded(NOW - 3600, "x"),
)  # fmt: skip


@pytest.fixture(scope="session")
def told(databases: Databases, template: str) -> str:
    made = databases.emptied(databases.copy(template))
    remember(made, *TOLD)
    return made


@pytest.fixture
def scratch() -> None:
    """For a test that changes the database: it gets one of its own."""


@pytest.fixture
def url(request: pytest.FixtureRequest, databases: Databases, told: str) -> str:
    """A database that remembers `TOLD`."""
    return databases.copy(told) if "scratch" in request.fixturenames else told


@pytest.fixture
def app(url: str, cluster: Cluster) -> Iterator[Flask]:
    engine = open_database(url)
    authorizer = Authorizer(cluster)
    authorizer.refresh()
    yield create_app(engine, authorizer, clock=lambda: NOW)
    engine.dispose()


Client = Callable[[str], FlaskClient]


@pytest.fixture
def client(app: Flask) -> Client:
    """A client for a caller: `admin`, `viewer` (Kueue's objects everywhere), `team` (namespace team-a), `nobody`."""

    def of(caller: str) -> FlaskClient:
        made = app.test_client()
        made.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {caller}-token"
        return made

    return of
