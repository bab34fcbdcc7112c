"""A real API server asks the real webhook: what it gates, refuses and leaves alone, and what holds while it is down."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.webhook_objects import GATES, GPU, GROUP, MANAGED, QUEUE, TOTAL, gates, job, owner, pod
from tests.cluster.webhook_process import WebhookProcess, calls, serving
from tests.controlplane.cluster import Api, ApiError, ControlPlane, eventually

pytestmark = pytest.mark.cluster

#: `tenant` may work with pods and jobs, and has no say in what is admitted; `jobs` stands for the Job controller.
CONTROL_PLANE = {
    "users": {
        "tenant": ["tenants"],
        "jobs": ["system:serviceaccounts:kube-system"],
    }
}


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookProcess]:
    rules = [
        {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["*"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
    ]
    api = control_plane.api
    version = "rbac.authorization.k8s.io/v1"
    api.apply({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "works"}, "rules": rules})
    for group in ("tenants", "system:serviceaccounts:kube-system"):
        api.apply(
            {
                "apiVersion": version,
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"works-{group.replace(':', '-')}"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "works"},
                "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group}],
            }
        )
    with serving(control_plane, tmp_path_factory.mktemp("webhook")) as started:
        yield started


@pytest.fixture
def ns(control_plane: ControlPlane, webhook: WebhookProcess) -> str:
    return control_plane.namespace()


@pytest.fixture
def tenant(control_plane: ControlPlane) -> Api:
    return control_plane.api_of("tenant")


def refused(action: Callable[[], Any], *texts: str, status: int | None = None) -> ApiError:
    """An `AssertionError` otherwise, so that it can be asked `eventually`: that of `pytest.raises` would end it."""
    error: ApiError | None = None
    try:
        action()
    except ApiError as caught:
        error = caught
    assert error is not None, "it is not refused"
    assert error.status == status if status else 400 <= error.status < 500, str(error)
    for text in texts:
        assert text in error.message
    return error


# ------------------------------------------------------------------ creates


def test_a_pod_that_names_a_queue_is_gated(tenant: Api, ns: str) -> None:
    made = tenant.create(pod(ns, {QUEUE: "q"}))
    assert gates(made) == GATES
    assert made["metadata"]["labels"] == {QUEUE: "q", MANAGED: "true"}
    assert made["metadata"]["finalizers"] == [MANAGED]


@pytest.mark.parametrize(
    ("limits", "spec"),
    [
        pytest.param({GPU: "1"}, {}, id="a GPU"),
        pytest.param({"nvidia.com/mig-1g.10gb": "1"}, {}, id="a slice of one"),
        pytest.param({"gpu.intel.com/i915": "1"}, {}, id="one of another maker"),
        pytest.param(
            {},
            {"initContainers": [{"name": "i", "image": "n", "resources": {"limits": {GPU: "1"}}}]},
            id="one at the start",
        ),
    ],
)
def test_a_pod_that_asks_for_a_gpu_is_queued(tenant: Api, ns: str, limits: dict, spec: dict) -> None:
    made = tenant.create(pod(ns, limits=limits, **spec))
    assert gates(made) == GATES
    assert made["metadata"]["labels"][QUEUE] == "default"


@pytest.mark.parametrize(
    ("user", "change"),
    [
        pytest.param("tenant", {"limits": {"cpu": "1"}}, id="one without GPUs"),
        pytest.param("tenant", {"limits": {GPU: "0"}}, id="one with no GPUs"),
        pytest.param("tenant", {"limits": {"example.com/gpu": "1"}}, id="one with another resource"),
        pytest.param(
            "tenant", {"limits": {GPU: "1"}, "priorityClassName": "system-node-critical"}, id="a system-critical one"
        ),
        pytest.param("jobs", {"limits": {GPU: "1"}, "metadata": owner("DaemonSet", "apps/v1")}, id="a DaemonSet's"),
        pytest.param("jobs", {"limits": {GPU: "1"}, "metadata": owner("Job", "batch/v1")}, id="a Job's"),
        pytest.param(
            "jobs",
            {
                "labels": {QUEUE: "q", "kueue.x-k8s.io/podset": "main"},
                "limits": {GPU: "1"},
                "metadata": owner("Job", "batch/v1"),
            },
            id="a started Job's",
        ),
    ],
)
def test_a_pod_that_is_nobodys_business_is_not_asked_about(
    control_plane: ControlPlane, ns: str, user: str, change: dict
) -> None:
    before = calls(control_plane.api, "mpod.kb.io")
    made = control_plane.api_of(user).create(pod(ns, **change))
    assert gates(made) == []
    assert MANAGED not in made["metadata"].get("labels", {})
    assert calls(control_plane.api, "mpod.kb.io") == before


@pytest.mark.parametrize("kind", ["DaemonSet", "Job"])
def test_owners_are_not_believed_from_a_tenant(tenant: Api, ns: str, kind: str) -> None:
    version = {"DaemonSet": "apps/v1", "Job": "batch/v1"}[kind]
    assert gates(tenant.create(pod(ns, limits={GPU: "1"}, metadata=owner(kind, version)))) == GATES


def test_exempt_and_own_namespaces_are_left_alone(control_plane: ControlPlane, webhook: WebhookProcess) -> None:
    for name in ("gpu-operator", "muster-system"):
        control_plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        assert gates(control_plane.api.create(pod(name, limits={GPU: "1"}))) == []
    assert gates(control_plane.api.create(pod("kube-system", {QUEUE: "q"}, limits={GPU: "1"}))) == []


def test_a_job_that_names_a_queue_is_suspended(tenant: Api, ns: str) -> None:
    assert tenant.create(job(ns, {QUEUE: "q"}))["spec"]["suspend"] is True


def test_a_job_that_asks_for_gpus_is_queued_whole(tenant: Api, ns: str) -> None:
    made = tenant.create(job(ns, limits={GPU: "8"}))
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"] == {QUEUE: "default"}


def test_a_job_that_names_none_runs(control_plane: ControlPlane, tenant: Api, ns: str) -> None:
    before = [calls(control_plane.api, name) for name in ("mjob.kb.io", "vjob.kb.io")]
    assert tenant.create(job(ns))["spec"]["suspend"] is False
    assert [calls(control_plane.api, name) for name in ("mjob.kb.io", "vjob.kb.io")] == before


@pytest.mark.parametrize(
    ("labels", "annotations", "want"),
    [
        pytest.param({MANAGED: "no"}, {}, MANAGED, id="managed is true or nothing"),
        pytest.param({QUEUE: "q", GROUP: "g"}, {}, TOTAL, id="a group has a size"),
        pytest.param({QUEUE: "q"}, {TOTAL: "2"}, GROUP, id="a size belongs to a group"),
        pytest.param({QUEUE: "q", GROUP: "g"}, {TOTAL: "0"}, TOTAL, id="a group is not empty"),
        pytest.param(
            {QUEUE: "q"}, {"kueue.x-k8s.io/podset-required-topology": "!"}, "podset-required-topology", id="a level"
        ),
    ],
)
def test_what_a_pod_may_not_be_created_with(tenant: Api, ns: str, labels: dict, annotations: dict, want: str) -> None:
    error = refused(lambda: tenant.create(pod(ns, labels, annotations)), want, "denied")
    assert error.status == 403 or QUEUE not in labels
    assert tenant.find("Pod", "p", ns) is None


@pytest.mark.parametrize("value", ["11", "0x9", "99999999999"])
def test_a_bad_minimum_of_parallelism_is_refused(tenant: Api, ns: str, value: str) -> None:
    annotations = {"kueue.x-k8s.io/job-min-parallelism": value}
    made = job(ns, {QUEUE: "q"}, annotations, parallelism=10, completions=10)
    refused(lambda: tenant.create(made), "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]")
    assert tenant.find("Job", "j", ns) is None


def test_negative_requests_give_no_credit(control_plane: ControlPlane, ns: str) -> None:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "-3"}}}]}}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": ns},
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
    want = "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]: Invalid value"
    refused(lambda: control_plane.api.create(workload), want)
    assert control_plane.api.find("Workload", "w", ns) is None


@pytest.mark.parametrize("limit", ["borrowingLimit", "lendingLimit"])
def test_limits_need_a_cohort(control_plane: ControlPlane, webhook: WebhookProcess, limit: str) -> None:
    resources = [{"name": "cpu", "nominalQuota": "4", limit: "1"}]
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "limits"},
        "spec": {
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "df", "resources": resources}]}]
        },
    }
    refused(lambda: control_plane.api.create(queue), "cohort")
    assert control_plane.api.find("ClusterQueue", "limits") is None


def test_queues_and_flavors_in_use_are_kept(control_plane: ControlPlane, webhook: WebhookProcess) -> None:
    for kind in ("ClusterQueue", "ResourceFlavor"):
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "kept"}, "spec": {}}
        assert control_plane.api.create(body)["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]


# ------------------------------------------------------------------ changes


def test_the_queue_of_a_running_job_stays(control_plane: ControlPlane, ns: str) -> None:
    api = control_plane.api
    api.create(job(ns, {QUEUE: "q"}))
    api.patch("Job", "j", {"spec": {"suspend": False}}, ns)
    refused(lambda: api.patch("Job", "j", {"metadata": {"labels": {QUEUE: None}}}, ns), QUEUE)
    api.patch("Job", "j", {"spec": {"suspend": True}}, ns)
    assert QUEUE not in api.patch("Job", "j", {"metadata": {"labels": {QUEUE: None}}}, ns)["metadata"].get("labels", {})


def test_a_job_does_not_leave_where_the_default_queue_would_take_it(control_plane: ControlPlane, ns: str) -> None:
    api = control_plane.api
    api.create(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "default", "namespace": ns},
            "spec": {"clusterQueue": "c"},
        }
    )
    api.create(job(ns, {QUEUE: "q"}))
    leave = {"metadata": {"labels": {QUEUE: None}}}
    # The webhook learns of a new LocalQueue a moment later.
    eventually(
        lambda: refused(
            lambda: api.request(
                "PATCH",
                api.path("Job", ns, "j"),
                leave,
                params={"dryRun": "All"},
                content_type="application/merge-patch+json",
            ),
            QUEUE,
        )
    )
    refused(lambda: api.patch("Job", "j", leave, ns), QUEUE)


def test_a_tenant_does_not_start_a_queued_job(control_plane: ControlPlane, tenant: Api, ns: str) -> None:
    tenant.create(job(ns, limits={GPU: "1"}))
    start = {"spec": {"suspend": False}}
    refused(lambda: tenant.patch("Job", "j", start, ns), "started when it is admitted")
    tenant.patch("Job", "j", {"metadata": {"labels": {QUEUE: None}}}, ns)
    refused(lambda: tenant.patch("Job", "j", start, ns), "started when it is admitted")
    assert control_plane.api.patch("Job", "j", start, ns)["spec"]["suspend"] is False


def test_a_tenant_does_not_take_gates_off(control_plane: ControlPlane, tenant: Api, ns: str) -> None:
    tenant.create(pod(ns, {QUEUE: "q"}))
    ungate = {"spec": {"schedulingGates": None}}
    refused(lambda: tenant.patch("Pod", "p", ungate, ns), "kueue.x-k8s.io/admission")
    assert gates(control_plane.api.patch("Pod", "p", ungate, ns)) == []
    refused(lambda: tenant.patch("Pod", "p", {"metadata": {"labels": {QUEUE: "other"}}}, ns), QUEUE)


@pytest.mark.parametrize(
    ("patch", "want"),
    [
        pytest.param({"metadata": {"labels": {MANAGED: None}}}, MANAGED, id="a managed pod stays managed"),
        pytest.param({"metadata": {"labels": {GROUP: "other"}}}, GROUP, id="a member stays in its group"),
        pytest.param({"metadata": {"annotations": {GROUP: "other"}}}, GROUP, id="by annotation too"),
        pytest.param(
            {"metadata": {"annotations": {"kueue.x-k8s.io/retriable-in-group": "true"}}},
            "retriable-in-group",
            id="what is not retried is not retried",
        ),
    ],
)
def test_what_of_a_managed_pod_does_not_change(tenant: Api, ns: str, patch: dict, want: str) -> None:
    before = tenant.create(
        pod(ns, {QUEUE: "q", GROUP: "g"}, {TOTAL: "2", "kueue.x-k8s.io/retriable-in-group": "false"})
    )
    refused(lambda: tenant.patch("Pod", "p", patch, ns), want)
    assert tenant.get("Pod", "p", ns)["metadata"] == before["metadata"]


def test_a_pod_does_not_become_managed_later(tenant: Api, ns: str) -> None:
    tenant.create(pod(ns))
    refused(lambda: tenant.patch("Pod", "p", {"metadata": {"labels": {MANAGED: "true"}}}, ns), MANAGED)
    assert MANAGED not in tenant.get("Pod", "p", ns)["metadata"].get("labels", {})


# ------------------------------------------------------------------ how often it is asked


def test_a_pod_costs_one_call_and_its_changes_none(control_plane: ControlPlane, ns: str) -> None:
    api = control_plane.api
    before = calls(api, "mpod.kb.io")
    for i in range(5):
        api.create(pod(ns, {QUEUE: "q"}, name=f"p{i}"))
    assert calls(api, "mpod.kb.io") == before + 5
    for i in range(5):
        api.patch("Pod", f"p{i}", {"metadata": {"labels": {"seen": "yes"}}}, ns)
        api.patch("Pod", f"p{i}", {"spec": {"schedulingGates": None}}, ns)
        api.patch("Pod", f"p{i}", {"status": {"phase": "Failed"}}, ns, sub="status")
        api.patch("Pod", f"p{i}", {"metadata": {"finalizers": None}}, ns)
        api.delete("Pod", f"p{i}", ns, grace=0)
    assert calls(api, "mpod.kb.io") == before + 5


def test_starting_a_job_costs_no_call(control_plane: ControlPlane, ns: str) -> None:
    api = control_plane.api
    api.create(job(ns, {QUEUE: "q"}))
    before = [calls(api, name) for name in ("mjob.kb.io", "vjob.kb.io")]
    api.patch("Job", "j", {"spec": {"suspend": False}}, ns)
    api.patch("Job", "j", {"status": {"active": 1}}, ns, sub="status")
    api.patch("Job", "j", {"spec": {"suspend": True}}, ns)
    assert [calls(api, name) for name in ("mjob.kb.io", "vjob.kb.io")] == before


def test_the_status_of_a_workload_costs_no_call(control_plane: ControlPlane, ns: str) -> None:
    api = control_plane.api
    template = {"spec": {"containers": [{"name": "c", "image": "none"}]}}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": ns, "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
    before = calls(api, "vworkload.kb.io")
    api.create(workload)
    api.patch("Workload", "w", {"status": {"requeueState": {"count": 1}}}, ns, sub="status")
    api.patch("Workload", "w", {"metadata": {"labels": {"a": "b"}}}, ns)
    api.patch("Workload", "w", {"metadata": {"finalizers": None}}, ns)
    assert calls(api, "vworkload.kb.io") == before + 1


# ------------------------------------------------------------------ large and strange


def test_a_pod_of_a_megabyte_is_judged(tenant: Api, ns: str) -> None:
    environment = [{"name": f"E{i}", "value": "x" * 1000} for i in range(1000)]
    big = pod(ns, {QUEUE: "q"})
    big["spec"]["containers"][0]["env"] = environment
    assert gates(tenant.create(big)) == GATES


def test_a_pod_of_many_containers_is_judged(tenant: Api, ns: str) -> None:
    containers = [{"name": f"c{i}", "image": "none", "resources": {"limits": {"cpu": "1m"}}} for i in range(1500)]
    containers[-1]["resources"] = {"limits": {GPU: "1"}}
    assert gates(tenant.create(pod(ns, containers=containers))) == GATES


@pytest.mark.parametrize("quantity", ["9" * 30, "1e200", "99999E", "0.000000001"])
def test_hostile_quantities_are_judged(tenant: Api, ns: str, quantity: str) -> None:
    """What the API server takes for a quantity is gated; the rest it refuses itself."""
    body = pod(ns, {QUEUE: "q"}, limits={"memory": quantity})
    with contextlib.suppress(ApiError):
        assert gates(tenant.create(body)) == GATES
        return
    refused(lambda: tenant.create(body))


# ------------------------------------------------------------------ strangers at the door


def test_nobody_keeps_the_webhook_from_answering(webhook: WebhookProcess, tenant: Api, ns: str) -> None:
    """More clients than it has threads say nothing, or half of what they have to; one does not speak TLS at all."""
    address = ("127.0.0.1", webhook.settings.webhook.port)
    half_a_hello = bytes.fromhex("16030100c8010000c40303")
    with contextlib.ExitStack() as open_:
        for said in (b"", half_a_hello, b"GET / HTTP/1.1\r\n\r\n"):
            for _ in range(40):
                stranger = open_.enter_context(socket.create_connection(address))
                stranger.sendall(said)
        begun = time.monotonic()
        assert gates(tenant.create(pod(ns, {QUEUE: "q"}))) == GATES
        assert time.monotonic() - begun < 9


def shaken_hands(webhook: WebhookProcess) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = context.wrap_socket(socket.create_connection(("127.0.0.1", webhook.settings.webhook.port)))
    connection.settimeout(20)
    return connection


def test_who_shakes_hands_and_asks_nothing_takes_no_thread(webhook: WebhookProcess, tenant: Api, ns: str) -> None:
    begun = time.monotonic()
    with contextlib.ExitStack() as open_:
        for _ in range(40):
            open_.enter_context(shaken_hands(webhook))
        assert gates(tenant.create(pod(ns, {QUEUE: "q"}))) == GATES
    assert time.monotonic() - begun < 8, "a thread waits ten seconds for a request"


def test_a_body_that_does_not_come_is_not_waited_for_but_a_request_is(webhook: WebhookProcess) -> None:
    """An API server opens connections that it needs only later; to find one closed then fails somebody's create."""
    head = "POST /mutate--v1-pod HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
    with shaken_hands(webhook) as waiting, shaken_hands(webhook) as connection:
        connection.sendall(f"{head}100\r\n\r\n{{".encode())
        begun = time.monotonic()
        assert b"HTTP/1.1 400" in connection.recv(1000)
        assert 5 < time.monotonic() - begun < 15
        time.sleep(1)
        waiting.sendall(f"{head}2\r\n\r\n{{}}".encode())
        assert b"HTTP/1.1 400" in waiting.recv(1000)


