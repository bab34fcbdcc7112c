"""A cluster as Kueue leaves it: with the peer itself where its program is built already, else as it was recorded.

The peer is only built for a test where MUSTER_PEER=1 asks for it, since that takes minutes. What was recorded are the
objects that it left, written again with the uids of this cluster; `record` makes the file anew.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from pathlib import Path
from typing import Any

import yaml

from admission.api import v1beta1_crds
from benchmarks import installed
from benchmarks.contestants import PEER, install_crds
from benchmarks.peer import build
from tests.cluster.town import GPU, QUEUE, is_running, is_true, job, kueue, node, pod
from tests.controlplane.cluster import KINDS, KUEUE, Api, ControlPlane, eventually

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
RECORDED = Path(__file__).parent / "kueue-before.yaml"
ROOT = Path(__file__).parents[2]
TEAM = "team"

#: The settings of its Deployment: some that Muster takes, and some that it does not.
SETTINGS = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: kueue-system
clientConnection: {qps: 50, burst: 100}
integrations:
  frameworks: [batch/job, ray.io/rayjob, pod]
pprofBindAddress: :8083
"""


def has_peer() -> bool:
    """MUSTER_PEER=0 says no whatever is built."""
    built = build.cache_folder() / "peer" / build.key() / "kueue"
    return os.environ.get("MUSTER_PEER") == "1" or (built.exists() and os.environ.get("MUSTER_PEER") != "0")


def queues() -> list[dict[str, Any]]:
    quotas = [{"name": GPU, "nominalQuota": "8"}, {"name": "cpu", "nominalQuota": "100"}]
    flavor = {"name": "h100", "resources": quotas}
    group = {"coveredResources": [GPU, "cpu"], "flavors": [flavor]}
    return [
        kueue("ResourceFlavor", "h100", {"nodeLabels": {"example.com/gpu": "h100"}}),
        kueue("ClusterQueue", "research", {"namespaceSelector": {}, "resourceGroups": [group]}),
        kueue("LocalQueue", "default", {"clusterQueue": "research"}, TEAM),
        {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 1000},
    ]


def work() -> list[dict[str, Any]]:
    """A Job, a group and a pod that run, and a Job for which there is no room."""
    run = {"run_for": "1h"}
    return [
        job(TEAM, "runs", 2, 1, queue="default", priority="high", **run),
        *(pod(TEAM, f"gang-{i}", 1, queue="default", group="gang", total=2, **run) for i in range(2)),
        pod(TEAM, "alone", 1, queue="default", **run),
        job(TEAM, "waits", 1, 4, queue="default", **run),
    ]


def left(plane: ControlPlane) -> None:
    """Kueue has run here, and is stopped or about to be: work runs and waits, its installation is there."""
    api = plane.api
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": installed.PEERS_NAMESPACE}})
    api.create(node("host-0", "rack-0", 8))
    if has_peer():
        _by_the_peer(plane)
    else:
        _as_recorded(plane)
    _installation(api)


def _by_the_peer(plane: ControlPlane) -> None:
    api = plane.api
    install_crds(plane, PEER)
    with installed.installed(PEER, plane):
        *fits, waits = work()
        for obj in (*queues(), *fits):
            eventually(lambda obj=obj: api.create(obj), seconds=30, every=0.3)
        eventually(lambda: _all_run(api), seconds=60, every=0.3, message="Kueue starts what fits")
        api.create(waits)
        eventually(lambda: _all_told(api), message="Kueue says of each what is with it")
        if os.environ.get("MUSTER_RECORD"):
            record(api)
    # The probe of the benchmark's installation.
    api.delete("LocalQueue", "probe", "probe")


def _all_run(api: Api) -> bool:
    return sum(is_running(each) and each["status"].get("phase") == "Running" for each in api.list("Pod", TEAM)) == 5


def _all_told(api: Api) -> bool:
    found = api.list("Workload", TEAM)
    return len(found) == 4 and all(each.get("status", {}).get("conditions") for each in found)


