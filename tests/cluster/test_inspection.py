"""Inspection as a process of its own beside a real API server: aggregation, tokens, rights, certificates."""

from __future__ import annotations

import contextlib
import json
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from queues.journal import migrate
from queues.journal.entries import Kind, Owner, WorkloadState
from queues.journal.writer import Journal
from tests.cluster.account import kubeconfig_of_muster
from tests.controlplane.cluster import Api, ApiError, Authority, ControlPlane, eventually, free_port
from tests.unit.inspection.certificates import serving_certificate
from tests.unit.journal.rows import decision, local_queue, queue, started, workload

pytestmark = pytest.mark.cluster

CONTROL_PLANE = {"users": {"viewer": ["viewers"], "team": ["team-a"], "nobody": []}}

GROUP = "visibility.kueue.x-k8s.io"
CQ = f"/apis/{GROUP}/v1beta2/clusterqueues/cq/pendingworkloads"
LQ = f"/apis/{GROUP}/v1beta2/namespaces/team-a/localqueues/lq/pendingworkloads"
OWN = "/apis/inspection.muster.dev/v1"

PROGRAM = """
import sys
from pathlib import Path
from admission.kube.reviews import ClusterReviewer
from queues.inspection.server import Options, serve

url, kubeconfig, bind, folder = sys.argv[1:]
options = Options(url, Path(folder, "tls.crt"), Path(folder, "tls.key"), (bind,))
serve(options, lambda: ClusterReviewer(kubeconfig), ready=Path(folder, "ready").touch)
"""


@dataclass(frozen=True)
class Inspection:
    base: str
    folder: Path
    process: subprocess.Popen[bytes]
    port: int

    def get(self, path: str, **more: Any) -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False
            return session.get(self.base + path, verify=str(self.folder / "ca.crt"), timeout=10, **more)

    def as_(self, token: str, path: str) -> requests.Response:
        return self.get(path, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture(scope="module")
def inspection(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inspection]:
    folder = tmp_path_factory.mktemp("inspection")
    url = f"sqlite:///{folder}/journal.sqlite3"
    migrate.upgrade(url)
    journal = Journal(url)
    owner = (Owner("batch/v1", "Job", "train", "j1"),)
    journal.put(
        queue(),
        local_queue("lq", "team-a"),
        local_queue("lq", "team-b"),
        workload("u1", namespace="team-a", name="job-train", owners=owner, code="WaitingForQuota"),
        workload("u2", namespace="team-b", name="secret", priority=3),
        workload("u3", namespace="team-a", name="runs", state=WorkloadState.ADMITTED),
        decision("u1", time.time(), Kind.CREATED, namespace="team-a", name="job-train"),
        started("u3", time.time() - 3600, namespace="team-a"),
    )
    journal.start()
    eventually(lambda: journal.health().lag == 0.0, message="the journal is written")
    serving_certificate(folder, ["localhost", "inspection.muster-system.svc"])
    port = free_port()
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, kubeconfig_of_muster(control_plane), f"127.0.0.1:{port}", str(folder)],
        stdout=log,
        stderr=log,
    )
    try:
        eventually(
            lambda: (folder / "ready").exists() or process.poll(),
            seconds=60,
            message=f"inspection does not start: {folder}/log",
        )
        yield Inspection(f"https://localhost:{port}", folder, process, port)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()
        journal.close()
        log.close()


@pytest.fixture(scope="module")
def aggregated(control_plane: ControlPlane, api: Api, inspection: Inspection) -> Inspection:
    """The API server passes both groups on, and everyone has the rights of this module."""
    for namespace in ("muster-system", "team-a", "team-b"):
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    # A name for this machine: the aggregator refuses Endpoints on loopback, and there is no proxy for services here.
    api.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "inspection", "namespace": "muster-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": inspection.port}]},
        }
    )
    roles: dict[str, list[dict[str, Any]]] = {
        "viewers": [
            {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["get"]},
            {"apiGroups": ["kueue.x-k8s.io"], "resources": ["clusterqueues"], "verbs": ["get", "list"]},
        ],
        "through": [{"apiGroups": ["inspection.muster.dev"], "resources": ["*"], "verbs": ["get", "list"]}],
    }
    for name, rules in roles.items():
        api.create(rbac("ClusterRole", name, rules=rules))
    api.create(rbac("ClusterRoleBinding", "viewers", role="viewers", group="viewers"))
    api.create(rbac("ClusterRoleBinding", "through", role="through", group="system:authenticated"))
    own = [
        {"apiGroups": [GROUP], "resources": ["localqueues/pendingworkloads"], "verbs": ["get"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list"]},
    ]
    api.create(rbac("Role", "team", "team-a", rules=own))
    api.create(rbac("RoleBinding", "team", "team-a", role="team", group="team-a"))
    ca = (inspection.folder / "ca.crt").read_bytes()
    for group, version in ((GROUP, "v1beta2"), (GROUP, "v1beta1"), ("inspection.muster.dev", "v1")):
        api.create(api_service(group, version, inspection.port, ca))
    for group, version in ((GROUP, "v1beta2"), (GROUP, "v1beta1"), ("inspection.muster.dev", "v1")):
        eventually(lambda g=group, v=version: is_available(api, f"{v}.{g}"), seconds=60)
        # Who passes requests on hears of it a moment after it is stored.
        eventually(lambda g=group, v=version: api.request("GET", f"/apis/{g}/{v}"))
    return inspection


def rbac(
    kind: str, name: str, namespace: str = "", *, rules: Any = None, role: str = "", group: str = ""
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
    }
    if rules is not None:
        return {**body, "rules": rules}
    role_kind = kind.removesuffix("Binding")
    return {
        **body,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    }


def api_service(group: str, version: str, port: int, ca: bytes) -> dict[str, Any]:
    import base64

    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.{group}"},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": base64.b64encode(ca).decode(),
            "service": {"name": "inspection", "namespace": "muster-system", "port": port},
        },
    }


