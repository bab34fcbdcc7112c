"""A tenant who may do anything in its own namespace, and wants to stop Muster or have what belongs to others.

Whatever it writes is refused or does no harm: the neighbour is admitted as if nothing were, the tenant holds no more
than its queue gives, and nobody finds a bug in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.account import kubeconfig_of_muster
from tests.cluster.controller_rig import SETTINGS, Running
from tests.cluster.faulty import sample
from tests.cluster.town import GPU, GROUP, QUEUE, TOTAL, condition, gates, is_true, job, kueue, pod
from tests.cluster.webhook_process import WebhookProcess, serving
from tests.controlplane.cluster import Api, ApiError, ControlPlane, eventually

pytestmark = pytest.mark.cluster

CONTROL_PLANE = {"users": {"tenant": []}, "controllers": ["resourcequota-controller"]}
ROOT = Path(__file__).parents[2]
NOMINAL = 4

#: Everything in its own namespace, but the status of Workloads: no role that Muster ships gives that to people.
RULES = [
    {"apiGroups": ["", "batch"], "resources": ["pods", "pods/status", "jobs", "configmaps"], "verbs": ["*"]},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "localqueues"], "verbs": ["*"]},
]


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookProcess]:
    with serving(control_plane, Path(tmp_path_factory.mktemp("webhook"))) as made:
        yield made
        assert "a review failed" not in made.log()
        assert "Traceback" not in made.log()


@pytest.fixture(scope="module")
def running(control_plane: ControlPlane, webhook: WebhookProcess) -> Iterator[Running]:
    import msgspec

    settings = msgspec.structs.replace(SETTINGS, integrations=webhook.settings.integrations)
    controller = Running(kubeconfig_of_muster(control_plane), settings).start()
    yield controller
    controller.stop()


@pytest.fixture(scope="module")
def evil(control_plane: ControlPlane, running: Running) -> str:
    name = team(control_plane, "evil", NOMINAL)
    api = control_plane.api
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "all", "namespace": name}}
    api.create({**role, "rules": RULES})
    subject = {"apiGroup": group, "kind": "User", "name": "tenant"}
    reference = {"apiGroup": group, "kind": "Role", "name": "all"}
    api.create({**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]})
    tenant = control_plane.api_of("tenant")
    eventually(lambda: tenant.list("Workload", name) == [], message="the tenant has its rights")
    return name


@pytest.fixture(scope="module")
def good(control_plane: ControlPlane, running: Running) -> str:
    return team(control_plane, "good", NOMINAL)


@pytest.fixture
def tenant(control_plane: ControlPlane, evil: str) -> Api:
    return control_plane.api_of("tenant")


def team(plane: ControlPlane, name: str, nominal: int) -> str:
    """A namespace whose ClusterQueue takes Workloads from it alone."""
    api = plane.api
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    api.create(kueue("ResourceFlavor", name, {}))
    quotas = [{"name": each, "nominalQuota": str(nominal)} for each in (GPU, "cpu", "memory", "pods")]
    flavor = {"name": name, "resources": quotas}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    groups = [{"coveredResources": [GPU, "cpu", "memory", "pods"], "flavors": [flavor]}]
    api.create(kueue("ClusterQueue", name, {"namespaceSelector": selector, "resourceGroups": groups}))
    api.create(kueue("LocalQueue", "default", {"clusterQueue": name}, name))
    eventually(lambda: api.get("LocalQueue", "default", name)["status"]["conditions"])
    return name


def template(requests: Any = None, **spec: Any) -> dict[str, Any]:
    resources = {"requests": requests or {GPU: "1"}}
    return {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": resources}], **spec}
    }


def workload(name: str, requests: Any = None, *, metadata: Any = None, **spec: Any) -> dict[str, Any]:
    pod_sets = spec.pop("podSets", [{"name": "main", "count": 1, "template": template(requests)}])
    made = kueue("Workload", name, {"queueName": "default", "podSets": pod_sets, **spec}, "evil")
    made["metadata"] |= metadata or {}
    return made


LONG = "x" * 250_000
MANY = [f"value-{number}" for number in range(10_000)]
#: In a pod, it keeps the API server itself busy for minutes, whoever is installed beside it.
BEYOND = "1e2147483648"
QUANTITIES = [
    "-4", "-1m", "0", "1e1000", "1e-1000", "9" * 300, "0x10", "1_0", "٣", "NaN", "Infinity", "", " 1", "1 ", "1Zi",
    "9223372036854775808", "18446744073709551616Ei", "0." + "0" * 200 + "1", BEYOND, "²", "1\u200b", "½",
]  # fmt: skip


def affinity(values: list[str], operator: str = "NotIn") -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": "example.com/gpu", "operator": operator, "values": values}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def owner(kind: str, name: str, uid: str, api_version: str = "batch/v1", *, controller: bool = True) -> dict[str, Any]:
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": controller}
    return {"ownerReferences": [reference]}


def hostile() -> Iterator[tuple[str, dict[str, Any]]]:
    """What is written, with a name for each."""
    for number, quantity in enumerate(QUANTITIES):
        yield f"a Workload of {quantity[:24]!r} GPUs", workload(f"quantity-{number}", {GPU: quantity})
        if quantity != BEYOND:
            yield f"a pod of {quantity[:24]!r} GPUs", sized(f"quantity-{number}", {GPU: quantity})
    huge = [{"name": "main", "count": 2**31 - 1, "template": template({"memory": "8Ei", GPU: "9223372036854775807"})}]
    yield "a Workload of more than 64 bits", workload("huge", podSets=huge)
    for count in (0, -1, 2**31, 2**63):
        sets = [{"name": "main", "count": count, "template": template()}]
        yield f"a Workload of {count} pods", workload(f"count-{count}".replace("--", "-m"), podSets=sets)
    for names in (["a", "a"], [f"p{number}" for number in range(200)], ["ü"], ["x" * 300]):
        sets = [{"name": name, "count": 1, "template": template()} for name in names]
        yield (
            f"a Workload of {len(names)} pod sets {names[0][:9]}",
            workload(f"sets-{len(names)}-{len(names[0])}", podSets=sets),
        )
    lone = [{"name": "main", "count": 1, "minCount": 0, "template": template()}]
    yield "a Workload that is content with nothing", workload("content", podSets=lone)
    yield "a Workload without a template", workload("bare", podSets=[{"name": "main", "count": 1, "template": {}}])
    yield (
        "a Workload with an empty pod",
        workload("empty", podSets=[{"name": "main", "count": 1, "template": {"spec": {}}}]),
    )
    odd = {"name": "main", "count": 1, "template": {"spec": {"containers": "none", "overhead": 7, "nodeSelector": []}}}
    yield "a Workload whose pod is none", workload("odd", podSets=[odd])
    for priority in (-(2**31), 2**31 - 1, 2**40):
        yield f"a Workload of priority {priority}", workload(f"priority-{abs(priority)}", priority=priority)
    for index, queue in enumerate(("good/default", "../good", "default\u0000", "ü", "x" * 300, "")):
        yield f"a Workload for the queue {queue[:12]!r}", workload(f"queue-{index}", queueName=queue)
    long_metadata = {"annotations": {"example.com/long": LONG}}
    yield "a Workload with a quarter of a MB of annotations", workload("long", metadata=long_metadata)
    yield "a pod with a quarter of a MB of annotations", pod("evil", "long", 1, annotations={"example.com/long": LONG})
    many_labels = {f"example.com/l{number}": "v" * 60 for number in range(2_000)}
    yield "a Workload with 2,000 labels", workload("labels", metadata={"labels": many_labels})
    for operator in ("In", "NotIn"):
        sets = [{"name": "main", "count": 1, "template": template(affinity=affinity(MANY, operator))}]
        yield (
            f"a Workload with an affinity {operator} 10,000 values",
            workload(f"values-{operator.lower()}", podSets=sets),
        )
    tolerations = [{"key": value, "operator": "Exists"} for value in MANY]
    sets = [{"name": "main", "count": 1, "template": template(tolerations=tolerations)}]
    yield "a Workload with 10,000 tolerations", workload("tolerations", podSets=sets)
    many_containers = [{"name": f"c{number}", "image": "i"} for number in range(2_000)]
    sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": many_containers}}}]
    yield "a Workload with 2,000 containers", workload("containers", podSets=sets)
    yield "a Workload of itself", workload("self", metadata=owner("Workload", "self", "0", "kueue.x-k8s.io/v1beta2"))
    yield "a Workload of nobody's Job", workload("nobody", metadata=owner("Job", "none", "not-a-uid"))
    yield "a Workload of a kind that is none", workload("stray", metadata=owner("", "x", "y", "///"))
    for index, group in enumerate(("good", "x" * 63, "-", "a.b", "ü", "g" * 300, "default/x")):
        body = pod("evil", f"group-{index}", 1, queue="default", total=2)
        where = "annotations" if len(group) > 63 else "labels"
        body["metadata"].setdefault(where, {})[GROUP] = group
        yield f"a pod of the group {group[:12]!r}", body
    for total in ("0", "-1", "1e3", "٣", "9" * 400, "1.5", "2147483648"):
        body = pod("evil", f"total-{abs(hash(total)) % 10**6}", 1, queue="default", group="totals")
        body["metadata"]["annotations"] = {TOTAL: total}
        yield f"a pod of a group of {total[:12]!r}", body
    for number in range(40):
        yield (
            f"a pod for the queue {number} that is not there",
            pod("evil", f"nowhere-{number}", 0, queue=f"q-{number}"),
        )
    body = job("evil", "cycle-a", 1, 1, queue="default")
    body["metadata"] |= owner("Job", "cycle-b", "00000000-0000-0000-0000-000000000001")
    yield "a Job of a Job that is not there", body


def sized(name: str, requests: dict[str, str]) -> dict[str, Any]:
    body = pod("evil", name, 0, queue="default")
    amounts = {"cpu": "1m", **requests}
    body["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return body


def held(api: Api, namespace: str) -> dict[str, int]:
    """What each admitted Workload of the namespace holds, as the API server has it."""
    found = {}
    for each in api.list("Workload", namespace):
        for entry in each.get("status", {}).get("admission", {}).get("podSetAssignments") or ():
            assert set((entry.get("flavors") or {}).values()) <= {namespace}, each["metadata"]["name"]
            found[each["metadata"]["name"]] = int(entry.get("resourceUsage", {}).get(GPU, "0"))
    return found


def test_nothing_that_a_tenant_writes_stops_anybody(
    control_plane: ControlPlane,
    running: Running,
    tenant: Api,
    good: str,
    caplog: pytest.LogCaptureFixture,
    record_property: Any,
) -> None:
    caplog.set_level(logging.ERROR)
    answers: dict[str, int] = {}
    for what, body in hostile():
        try:
            tenant.create(body)
            answers[what] = 201
        except ApiError as error:
            answers[what] = error.status
    record_property("refused", sum(status != 201 for status in answers.values()))
    record_property("stored", sum(status == 201 for status in answers.values()))
    assert {what: status for what, status in answers.items() if status >= 500} == {}
    api = control_plane.api
    for number in range(NOMINAL):
        body = workload(f"good-{number}", {GPU: "1", "cpu": "1", "memory": "1"})
        body["metadata"]["namespace"] = good
        api.create(body)
    eventually(lambda: len(held(api, good)) == NOMINAL, seconds=40, message="the neighbour gets all that is its own")
    assert running.error is None
    usage = held(api, "evil")
    assert sum(usage.values()) <= NOMINAL, usage
    assert min(usage.values(), default=0) >= 0, usage
    assert [record.getMessage() for record in caplog.records if "cannot be read" not in record.getMessage()] == []
    told = running.metrics()
    assert sample(told, "muster_core_faults_total") == 0
    assert len([line for line in told.splitlines() if "q-1" in line]) == 0, "no series for what a tenant makes up"


def test_what_a_tenant_says_of_its_own_status_counts_for_nothing(
    control_plane: ControlPlane, running: Running, tenant: Api, evil: str
) -> None:
    """A status comes with no create, and Muster's own is the only one that may be written."""
    admission = {"clusterQueue": "good", "podSetAssignments": [{"name": "main", "count": 1, "flavors": {GPU: "good"}}]}
    body = workload("boasts", {GPU: "100"})
    body["status"] = {"admission": admission}
    assert "admission" not in tenant.create(body).get("status", {})
    with pytest.raises(ApiError) as refused:
        tenant.patch("Workload", "boasts", {"status": {"admission": admission}}, evil, sub="status")
    assert refused.value.status == 403