# ------------------------------------------------------------------ the webhook is down


def test_what_holds_while_the_webhook_is_down(control_plane: ControlPlane, webhook: WebhookProcess, ns: str) -> None:
    api, tenant = control_plane.api, control_plane.api_of("tenant")
    tenant.create(pod(ns, {QUEUE: "q"}, name="waiting"))
    tenant.create(pod(ns, {QUEUE: "q"}, name="running"))
    api.patch("Pod", "running", {"spec": {"schedulingGates": None}}, ns)
    tenant.create({**job(ns, {QUEUE: "q"})})
    webhook.end(signal.SIGKILL)
    try:
        assert gates(tenant.create(pod(ns, limits={"cpu": "1"}, name="plain"))) == []
        tenant.create({**job(ns), "metadata": {"name": "plain", "namespace": ns}})
        begun = time.monotonic()
        unavailable = "failed calling webhook"
        refused_while_down(lambda: tenant.create(pod(ns, {QUEUE: "q"}, name="named")), unavailable)
        refused_while_down(lambda: tenant.create(pod(ns, limits={GPU: "1"}, name="gpu")), unavailable)
        refused_while_down(lambda: tenant.create({**job(ns, {QUEUE: "q"}), "kind": "Job"}), "")
        assert time.monotonic() - begun < 10
        for name in ("waiting", "running"):
            api.patch("Pod", name, {"status": {"phase": "Failed"}}, ns, sub="status")
            api.patch("Pod", name, {"metadata": {"finalizers": None}}, ns)
            api.delete("Pod", name, ns, grace=0)
            assert api.find("Pod", name, ns) is None
        refused_while_down(lambda: tenant.create(pod(ns, {MANAGED: "true"}, name="sly")), unavailable)
        api.patch("Job", "j", {"spec": {"suspend": False}}, ns)
        tenant.delete("Job", "j", ns)
        eventually(lambda: api.find("Job", "j", ns) is None)
    finally:
        webhook.start()
    assert gates(tenant.create(pod(ns, {QUEUE: "q"}, name="again"))) == GATES


