"""Every kind of job under the shipped service account: all calls of Muster's are allowed, and no others.

Judged from the API server's audit log, so that no call is forgotten. The first write to each object is answered with a
conflict, as when somebody else was faster: what is read again then belongs to the rights as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from admission.api.job_kinds import JOB_KINDS
from admission.resources import webhook_config
from admission.settings.problems import FRAMEWORKS
from tests.cluster import account, custom_kinds
from tests.cluster.faulty import Answer, Asked, Fault, Faulty, faulty
from tests.cluster.kubelet import Kubelet, own_address
from tests.cluster.test_serving_kinds import crd as leader_worker_sets
from tests.cluster.test_serving_kinds import group_pod, leader_worker_set, serving
from tests.cluster.town import condition, gates, is_true, job, kueue, pod
from tests.controlplane.cluster import Api, ControlPlane
from tests.controlplane.cluster import eventually as soon
from tests.unit.jobs.custom_jobs import KINDS, Kind

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
NAMESPACE = "muster-system"
CHECKS = "example.com/checks"
CONTROL_PLANE: dict[str, Any] = {
    "controllers": ["garbage-collector-controller", "statefulset-controller"],
    "api_args": ["--enable-aggregator-routing=true"],
}
Object = dict[str, Any]


def eventually(question: Any, message: str) -> Any:
    return soon(question, seconds=90, message=message)


class Call(NamedTuple):
    """What a rule of RBAC speaks of."""

    group: str
    resource: str
    verb: str


@dataclass
class Installed:
    plane: ControlPlane
    folder: Path
    kubelet: Kubelet

    def configure(self, name: str, frameworks: tuple[str, ...]) -> None:
        """With these kinds of jobs, by a kustomization of one's own."""
        settings = yaml.safe_load((webhook_config() / "configuration.yaml").read_text())
        settings["integrations"]["frameworks"] = list(frameworks)
        settings["featureGates"] = {
            "SparkApplicationIntegration": True,
            "KueueDRAIntegrationConsumableCapacity": True,
        }
        capacity = {
            "name": "memory",
            "driver": "gpus.example.com",
            "deviceSelector": {"cel": {"expression": "device.driver != ''"}},
        }
        devices = {"name": "devices", "deviceClassNames": ["gpu"], "sources": [{"capacity": capacity}]}
        settings["resources"] = {"deviceClassMappings": [devices]}
        settings["fairSharing"] = {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}
        settings["objectRetentionPolicies"] = {"workloads": {"afterDeactivatedByKueue": "0s"}}
        self.folder.mkdir(exist_ok=True)
        (self.folder / "config.yaml").write_text(yaml.safe_dump(settings))
        (self.folder / "muster").unlink(missing_ok=True)
        (self.folder / "muster").symlink_to(ROOT)
        generator = {"name": "muster-configuration", "namespace": NAMESPACE, "behavior": "replace"}
        body = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": ["muster/webhook-config"],
            "configMapGenerator": [{**generator, "files": ["config.yaml"]}],
        }
        (self.folder / "kustomization.yaml").write_text(yaml.safe_dump(body))
        rendered = list(yaml.safe_load_all(self.plane.kubectl("kustomize", str(self.folder)).stdout))
        # No controller of Deployments here: one pod, as the ReplicaSet would make it.
        (deployment,) = [each for each in rendered if each["kind"] == "Deployment"]
        kept = [each for each in rendered if each is not deployment]
        (self.folder / "rendered.yaml").write_text(yaml.safe_dump_all(kept))
        self.plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(self.folder / "rendered.yaml"))
        template = deployment["spec"]["template"]
        metadata = {**template["metadata"], "name": name, "namespace": NAMESPACE}
        self.template = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}

    def run(self) -> None:
        """The pod in place of the one before."""
        api = self.plane.api
        for each in api.list("Pod", NAMESPACE):
            api.delete("Pod", each["metadata"]["name"], NAMESPACE)
        eventually(lambda: api.list("Pod", NAMESPACE) == [], "the pod before ends")
        api.create(self.template)
        name = self.template["metadata"]["name"]
        eventually(
            lambda: not self.kubelet.faults and is_true(api.get("Pod", name, NAMESPACE), "Ready"),
            f"Muster is ready {self.kubelet.faults}",
        )
        probe = kueue("ResourceFlavor", "probe", {})
        eventually(lambda: api.create(probe, dry_run=True)["metadata"]["finalizers"], "reviews are answered")