def test_a_local_queue_into_a_neighbours_cluster_queue_gets_nothing(
    control_plane: ControlPlane, running: Running, tenant: Api, good: str, evil: str
) -> None:
    tenant.create(kueue("LocalQueue", "stolen", {"clusterQueue": good}, evil))
    body = workload("thief", {GPU: "1"}, queueName="stolen")
    tenant.create(body)

    def says_why() -> bool:
        told = condition(control_plane.api.get("Workload", "thief", evil), "QuotaReserved")
        return told.get("status") == "False" and "namespace" in told["message"].lower()

    eventually(says_why)
    assert "thief" not in held(control_plane.api, evil)


def test_gates_come_off_for_nobody_but_muster(control_plane: ControlPlane, tenant: Api, evil: str) -> None:
    made = tenant.create(pod(evil, "gated", 1, queue="default"))
    assert gates(made)
    for patch in (
        {"spec": {"schedulingGates": None}},
        {"metadata": {"labels": {"kueue.x-k8s.io/managed": None}}},
        {"metadata": {"labels": {GROUP: "other"}}},
    ):
        with pytest.raises(ApiError):
            tenant.patch("Pod", "gated", patch, evil)
    tenant.patch("Pod", "gated", {"metadata": {"finalizers": None, "annotations": {"a": "b"}}}, evil)
    assert gates(control_plane.api.get("Pod", "gated", evil))