def refused_while_down(action: Callable[[], Any], text: str) -> None:
    with pytest.raises(ApiError) as caught:
        action()
    assert text in caught.value.message


def test_the_gate_is_demanded_though_nobody_was_asked(control_plane: ControlPlane, tenant: Api, ns: str) -> None:
    """Someone takes the webhook's configuration away: the policy refuses what would have slipped through."""
    api = control_plane.api
    name = "muster-mutating-webhook-configuration"
    configuration = api.get("MutatingWebhookConfiguration", name)
    kept = [each for each in configuration["webhooks"] if each["name"] not in {"mpod.kb.io", "mjob.kb.io"}]
    api.patch("MutatingWebhookConfiguration", name, {"webhooks": kept})
    try:
        texts = ("kueue.x-k8s.io/admission", "ValidatingAdmissionPolicy")
        eventually(lambda: refused(lambda: tenant.create(pod(ns, limits={GPU: "1"}), dry_run=True), *texts))
        refused(lambda: tenant.create(pod(ns, {QUEUE: "q"})), *texts)
        refused(lambda: tenant.create(job(ns, {QUEUE: "q"})), "created suspended")
        assert gates(tenant.create(pod(ns, name="plain"))) == []
    finally:
        api.patch("MutatingWebhookConfiguration", name, {"webhooks": configuration["webhooks"]})
    eventually(lambda: tenant.create(pod(ns, {QUEUE: "q"}), dry_run=True))


def test_it_listens_when_it_answers_and_ends_when_it_is_told(webhook: WebhookProcess) -> None:
    begun = time.monotonic()
    webhook.end()
    assert time.monotonic() - begun < 3
    assert webhook.process is not None
    assert webhook.process.returncode == 0
    webhook.start()


def test_nothing_went_wrong_inside(webhook: WebhookProcess) -> None:
    log = webhook.log()
    assert "Traceback" not in log, log[-3000:]
