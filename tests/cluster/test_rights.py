"""Muster as its own service account: the rights in `webhook-config/rbac.yaml` are enough for the way of a gang."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml

from admission.resources import webhook_config
from tests.controlplane.cluster import KINDS, KUEUE, Api, ControlPlane, free_port
from tests.controlplane.cluster import eventually as soon

pytestmark = pytest.mark.cluster

NAMESPACE = "muster-system"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:muster"
#: The machine may be busy with other tests.
eventually = partial(soon, seconds=30)
GROUPS = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"]
EXPECTED_REFUSALS = "somebody-elses"
CONTROL_PLANE = {"users": {ACCOUNT: GROUPS}, "controllers": ["job-controller", "garbage-collector-controller"]}


@pytest.fixture(scope="module", autouse=True)
def installed(control_plane: ControlPlane, api: Api) -> None:
    """Everything but what calls the webhook: there is no Service network here."""
    everything = list(yaml.safe_load_all(control_plane.kubectl("kustomize", str(webhook_config())).stdout))
    callers = ("WebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "APIService")
    path = control_plane.folder / "manifests.yaml"
    path.write_text(yaml.safe_dump_all(each for each in everything if not each["kind"].endswith(callers)))
    control_plane.kubectl("apply", "--server-side", "-f", str(path))
    for kind in [kind for kind, (version, _, _) in KINDS.items() if version == KUEUE]:
        eventually(lambda kind=kind: api.list(kind) == [], message=f"{kind} is served")


@contextmanager
def muster(control_plane: ControlPlane, folder: Path, command: str) -> Iterator[Path]:
    """One process of Muster with the account's token; gives its log."""
    settings = yaml.safe_load((webhook_config() / "configuration.yaml").read_text())
    settings["webhook"] = {"port": free_port(), "host": "127.0.0.1", "certDir": str(folder / "certificates")}
    settings["health"] = {"healthProbeBindAddress": "0"}
    settings["metrics"] = {"bindAddress": "0"}
    settings["muster"]["stateDir"] = str(folder)
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    options = ["--kubeconfig", control_plane.kubeconfig_of(ACCOUNT), "--config", str(folder / "config.yaml")]
    log = folder / f"{command}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "admission.cli", command, *options], stdout=file, stderr=subprocess.STDOUT
        )
    try:
        yield log
    except BaseException:
        print(log.read_text()[-4000:])
        raise
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def refusals(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if "forbidden" in line.lower()]


def test_a_job_and_a_pod_go_all_the_way(control_plane: ControlPlane, api: Api, tmp_path: Path) -> None:
    quota = [{"name": "cpu", "nominalQuota": 4}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": quota}]}]
    space = control_plane.namespace()
    for each in (
        {"kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {"kind": "Cohort", "metadata": {"name": "all"}},
        {"kind": "ClusterQueue", "metadata": {"name": "cq"},
         "spec": {"cohortName": "all", "namespaceSelector": {}, "resourceGroups": groups}},
        {"kind": "LocalQueue", "metadata": {"name": "q", "namespace": space}, "spec": {"clusterQueue": "cq"}},
    ):  # fmt: skip
        api.create({"apiVersion": KUEUE, **each})
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    api.create({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": space, "labels": labels},
        "spec": {"suspend": True, "template": template}})  # fmt: skip
    gated = {**template["spec"], "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    managed = {**labels, "kueue.x-k8s.io/managed": "true"}
    meta = {"name": "p", "namespace": space, "labels": managed, "finalizers": ["kueue.x-k8s.io/managed"]}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": gated})
    with muster(control_plane, tmp_path, "controller") as log:
        eventually(lambda: not api.get("Job", "j", space)["spec"]["suspend"], message="the job starts")
        eventually(lambda: "schedulingGates" not in api.get("Pod", "p", space)["spec"], message="the pod is released")
        eventually(lambda: api.get("ClusterQueue", "cq")["status"]["admittedWorkloads"] == 2, message="it is counted")
        eventually(lambda: api.get("LocalQueue", "q", space)["status"]["admittedWorkloads"] == 2)
        eventually(lambda: any(each["reason"] == "Admitted" for each in api.list("Event", space)), message="it is told")
        evict = {"spec": {"stopPolicy": "HoldAndDrain"}}
        api.patch("ClusterQueue", "cq", evict)
        eventually(lambda: api.get("Job", "j", space)["spec"]["suspend"], message="the job is stopped")
        eventually(lambda: api.find("Pod", "p", space) is None, message="the pod is deleted and let go")
        api.delete("Job", "j", space)
        eventually(lambda: api.list("Workload", space) == [], message="the workloads go")
        api.delete("LocalQueue", "q", space)
        api.delete("ClusterQueue", "cq")
        eventually(lambda: api.find("ClusterQueue", "cq") is None, message="the finalizer comes off")
    assert refusals(log) == []


def test_the_webhook_keeps_its_certificate_and_what_trusts_it(
    control_plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    with muster(control_plane, tmp_path, "webhook") as log:
        secret = eventually(lambda: api.get("Secret", "kueue-webhook-server-cert", NAMESPACE).get("data"))
        eventually(lambda: trusted(api) == {secret["ca.crt"]}, message="the authority is published")
        eventually(
            lambda: len(api.list("ValidatingAdmissionPolicy")) == len(api.list("ValidatingAdmissionPolicyBinding")) > 0
        )
    assert refusals(log) == []


def test_what_only_looks_like_ours_stays(control_plane: ControlPlane, api: Api, tmp_path: Path) -> None:
    labels = {"app.kubernetes.io/name": "muster", "app.kubernetes.io/component": "webhook"}
    api.create({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "somebody-elses", "labels": labels},
        "spec": {"matchConstraints": {"resourceRules": [
            {"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}]},
            "validations": [{"expression": "true"}]}})  # fmt: skip
    with muster(control_plane, tmp_path, "webhook") as log:
        eventually(lambda: "answering reviews" in log.read_text(), message="it serves all the same")
    assert api.get("ValidatingAdmissionPolicy", "somebody-elses")
    assert all("somebody-elses" in line for line in refusals(log))


def trusted(api: Api) -> set[str]:
    return {
        webhook["clientConfig"].get("caBundle", "")
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        for each in api.list(kind)
        for webhook in each["webhooks"]
    }