class Once:
    """Somebody else was faster, once for each object."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    def __call__(self, asked: Asked) -> Fault:
        first = (asked.method, asked.path) not in self.seen
        self.seen.add((asked.method, asked.path))
        # Those that wait for seconds after it, and read the object each time anyway.
        waits = asked.is_of("leases") or (asked.method == "DELETE" and "admissionregistration" in asked.path)
        return Answer(409) if first and asked.method in {"PATCH", "PUT", "DELETE"} and not waits else None


@pytest.fixture(scope="module")
def between(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    with faulty(control_plane, Path(tmp_path_factory.mktemp("between"))) as one:
        one.fault = Once()
        yield one


@pytest.fixture(scope="module")
def installed(
    control_plane: ControlPlane, between: Faulty, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    address = own_address()
    if address is None:
        pytest.skip("this machine has only loopback addresses, which may not stand in an EndpointSlice")
    custom_kinds.serve(control_plane)
    control_plane.api.apply(leader_worker_sets())
    folder = Path(tmp_path_factory.mktemp("rights"))
    pods = folder / "pods"
    pods.mkdir()
    images = {"muster:0.1.0": ROOT}
    with Kubelet(control_plane, NAMESPACE, pods, images, address, between.kubeconfig) as one:
        made = Installed(control_plane, folder / "manifests", one)
        made.configure("every-kind", FRAMEWORKS)
        # Muster makes what is missing of these.
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            for each in control_plane.api.list(kind):
                control_plane.api.delete(kind, each["metadata"]["name"])
        made.run()
        yield made
    assert one.faults == []
    assert one.said("Traceback") == []


# ------------------------------------------------------------------ work


class Queue:
    """With room for everything, and a check that the test answers."""

    def __init__(self, plane: ControlPlane) -> None:
        self.api, self.name = plane.api, plane.namespace()
        api, name = self.api, self.name
        covered = ["cpu", "memory", "nvidia.com/gpu", "devices"]
        flavor = {"name": name, "resources": [{"name": each, "nominalQuota": "1T"} for each in covered]}
        spec = {
            "namespaceSelector": {},
            "cohortName": name,
            "resourceGroups": [{"coveredResources": covered, "flavors": [flavor]}],
            "admissionChecksStrategy": {"admissionChecks": [{"name": name}]},
        }
        api.create(kueue("Topology", name, {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}))
        api.create(kueue("AdmissionCheck", name, {"controllerName": CHECKS}))
        eventually(lambda: api.get("AdmissionCheck", name)["metadata"].get("finalizers"), "the check is taken note of")
        api.create(kueue("ResourceFlavor", name, {"nodeLabels": {"pool": "h100"}}))
        active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": NOW}
        api.patch("AdmissionCheck", name, {"status": {"conditions": [active]}}, sub="status")
        api.create(kueue("Cohort", name, {}))
        api.create(kueue("ClusterQueue", name, spec))
        api.create(kueue("LocalQueue", "lq", {"clusterQueue": name}, name))
        eventually(lambda: is_true(api.get("LocalQueue", "lq", name), "Active"), "the queue is active")

    def workloads(self) -> list[Object]:
        return self.api.list("Workload", self.name)

    def answers(self, state: str) -> bool:
        """The check, for all of the queue that have quota and no such answer yet."""
        for each in self.workloads():
            said = {check["state"] for check in each["status"].get("admissionChecks") or ()}
            if not is_true(each, "QuotaReserved") or said == {state}:
                continue
            check = {"name": self.name, "state": state, "message": "", "lastTransitionTime": NOW}
            body = {"status": {"admissionChecks": [check]}}
            self.api.patch("Workload", each["metadata"]["name"], body, self.name, sub="status")
        return True

    def stop(self, policy: str) -> None:
        self.api.patch("ClusterQueue", self.name, {"spec": {"stopPolicy": policy}})

    def all(self, type_: str, status: str = "True") -> bool:
        return all(condition(each, type_).get("status") == status for each in self.workloads())

    def delete(self) -> None:
        self.api.delete("LocalQueue", "lq", self.name)
        kinds = ("ClusterQueue", "Cohort", "ResourceFlavor", "AdmissionCheck", "Topology")
        for kind in kinds:
            self.api.delete(kind, self.name)
        for kind in kinds:
            eventually(lambda kind=kind: self.api.find(kind, self.name) is None, f"the {kind} goes")


NOW = "2026-01-01T00:00:00Z"


def made(api: Api, kind: Kind, namespace: str) -> Object:
    """A job of this kind with all that its operator would make of it."""
    raw = kind.make()
    owner = api.create(placed(raw, namespace))
    for part in kind.parts(raw):
        body = placed(part, namespace)
        body["metadata"]["name"] = owner["metadata"]["name"]
        for reference in body["metadata"].get("ownerReferences") or ():
            reference |= {"uid": owner["metadata"]["uid"], "name": owner["metadata"]["name"]}
        api.create(body)
    return owner


def placed(raw: Object, namespace: str) -> Object:
    metadata = {
        key: raw["metadata"][key] for key in ("labels", "annotations", "ownerReferences") if key in raw["metadata"]
    }
    name = f"{raw['kind'].lower()}-{raw['metadata']['name']}"
    spec = raw["spec"] | ({"shutdownAfterJobFinishes": True} if raw["kind"] == "RayJob" else {})
    return {**raw, "metadata": {**metadata, "name": name, "namespace": namespace}, "spec": spec, "status": {}}


def suspended(job_: Object) -> bool:
    value: Any = job_["spec"]
    for part in next((kind.suspend for kind in JOB_KINDS if kind.kind == job_["kind"]), ("suspend",)):
        value = value.get(part) or {}
    return value is True


# ------------------------------------------------------------------ the calls


def asked(events: list[Object]) -> set[Call]:
    found = set()
    for each in events:
        if (what := each.get("objectRef")) is not None:
            sub = f"/{what['subresource']}" if "subresource" in what else ""
            found.add(Call(what.get("apiGroup", ""), what["resource"] + sub, each["verb"]))
    return found


def shipped() -> set[Call]:
    """What Muster's own roles let it do."""
    documents = yaml.safe_load_all((webhook_config() / "rbac.yaml").read_text())
    return {
        Call(group, resource, verb)
        for each in documents
        if each["kind"] in {"ClusterRole", "Role"}
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_all_kinds_live_with_the_rights_that_are_shipped(control_plane: ControlPlane, installed: Installed) -> None:
    api, queue = control_plane.api, Queue(control_plane)
    ns = queue.name
    jobs = [made(api, kind, ns) for kind in KINDS]
    jobs.append(api.create(job(ns, "job", 1, 0, queue="lq")))
    api.create(pod(ns, "pod", 0, queue="lq"))
    api.create(serving("StatefulSet", ns, "set", 1, 0, queue="lq"))
    group = leader_worker_set(ns, "llm", 1, 1)
    group["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "lq"}
    api.create(group_pod(api.create(group), 0, 0))
    number = len(jobs) + 3

    def current() -> list[Object]:
        return [api.get(each["kind"], each["metadata"]["name"], ns) for each in jobs]

    def starts() -> None:
        eventually(lambda: len(queue.workloads()) == number and queue.all("QuotaReserved"), "all have quota")
        # An eviction that is still under way asks the check again.
        eventually(lambda: queue.answers("Ready") and queue.all("Admitted"), "all are admitted")
        eventually(lambda: not any(map(suspended, current())), "all jobs start")

    starts()
    eventually(lambda: not gates(api.get("Pod", "pod", ns)), "so does the pod")
    # As the controller of Jobs does; those before 1.36 do not take it back.
    api.patch("Job", "job", {"status": {"startTime": NOW}}, ns, sub="status")

    queue.stop("HoldAndDrain")
    eventually(lambda: all(map(suspended, current())), "all jobs are stopped")
    eventually(lambda: api.find("Pod", "pod", ns) is None, "the pod is deleted")
    queue.stop("None")
    api.create(pod(ns, "pod", 0, queue="lq"))
    starts()
    eventually(
        lambda: (
            queue.answers("Rejected")
            and not [each for each in jobs if api.find(each["kind"], each["metadata"]["name"], ns)]
        ),
        "jobs are deleted",
    )

    for kind in ("StatefulSet", "LeaderWorkerSet"):
        for each in api.list(kind, ns):
            api.delete(kind, each["metadata"]["name"], ns)
    for each in api.list("Pod", ns):
        api.delete("Pod", each["metadata"]["name"], ns, grace=0)
    eventually(lambda: queue.workloads() == [], "their Workloads go")
    queue.delete()
    installed.configure("few-kinds", FRAMEWORKS[:2])
    for each in api.list("ValidatingAdmissionPolicyBinding"):
        api.patch(each["kind"], each["metadata"]["name"], {"spec": {"validationActions": ["Warn"]}})
    installed.run()
    eventually(
        lambda: not [e for e in api.list("ValidatingAdmissionPolicy") if "custom" in e["metadata"]["name"]],
        "policies go",
    )
    assert account.refused(control_plane) == []


def test_no_right_is_shipped_that_nobody_uses(control_plane: ControlPlane, installed: Installed) -> None:
    used = asked(account.calls(control_plane))
    unused = [f"{call.verb} {call.resource}.{call.group}" for call in sorted(shipped() - used)]
    assert unused == [], "\n".join(unused)
