"""Muster is installed, brought up to date while work runs, and taken out again: by kustomize, and by its Helm chart.

The commands are those of the documentation. Its pods are the Deployment's own, run by a kubelet of this test; the API
server reaches them by their Services, and they have the rights of their service account and no others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import pytest
import requests
import yaml

from admission.resources import webhook_config
from tests.cluster.kubelet import Kubelet, own_address
from tests.cluster.town import GPU, gates, held, is_running, is_true, job, kueue, node, pod
from tests.controlplane.cluster import Api, ApiError, ControlPlane
from tests.controlplane.cluster import eventually as soon
from tests.helm import build

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

#: Uninstalling takes its rights from it while it still runs.
EXPECTED_REFUSALS = "."

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "operations"
NAMESPACE = "muster-system"
OURS = "app.kubernetes.io/name=muster"
#: The version that is brought up to date; the same one under another name where there is none, as in a shallow clone.
BEFORE = os.environ.get("MUSTER_UPGRADE_FROM", "HEAD^")
NOW, PREVIOUS = "muster:0.1.0", "muster:previous"
FINALIZERS = {"kueue.x-k8s.io/resource-in-use", "kueue.x-k8s.io/managed"}
CONTROL_PLANE: dict[str, Any] = {
    "controllers": [
        "job-controller",
        "garbage-collector-controller",
        "namespace-controller",
        "node-lifecycle-controller",
        "deployment-controller",
        "replicaset-controller",
        "clusterrole-aggregation-controller",
    ],
    "scheduler": True,
    "kwok": True,
    # Services are found by their endpoints: there is no network of theirs here.
    "api_args": ["--enable-aggregator-routing=true"],
}


def eventually(question: Any, message: str) -> Any:
    return soon(question, seconds=40, message=message)


def documented(page: str, *words: str) -> list[str]:
    """The words of the line on this page that begins so."""
    lines = [line.split() for line in (DOCS / page).read_text().splitlines() if line.startswith(" ".join(words))]
    assert lines, f"{page} has no line {' '.join(words)}"
    return lines[0]


# ------------------------------------------------------------------ ways to install


@dataclass
class Cluster:
    plane: ControlPlane
    folder: Path
    #: The code of the version before.
    previous: Path
    kubelet: Kubelet

    @property
    def api(self) -> Api:
        return self.plane.api

    def call(self, *command: str, cwd: Path = ROOT) -> str:
        """A command as it is documented, by this cluster's administrator."""
        program = {"kubectl": [str(self.plane.bin / "kubectl")], "muster": [sys.executable, "-m", "admission.cli"]}
        home = {f"HELM_{name}_HOME": str(self.folder / "helm" / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        surroundings = os.environ | home | {"KUBECONFIG": self.plane.kubeconfig, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*program.get(command[0], [command[0]]), *command[1:]],
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            env=surroundings,
            timeout=120,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{self.kubelet.faults}"
        return done.stdout

    def rolled_out(self) -> None:
        self.call("kubectl", *documented("upgrades.md", "kubectl", "-n", NAMESPACE, "rollout")[1:], "--timeout=60s")


class Way(Protocol):
    """How Muster gets into a cluster and out of it."""

    name: str

    def install(self, cluster: Cluster, tree: Path, tag: str) -> None: ...

    def upgrade(self, cluster: Cluster) -> None: ...

    def uninstall(self, cluster: Cluster) -> None: ...


class Kustomize:
    name = "kustomize"

    def install(self, cluster: Cluster, tree: Path, tag: str) -> None:
        """By a kustomization of one's own, as the page about it has one."""
        folder = cluster.folder / tag
        folder.mkdir()
        (folder / "muster").symlink_to(tree)
        body = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": ["muster/webhook-config"],
            "images": [{"name": "muster", "newTag": tag}],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(body))
        cluster.call("kubectl", "apply", "-k", str(folder))
        cluster.rolled_out()

    def upgrade(self, cluster: Cluster) -> None:
        cluster.call("kubectl", "apply", "-k", "webhook-config")
        cluster.rolled_out()

    def uninstall(self, cluster: Cluster) -> None:
        cluster.call(*documented("install.md", "kubectl", "delete", "-k"))


class Helm:
    name = "helm"

    def __init__(self, program: str) -> None:
        self.program = program

    def _call(self, cluster: Cluster, page: str, verb: str, *more: str, chart: Path | None = None) -> str:
        words = documented(page, "helm", verb)[1:]
        if "--values" in words:
            del words[words.index("--values") : words.index("--values") + 2]
        if chart is not None:
            words = [str(chart) if word == "webhook-config/helm" else word for word in words]
        return cluster.call(self.program, *words, *more)

    def install(self, cluster: Cluster, tree: Path, tag: str) -> None:
        chart = tree / "webhook-config" / "helm"
        self._call(cluster, "install.md", "install", "--set", f"image.tag={tag}", "--wait", chart=chart)

    def upgrade(self, cluster: Cluster) -> None:
        self._call(cluster, "upgrades.md", "upgrade", "--set", "image.tag=0.1.0")
        cluster.rolled_out()

    def uninstall(self, cluster: Cluster) -> None:
        said = self._call(cluster, "install.md", "uninstall")
        assert "kept due to the resource policy" in said
        assert "clusterqueues.kueue.x-k8s.io" in said


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    address = own_address()
    if address is None:
        pytest.skip("this machine has only loopback addresses, which may not stand in an EndpointSlice")
    folder = Path(tmp_path_factory.mktemp("installing"))
    previous = before(folder / "code")
    pods = folder / "pods"
    pods.mkdir()
    for number in range(2):
        control_plane.api.create(node(f"host-{number}", "rack-0"))
    with Kubelet(control_plane, NAMESPACE, pods, {NOW: ROOT, PREVIOUS: previous}, address) as one:
        yield Cluster(control_plane, folder, previous, one)
    assert one.faults == []
    assert one.said("Traceback") == []


def before(folder: Path) -> Path:
    """The code of the version before, where git has it."""
    archive = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        assert "MUSTER_UPGRADE_FROM" not in os.environ, archive.stderr.decode()
        return ROOT
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


# ------------------------------------------------------------------ work


class Team:
    """A namespace with 4 GPUs: a Job of 2 and a gang of 2 run, a Job of 4 waits, and a pod of 5 waits for ever."""

    def __init__(self, cluster: Cluster) -> None:
        self.api, self.name = cluster.api, cluster.plane.namespace(prefix="team")
        quotas = [{"name": GPU, "nominalQuota": 4}, {"name": "cpu", "nominalQuota": "1k"}]
        groups = [{"coveredResources": [GPU, "cpu"], "flavors": [{"name": self.name, "resources": quotas}]}]
        labels = {"example.com/gpu": "h100"}
        spec = {"namespaceSelector": {}, "resourceGroups": groups}
        flavor = kueue("ResourceFlavor", self.name, {"nodeLabels": labels})
        # The API server finds a pod a moment after it is ready.
        eventually(lambda: self.api.create(flavor, dry_run=True), "reviews are answered")
        self.api.create(flavor)
        self.api.create(kueue("ClusterQueue", self.name, spec))
        self.api.create(kueue("LocalQueue", "default", {"clusterQueue": self.name}, self.name))
        eventually(lambda: is_true(self.api.get("LocalQueue", "default", self.name), "Active"), "the queue is active")
        self.api.create(job(self.name, "runs", 2, 1, queue="default", run_for="1h"))
        for number in range(2):
            gang = pod(self.name, f"gang-{number}", 1, queue="default", group="gang", total=2, run_for="1h")
            assert gates(self.api.create(gang))
        eventually(lambda: len(self.running()) == 4, "the first two run")
        self.api.create(job(self.name, "waits", 1, 4, queue="default", run_for="1h"))
        self.api.create(pod(self.name, "gated", 5, run_for="1h"))
        eventually(lambda: len(self.workloads()) == 4, "all are queued")
        self.first = self.running()
        self.admissions = self.admitted()

    def workloads(self) -> list[dict[str, Any]]:
        return self.api.list("Workload", self.name)

    def admitted(self) -> dict[str, Any]:
        return {w["metadata"]["uid"]: w["status"]["admission"] for w in self.workloads() if held(w)}

    def running(self) -> dict[str, str]:
        pods = [each for each in self.api.list("Pod", self.name) if is_running(each)]
        return {
            each["metadata"]["name"]: each["metadata"]["uid"] for each in pods if each["status"]["phase"] == "Running"
        }

    def end(self, prefix: str) -> None:
        """As when its containers have ended."""
        for name in [each for each in self.running() if each.startswith(prefix)]:
            self.api.patch("Pod", name, {"status": {"phase": "Succeeded"}}, self.name, sub="status")

    def is_complete(self, name: str) -> bool:
        return is_true(self.api.get("Job", name, self.name), "Complete")


class Creating:
    """Creates queued pods all the time, to see that none is refused; nothing of them is stored."""

    def __init__(self, team: Team) -> None:
        self.made, self.refused, self._over = 0, list[str](), threading.Event()
        self._body = pod(team.name, "probe", 1, queue="default")
        self._api, self._thread = team.api, threading.Thread(target=self._create, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _create(self) -> None:
        while not self._over.is_set():
            try:
                if not gates(self._api.create(self._body, dry_run=True)):
                    self.refused.append("it was not gated")
                self.made += 1
            except (ApiError, requests.RequestException) as error:
                self.refused.append(str(error))
            time.sleep(0.02)


def everything(api: Api, selector: str | None = None) -> Iterator[dict[str, Any]]:
    """All objects of all kinds that the API server has."""
    groups = api.request("GET", "/apis")["groups"]
    paths = ["/api/v1", *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups)]
    params = {"labelSelector": selector} if selector else None
    for path in paths:
        for resource in api.request("GET", path)["resources"]:
            if "list" in resource["verbs"]:
                for each in api.request("GET", f"{path}/{resource['name']}", params=params)["items"]:
                    yield {"kind": resource["kind"], **each}


def named(objects: Iterable[dict[str, Any]]) -> list[str]:
    return [f"{each['kind']}/{each['metadata']['name']}" for each in objects]


# ------------------------------------------------------------------ the lives


@pytest.fixture(scope="module", params=["helm", "kustomize"])
def way(request: pytest.FixtureRequest) -> Way:
    if request.param == "kustomize":
        return Kustomize()
    program = build.find()
    if program is None:
        pytest.skip("no helm: none on the PATH, none in the cache, and MUSTER_HELM does not ask for one to be built")
    return Helm(program)


def test_a_life_from_the_installation_to_the_end(cluster: Cluster, way: Way, record_property: Any) -> None:
    api = cluster.api

    way.install(cluster, cluster.previous, "previous")
    team = Team(cluster)
    path = f"/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/{team.name}/pendingworkloads"
    eventually(
        lambda: len(api.request("GET", path)["items"]) == 2, "the visibility API is served through the API server"
    )

    started = time.monotonic()
    with Creating(team) as creating:
        way.upgrade(cluster)
        eventually(lambda: len(api.list("Pod", NAMESPACE)) == 1, "the pod of the version before is gone")
        eventually(lambda: creating.made > 50, "a slow machine takes longer for as many")
    record_property(f"seconds_to_upgrade_{way.name}", round(time.monotonic() - started, 1))
    record_property(f"creates_during_the_upgrade_{way.name}", creating.made)
    print(f"{way.name}: {creating.made} creates in an upgrade of {time.monotonic() - started:.1f} s")
    assert creating.refused == []
    assert creating.made > 50
    (after,) = api.list("Pod", NAMESPACE)
    assert after["spec"]["containers"][0]["image"] == NOW
    assert team.running() == team.first
    assert team.admitted() == team.admissions
    team.end("gang-")
    eventually(lambda: len(team.admitted()) == 1, "the gang gives its quota back")
    team.end("runs-")
    eventually(lambda: any(name.startswith("waits-") for name in team.running()), "who waited over the upgrade starts")
    assert cluster.kubelet.said("forbidden") == [], "all of this with the rights of the service account"

    api.create(job(team.name, "last", 1, 4, queue="default", run_for="1h"))
    eventually(lambda: api.get("Job", "last", team.name)["spec"]["suspend"] and len(team.workloads()) >= 3, "it waits")
    running = team.running()
    if isinstance(way, Helm):
        leaves(cluster)
        way.uninstall(cluster)
    else:  # the other way round it is as good, only slower: nobody could give the Lease up
        way.uninstall(cluster)
        leaves(cluster)
    nothing_of_it_is_left(cluster)
    others_are_free(cluster, team)
    assert team.running().items() >= running.items()
    team.end("waits-")
    eventually(lambda: team.is_complete("waits"), "what ran when Muster left runs to its end")

    if isinstance(way, Helm):
        everything_can_go(cluster, team)
    else:
        way.install(cluster, ROOT, "0.1.0")
        eventually(lambda: any(name.startswith("last-") for name in team.running()), "it goes on with its queues")


def leaves(cluster: Cluster) -> None:
    """`muster leave`, while one Job runs, one waits and a pod is gated."""
    api = cluster.api
    before = {each["metadata"]["name"]: each["spec"]["replicas"] for each in api.list("Deployment", NAMESPACE)}
    preview = cluster.call("muster", "leave", "--dry-run")
    assert [f"to stop: Deployment {NAMESPACE}/{name}" in preview for name in before] == [True] * len(before)
    assert before == {each["metadata"]["name"]: each["spec"]["replicas"] for each in api.list("Deployment", NAMESPACE)}

    said = cluster.call(*documented("install.md", "muster", "leave"), "--yes")
    assert [f"stopped Muster: Deployment {NAMESPACE}/{name} has 0" in said for name in before] == [True] * len(before)
    assert "took the finalizer off" in said
    assert "stays: the CRDs of kueue.x-k8s.io, with 1 ClusterQueue" in said
    assert "stays gated: 1 pods" in said
    assert "stays suspended: 1 jobs" in said
    # Where its own API went a moment ago, the API server may still pass questions on to it.
    found = eventually(lambda: list(everything(api)), "all that there is can be listed")
    held = (each for each in found if FINALIZERS & set(each["metadata"].get("finalizers") or ()))
    assert named(held) == []


def nothing_of_it_is_left(cluster: Cluster) -> None:
    """But the CRDs, and what is in them."""
    api = cluster.api
    rendered = yaml.safe_load_all(cluster.call("kubectl", "kustomize", "webhook-config"))
    (listed,) = eventually(lambda: [named(everything(api, OURS))], "all that there is can be listed")
    ours = {*named(rendered), *listed} - {f"Namespace/{NAMESPACE}"}

    def left() -> set[str]:
        return {name for name in ours & set(named(everything(api))) if not name.startswith("CustomResourceDefinition/")}

    def is_gone() -> bool:
        assert left() == set()
        return True

    eventually(is_gone, "all objects of Muster's go")
    callers = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy")
    assert [each["metadata"]["name"] for kind in callers for each in api.list(kind)] == []
    crds = {path.stem.replace("kueue.x-k8s.io_", "") for path in (webhook_config() / "crds").glob("kueue*.yaml")}
    names = {each["spec"]["names"]["plural"] for each in api.list("CustomResourceDefinition")}
    assert names == crds
    assert len(api.list("ClusterQueue")) == 1


def others_are_free(cluster: Cluster, team: Team) -> None:
    """Pods and jobs are created and run as if there had never been a queue."""
    free = pod(team.name, "free", 1, queue="default", run_for="1h")
    # It stops asking a webhook a moment after that was deleted.
    eventually(lambda: cluster.api.create(free, dry_run=True), "nobody asks about pods any more")
    assert not gates(cluster.api.create(free))
    assert not cluster.api.create(job(team.name, "free", 1, 1, queue="default", run_for="1h"))["spec"].get("suspend")
    eventually(lambda: len([name for name in team.running() if name.startswith("free")]) == 2, "they run")
    for name in ("free", "gated"):
        cluster.api.delete("Pod", name, team.name)
    cluster.api.delete("Job", "free", team.name)
    eventually(lambda: not [n for n in team.running() if n.startswith("free")], "nothing of them is stuck")
    eventually(lambda: cluster.api.find("Pod", "gated", team.name) is None, "nor is what was gated")


def everything_can_go(cluster: Cluster, team: Team) -> None:
    """A namespace, its queue, and the CRDs in the end: nothing waits for a controller that is not there."""
    api = cluster.api
    api.delete("Namespace", team.name)
    for kind in ("ClusterQueue", "ResourceFlavor"):
        api.delete(kind, team.name)
    eventually(lambda: api.find("Namespace", team.name) is None, "the team's namespace goes")
    assert api.list("ClusterQueue") == api.list("ResourceFlavor") == api.list("Workload") == []
    for each in api.list("CustomResourceDefinition"):
        api.delete("CustomResourceDefinition", each["metadata"]["name"])
    eventually(lambda: api.list("CustomResourceDefinition") == [], "the CRDs go when they are told to")