def is_available(api: Api, name: str) -> bool:
    conditions = api.get("APIService", name).get("status", {}).get("conditions", [])
    answer = {c["type"]: c for c in conditions}.get("Available", {})
    assert answer.get("status") == "True", answer
    return True


def test_kubectl_reads_what_waits(control_plane: ControlPlane, aggregated: Inspection) -> None:
    summary = json.loads(control_plane.kubectl("get", "--raw", CQ).stdout)
    assert summary["kind"] == "PendingWorkloadsSummary"
    assert [(i["metadata"]["name"], i["positionInClusterQueue"]) for i in summary["items"]] == [
        ("secret", 0),
        ("job-train", 1),
    ]
    paged = json.loads(control_plane.kubectl("get", "--raw", CQ + "?limit=1&offset=1").stdout)
    assert [i["metadata"]["name"] for i in paged["items"]] == ["job-train"]
    older = json.loads(control_plane.kubectl("get", "--raw", LQ.replace("v1beta2", "v1beta1")).stdout)
    assert older["apiVersion"] == f"{GROUP}/v1beta1"


def test_the_command_line_asks_it_through_the_api_server(control_plane: ControlPlane, aggregated: Inspection) -> None:
    command = [sys.executable, "-m", "admission.cli", "-n", "team-a", "usage", "--by", "namespace", "-o", "json"]
    more = ["--kubeconfig", control_plane.kubeconfig_of("team")]
    root = Path(__file__).parents[2]
    ended = subprocess.run([*command, *more], capture_output=True, text=True, check=True, cwd=root)
    answer = json.loads(ended.stdout)
    assert (answer["source"], {each["namespace"] for each in answer["items"]}) == ("inspection", {"team-a"})
    assert answer["items"][0]["hours"] > 0
    assert ended.stderr == ""


