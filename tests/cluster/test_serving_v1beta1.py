"""Muster begins to serve v1beta1, goes on over restarts and ends it, each time on a cluster of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from admission.api import crds, kueue, v1beta1, v1beta1_crds
from admission.resources import webhook_config
from tests.cluster.old_client import OVERLAY, V1BETA1, Object, Old, new, pod_set
from tests.cluster.test_cli_dev import ROOT, SETTINGS, Dev
from tests.cluster.test_rights import ACCOUNT, GROUPS
from tests.controlplane.cluster import Api, ControlPlane, free_port
from tests.controlplane.cluster import control_plane as another_plane
from tests.controlplane.cluster import eventually as soon

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

#: The machine may be busy with other tests.
eventually = partial(soon, seconds=30)


def asking_at(plane: ControlPlane, plural: str) -> Object:
    crd = plane.api.get("CustomResourceDefinition", f"{plural}.kueue.x-k8s.io")
    return crd["spec"]["conversion"]["webhook"]["clientConfig"]


def authority(plane: ControlPlane) -> str:
    return asking_at(plane, "workloads")["caBundle"]


def is_served(api: Api) -> bool:
    versions = api.request("GET", "/apis/kueue.x-k8s.io")["versions"]
    return V1BETA1 in {each["groupVersion"] for each in versions}


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    """On a cluster of its own, whose CRDs nobody else changes."""
    with another_plane() as plane:
        one = Dev(plane, tmp_path)
        yield one
        if one.process is not None and one.process.poll() is None:
            one.end(signal.SIGTERM)


def test_muster_dev_serves_v1beta1_while_it_is_asked_for(dev: Dev) -> None:
    api, old = dev.plane.api, Old(dev.plane.api)
    dev.settings.write_text(yaml.safe_dump({**SETTINGS, "muster": {"serveV1beta1": True}}))
    dev.start()
    old.create("ClusterQueue", "q", {"cohort": "c"})
    assert new(api, "ClusterQueue", "q")["spec"]["cohortName"] == "c"
    before = authority(dev.plane)
    subprocess.run(dev.command("--rotate", "--dir", str(dev.folder)), check=True, cwd=ROOT)
    assert authority(dev.plane) != before
    old.patch("ClusterQueue", "q", {"spec": {"cohort": "d"}})
    dev.end(signal.SIGKILL)
    dev.start()
    assert old.get("ClusterQueue", "q")["spec"]["cohort"] == "d"
    dev.end(signal.SIGTERM)
    dev.settings.write_text(yaml.safe_dump(SETTINGS))
    dev.start()
    eventually(lambda: not is_served(api), message="v1beta1 is gone")
    assert eventually(lambda: new(api, "ClusterQueue", "q"))["spec"]["cohortName"] == "d"


def test_removing_muster_dev_takes_v1beta1_away(dev: Dev) -> None:
    dev.settings.write_text(yaml.safe_dump({**SETTINGS, "muster": {"serveV1beta1": True}}))
    dev.start()
    dev.end(signal.SIGTERM)
    done = subprocess.run(dev.command("--remove"), check=True, cwd=ROOT, capture_output=True, text=True)
    assert "removed v1beta1 of workloads.kueue.x-k8s.io" in done.stdout
    eventually(lambda: not is_served(dev.plane.api), message="v1beta1 is gone")
    eventually(lambda: dev.plane.api.list("Workload") == [], message="v1beta2 is served as before")


def as_before(crd: Object) -> Object:
    """As a CRD was when only v1beta1 was stored."""
    overlaid = v1beta1_crds.overlaid(crd, {})
    for version in overlaid["spec"]["versions"]:
        version["storage"] = version["name"] == "v1beta1"
    return {**overlaid, "spec": {**overlaid["spec"], "conversion": {"strategy": "None"}}}


def test_what_was_stored_as_v1beta1_is_read_and_stored_anew(dev: Dev) -> None:
    api, old = dev.plane.api, Old(dev.plane.api)
    for kind in kueue.KINDS:
        api.apply(as_before(crds.crd(kind)))
    spec = {"cohort": "c", "admissionChecks": ["a"], "flavorFungibility": {"whenCanPreempt": "Preempt"}}
    eventually(lambda: old.create("ClusterQueue", "q", spec), message="v1beta1 is served")
    priority = {"priority": 1, "priorityClassName": "p", "priorityClassSource": "scheduling.k8s.io/priorityclass"}
    eventually(lambda: old.create("Workload", "w", {"podSets": [pod_set()], **priority}))
    dev.settings.write_text(yaml.safe_dump({**SETTINGS, "muster": {"serveV1beta1": True}}))
    dev.start()
    stored = new(api, "ClusterQueue", "q")["spec"]
    assert stored["cohortName"] == "c"
    assert stored["admissionChecksStrategy"] == {"admissionChecks": [{"name": "a"}]}
    assert stored["flavorFungibility"] == {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}
    workload = new(api, "Workload", "w")
    assert workload["spec"]["priorityClassRef"]["kind"] == "PriorityClass"
    # As docs/v1beta1.md says: everything is stored anew, and then v1beta1 may go.
    migration = (ROOT / "docs" / "v1beta1.md").read_text().rpartition("```\n")[0].rpartition("```\n")[2]
    path = f"{dev.plane.bin}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": dev.plane.kubeconfig}
    subprocess.run(["bash", "-c", migration], env=environment, check=True, capture_output=True)
    dev.end(signal.SIGTERM)
    dev.settings.write_text(yaml.safe_dump(SETTINGS))
    dev.start()
    eventually(lambda: not is_served(api), message="v1beta1 is gone")
    assert eventually(lambda: new(api, "ClusterQueue", "q"))["spec"] == stored
    assert eventually(lambda: new(api, "Workload", "w"))["spec"] == workload["spec"]


def test_muster_in_the_cluster_puts_its_authority_into_the_crds(tmp_path: Path) -> None:
    """With the rights of its service account: those of the overlay beside its own."""
    with another_plane(users={ACCOUNT: GROUPS}) as plane:
        for folder in (webhook_config(), OVERLAY):
            rendered = yaml.safe_load_all(plane.kubectl("kustomize", str(folder)).stdout)
            # There is no Service network here, so nothing of what calls the webhook.
            kept = [each for each in rendered if not each["kind"].endswith(("WebhookConfiguration", "APIService"))]
            (tmp_path / "manifests.yaml").write_text(yaml.safe_dump_all(kept))
            plane.kubectl("apply", "--server-side", "-f", str(tmp_path / "manifests.yaml"))
        settings = yaml.safe_load((webhook_config() / "configuration.yaml").read_text())
        settings["webhook"] = {"port": free_port(), "host": "127.0.0.1", "certDir": str(tmp_path / "certificates")}
        settings["muster"] = {"serveV1beta1": True, "stateDir": str(tmp_path)}
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
        options = ["--kubeconfig", plane.kubeconfig_of(ACCOUNT), "--config", str(tmp_path / "config.yaml")]
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "admission.cli", "webhook", *options], stdout=log, stderr=log
            )
        try:
            eventually(lambda: authority(plane), message=f"the authority is in the last CRD; see {tmp_path}/log")
            secret = plane.api.get("Secret", "kueue-webhook-server-cert", "muster-system")["data"]
            for plural in v1beta1.CONVERTED:
                asked = asking_at(plane, plural)
                assert asked == {"service": v1beta1_crds.SERVICE, "caBundle": secret["ca.crt"]}, plural
        finally:
            process.terminate()
            process.wait(60)
        assert "forbidden" not in (tmp_path / "log").read_text().lower()