def quota_of_the_documentation() -> dict[str, Any]:
    """The manifest in SECURITY.md."""
    text = (ROOT / "SECURITY.md").read_text()
    return yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])


def test_the_documented_quota_keeps_system_critical_classes_from_tenants(
    control_plane: ControlPlane, tenant: Api, evil: str
) -> None:
    """Pods of these classes are never queued, so that a tenant must not be able to name them."""
    api = control_plane.api
    critical = pod(evil, "critical", 1)
    critical["spec"]["priorityClassName"] = "system-node-critical"
    assert not gates(tenant.create(critical, dry_run=True))
    quota = quota_of_the_documentation()
    quota["metadata"]["namespace"] = evil
    api.request("POST", f"/api/v1/namespaces/{evil}/resourcequotas", quota)
    path = f"/api/v1/namespaces/{evil}/resourcequotas/{quota['metadata']['name']}"
    eventually(lambda: "pods" in api.request("GET", path)["status"]["hard"])

    def is_refused() -> bool:
        try:
            tenant.create(critical, dry_run=True)
        except ApiError as error:
            return error.status == 403 and "exceeded quota" in error.message
        return False

    eventually(is_refused, message="a pod of a system-critical class is refused")
    assert gates(tenant.create(pod(evil, "ordinary", 1, labels={QUEUE: "default"})))
    with pytest.raises(ApiError):
        tenant.request("DELETE", path)


def test_the_tenant_can_take_its_own_away(
    control_plane: ControlPlane, tenant: Api, evil: str, running: Running
) -> None:
    """And the controller does not mind: what is left is deleted, and the neighbour's stays admitted."""
    for kind in ("Workload", "Pod", "Job"):
        for each in control_plane.api.list(kind, evil):
            tenant.delete(kind, each["metadata"]["name"], evil, grace=0)
    eventually(lambda: not held(control_plane.api, evil), seconds=60, message="nothing is held any more")
    assert all(is_true(each, "Admitted") for each in control_plane.api.list("Workload", "good"))
    assert running.error is None