def test_discovery_goes_through_the_aggregator(control_plane: ControlPlane, aggregated: Inspection) -> None:
    def lists(command: str) -> str:
        done = control_plane.kubectl(command, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    # The API server gathers what they all serve a moment after it serves them.
    wanted = {f"{GROUP}/v1beta2", f"{GROUP}/v1beta1", "inspection.muster.dev/v1"}
    eventually(lambda: wanted <= set(lists("api-versions").split()))
    groups = {g["name"]: g for g in control_plane.api.request("GET", "/apis")["groups"]}
    assert groups[GROUP]["preferredVersion"]["version"] == "v1beta2"
    listed = eventually(lambda: lists("api-resources"))
    assert "inspection.muster.dev" not in listed, "`kubectl get queues` stays Kueue's"


def test_the_api_server_takes_the_openapi_over(control_plane: ControlPlane, aggregated: Inspection) -> None:
    path = f"apis/{GROUP}/v1beta2"

    def raw(where: str) -> Any:
        return json.loads(control_plane.kubectl("get", "--raw", where).stdout)

    found = eventually(lambda: raw("/openapi/v3")["paths"][path], seconds=60, every=0.5)
    assert len(raw(found["serverRelativeURL"])["paths"]) == 2
    merged = eventually(
        lambda: {p for p in raw("/openapi/v2")["paths"] if p.startswith(f"/{path}/")}, seconds=60, every=1
    )
    assert f"/{path}/clusterqueues/{{name}}/pendingworkloads" in merged


#: path -> what viewer, team and nobody get, through the API server
MATRIX = {
    CQ: (200, 403, 403),
    LQ: (200, 200, 403),
    LQ.replace("team-a", "team-b"): (200, 403, 403),
    CQ.replace("/cq/", "/none/"): (404, 403, 403),
    LQ.replace("/lq/", "/none/"): (404, 404, 403),
    OWN + "/queues": (200, 403, 403),
    OWN + "/queues?namespace=team-a": (200, 200, 403),
    OWN + "/queues/cq/pending?namespace=team-b": (200, 403, 403),
    OWN + "/workloads/team-a/train": (403, 200, 403),
    OWN + "/usage?by=namespace&namespace=team-a": (200, 200, 403),
    OWN + "/decisions": (200, 403, 403),
    OWN + "/page": (200, 403, 403),
    OWN + "/page?namespace=team-a": (200, 200, 403),
    OWN + "/page/cohorts": (200, 403, 403),
    OWN + "/page/topology": (200, 403, 403),
    OWN + "/page/queues/cq?namespace=team-a": (200, 200, 403),
    OWN + "/page/workloads/team-a/train": (403, 200, 403),
    OWN + "/page/usage.csv?namespace=team-a": (200, 200, 403),
}


def status(api: Api, path: str) -> int:
    try:
        api.request("GET", path)
    except ApiError as error:
        return error.status
    return 200


def test_the_clusters_roles_decide(control_plane: ControlPlane, aggregated: Inspection) -> None:
    users = [control_plane.api_of(user) for user in ("viewer", "team", "nobody")]
    assert {path: tuple(status(user, path) for user in users) for path in MATRIX} == MATRIX


def test_the_same_rights_hold_for_a_token_sent_directly(control_plane: ControlPlane, aggregated: Inspection) -> None:
    tokens = [control_plane.tokens[user] for user in ("viewer", "team", "nobody")]
    assert {path: tuple(aggregated.as_(t, path).status_code for t in tokens) for path in MATRIX} == MATRIX
    assert aggregated.as_(control_plane.tokens["viewer"], "/").status_code == 200
    assert aggregated.as_(control_plane.tokens["viewer"], "/api/v1/queues/cq").json()["cohort"] == "research"


def test_nothing_but_health_is_open(aggregated: Inspection) -> None:
    assert aggregated.get("/healthz").text == "ok"
    for path in ("/", "/api/v1/queues", CQ, OWN + "/queues", "/apis", "/openapi/v2", "/openapi/v3"):
        assert aggregated.get(path).status_code == 401, path
        assert aggregated.as_("no-such-token", path).status_code == 401, path
        headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
        assert aggregated.get(path, headers=headers).status_code == 401, path


def test_only_the_aggregators_certificate_makes_headers_count(
    control_plane: ControlPlane, aggregated: Inspection, tmp_path: Path
) -> None:
    headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    pki = control_plane.folder / "pki"
    genuine = aggregated.get(CQ, headers=headers, cert=(str(pki / "front-proxy.crt"), str(pki / "front-proxy.key")))
    assert genuine.status_code == 200
    other = Authority("front-proxy-ca")
    other.issue("front-proxy", tmp_path, "forged")
    with pytest.raises(requests.exceptions.RequestException) as refused:
        aggregated.get(CQ, headers=headers, cert=(str(tmp_path / "forged.crt"), str(tmp_path / "forged.key")))
    assert "unknown ca" in str(refused.value).lower() or isinstance(refused.value, requests.exceptions.ConnectionError)
    assert aggregated.get("/healthz").text == "ok", "and it goes on serving"


def test_a_group_with_a_comma_opens_nothing(control_plane: ControlPlane, aggregated: Inspection) -> None:
    """The aggregator sends one header line for each group, and a group may be called anything."""
    pki = control_plane.folder / "pki"
    cert = (str(pki / "front-proxy.crt"), str(pki / "front-proxy.key"))
    sly = aggregated.get(CQ, headers={"X-Remote-User": "sly", "X-Remote-Group": "cn=x,system:masters"}, cert=cert)
    assert sly.status_code == 403


def test_a_replaced_certificate_is_served_without_a_restart(aggregated: Inspection) -> None:
    def served() -> str:
        return ssl.get_server_certificate(("localhost", aggregated.port))

    before = served()
    kept = [(aggregated.folder / name).read_bytes() for name in ("ca.crt", "tls.crt", "tls.key")]
    serving_certificate(aggregated.folder, ["localhost", "inspection.muster-system.svc"])
    try:
        eventually(lambda: served() != before)
        assert aggregated.get("/healthz").text == "ok"
    finally:
        for name, content in zip(("ca.crt", "tls.crt", "tls.key"), kept, strict=True):
            (aggregated.folder / name).write_bytes(content)
    assert served() == before


def test_without_the_api_server_no_one_is_let_in_and_health_stays(
    control_plane: ControlPlane, aggregated: Inspection
) -> None:
    process = control_plane.processes["kube-apiserver"]
    process.send_signal(signal.SIGSTOP)
    try:
        assert aggregated.get("/healthz").text == "ok"
        answer = aggregated.as_("some-new-token", "/api/v1/queues")
        assert answer.status_code == 503
    finally:
        process.send_signal(signal.SIGCONT)
    eventually(lambda: aggregated.as_(control_plane.token, "/api/v1/queues").status_code == 200)


def test_it_ends_in_order(aggregated: Inspection) -> None:
    begin = time.monotonic()
    aggregated.process.terminate()
    assert aggregated.process.wait(5) == 0
    assert time.monotonic() - begin < 3