def record(api: Api) -> None:
    """Keep what is there for clusters without the peer."""
    kinds = ("ResourceFlavor", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass", "Job", "Pod", "Workload")
    found = [obj for kind in kinds for obj in api.list(kind) if obj["metadata"].get("namespace") in {None, TEAM}]
    for obj in found:
        for field in ("managedFields", "resourceVersion", "generation", "selfLink"):
            obj["metadata"].pop(field, None)
    RECORDED.write_text(yaml.safe_dump_all(found, sort_keys=False))


def _as_recorded(plane: ControlPlane) -> None:
    api = plane.api
    for file in sorted((ROOT / "webhook-config" / "crds").glob("kueue.x-k8s.io_*.yaml")):
        crd = yaml.safe_load(file.read_text())
        if crd["spec"]["names"]["kind"] == "ResourceFlavor":
            crd = _stored_as_v1beta1(crd)
        api.apply(crd, manager="kueue")
    for kind in [kind for kind, (version, _, _) in KINDS.items() if version == KUEUE]:
        eventually(lambda kind=kind: api.list(kind) == [], message=f"{kind} is served")
    uids: dict[str, str] = {}
    for recorded in yaml.safe_load_all(RECORDED.read_text()):
        obj, status = _with(recorded, uids), _with(recorded.pop("status", None), uids)
        if obj["kind"] == "Pod" and obj["metadata"].get("ownerReferences"):
            continue  # its Job makes another
        obj.pop("status", None)
        old = obj["metadata"].pop("uid", "")
        if obj["kind"] == "Job":
            # The API server fills these in for itself.
            obj["spec"].pop("selector")
            for name in ("controller-uid", "job-name"):
                obj["spec"]["template"]["metadata"]["labels"].pop(f"batch.kubernetes.io/{name}")
                obj["spec"]["template"]["metadata"]["labels"].pop(name)
        made = api.create(obj)
        uids[old] = made["metadata"]["uid"]
        if status and obj["kind"] in {"Workload", "ClusterQueue", "LocalQueue"}:
            name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace")
            api.patch(obj["kind"], name, {"status": status}, namespace, sub="status")
    eventually(lambda: _all_run(api), seconds=60, every=0.3, message="what Kueue had started runs")


def _with(value: Any, uids: dict[str, str]) -> Any:
    """The same with the uids of this cluster, as if it had happened just now: what is old can be too late."""
    match value:
        case dict():
            return {key: _with(item, uids) for key, item in value.items()}
        case list():
            return [_with(item, uids) for item in value]
        case str() if value in uids:
            return uids[value]
        case str() if _TIME.fullmatch(value):
            return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        case _:
            return value


def _stored_as_v1beta1(crd: dict[str, Any]) -> dict[str, Any]:
    both = v1beta1_crds.overlaid(crd, {"url": "https://127.0.0.1:1/convert"})
    both["spec"]["conversion"] = {"strategy": "None"}
    for version in both["spec"]["versions"]:
        version["storage"] = version["name"] == "v1beta1"
    return both


def _installation(api: Api) -> None:
    """The Deployment, its settings, and webhooks that nobody answers once it is stopped."""
    at = {"name": "kueue-controller-manager", "namespace": installed.PEERS_NAMESPACE}
    labels = {"control-plane": "controller-manager", "app.kubernetes.io/name": "kueue"}
    container = {
        "name": "manager",
        "image": "registry.k8s.io/kueue/kueue:v0.17.0",
        "args": ["--config=/controller_manager_config.yaml", "--feature-gates=ElasticJobsViaWorkloadSlices=true"],
    }
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [container],
            "volumes": [{"name": "manager-config", "configMap": {"name": "kueue-manager-config"}}],
        },
    }
    api.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**at, "name": "kueue-manager-config"},
            "data": {"controller_manager_config.yaml": SETTINGS},
        }
    )
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    api.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {**at, "labels": labels}, "spec": spec})
    service = {"selector": labels, "ports": [{"port": 443, "targetPort": 9443}]}
    api.create(
        {"apiVersion": "v1", "kind": "Service", "metadata": {**at, "name": "kueue-webhook-service"}, "spec": service}
    )
    reached = {"service": {"namespace": at["namespace"], "name": "kueue-webhook-service", "path": "/x"}}
    for kind, name in (("MutatingWebhookConfiguration", "mutating"), ("ValidatingWebhookConfiguration", "validating")):
        webhook = {
            "name": f"{name}.kueue.kb.io",
            "clientConfig": reached,
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [
                {
                    "apiGroups": [group],
                    "apiVersions": ["*"],
                    "operations": ["CREATE"],
                    "resources": [resource],
                }
                for group, resource in (("kueue.x-k8s.io", "workloads"), ("batch", "jobs"), ("", "pods"))
            ],
        }
        api.apply(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": f"kueue-{name}-webhook-configuration"},
                "webhooks": [webhook],
            },
            manager="kueue",
        )


__all__ = ["QUEUE", "TEAM", "has_peer", "is_true", "left", "record"]
