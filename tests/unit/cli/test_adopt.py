"""`muster adopt`: what differs, which settings stay, and what becomes of running pods."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from admission.api.core import Node, Pod, PriorityClass
from admission.api.decoding import convert
from admission.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor
from admission.commands.adopt import command, imports, mapping, survey
from admission.commands.adopt import differences as judged
from admission.commands.adopt.differences import Level, differences
from admission.commands.adopt.imports import Around, Import, Impossible, Skipped
from admission.commands.adopt.settings import converted
from admission.commands.adopt.survey import Manager, Survey
from admission.commands.faults import USAGE, Fault
from admission.settings import parse

ROOT = Path(__file__).parents[3]
KUEUE = "kueue.x-k8s.io"


def named(name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": {}, **more}


def crd(*served: str, storage: str = "v1beta2", stored: tuple[str, ...] = ("v1beta2",)) -> dict[str, Any]:
    versions = [{"name": each, "served": True, "storage": each == storage} for each in served]
    spec = {"group": KUEUE, "names": {"plural": "clusterqueues", "kind": "ClusterQueue"}, "versions": versions}
    return {"metadata": {"name": f"clusterqueues.{KUEUE}"}, "spec": spec, "status": {"storedVersions": list(stored)}}


def deployment(replicas: int = 1, *arguments: str) -> dict[str, Any]:
    pod = {"containers": [{"image": "kueue:v0.17.0", "args": list(arguments)}]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {}}, "template": {"spec": pod}}
    return named("kueue-controller-manager", "kueue-system", spec=spec)


def webhooks(kind: str = "MutatingWebhookConfiguration", **labels: str) -> dict[str, Any]:
    webhook = {"clientConfig": {"caBundle": "eA=="}, "rules": [{"apiGroups": [KUEUE], "resources": ["workloads"]}]}
    return {"kind": kind, "metadata": {"name": "webhooks", "labels": labels}, "webhooks": [webhook]}


def condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": "R", "message": "cohorts go round"}


OURS = {"app.kubernetes.io/name": "muster"}
MULTIKUEUE_CHECK = named("far", spec={"controllerName": "kueue.x-k8s.io/multikueue"})
OF_ANOTHER = named("f", "team", metadata={"ownerReferences": [{"kind": "Foo", "name": "f"}]})
OF_JOB_SET = named("js", "team", metadata={"ownerReferences": [{"kind": "JobSet", "name": "js"}]})
OLD_CLIENT = {"managedFields": [{"manager": "argocd", "apiVersion": f"{KUEUE}/v1beta1"}]}
OF_KUEUE = {"managedFields": [{"manager": "kueue-admission", "apiVersion": f"{KUEUE}/v1beta1"}]}

SPARK = "sparkoperator.k8s.io/sparkapplication"
ENABLED = f"integrations: {{frameworks: [batch/job, ray.io/rayjob, {SPARK}]}}"
CASES: dict[str, tuple[Survey, set[tuple[str, str, str]]]] = {
    "nothing of Kueue": (Survey(), {("note", "Cluster", "")}),
    "a cluster that is the same": (
        Survey(crds=(crd("v1beta2"),), objects={"ClusterQueue": (named("cq"),), "Workload": (named("w", "team"),)}),
        set(),
    ),
    "both installed": (
        Survey(crds=(crd("v1beta2"),), managers=(Manager(deployment()),), muster_webhooks=(webhooks(**OURS),)),
        {("blocks", "Cluster", ""), ("note", "Deployment", "kueue-system/kueue-controller-manager")}
        | {("differs", "Configuration", "muster.gpuPods")},
    ),
    "Kueue is stopped already, and Muster there": (
        Survey(crds=(crd("v1beta2"),), managers=(Manager(deployment(0)),), muster_webhooks=(webhooks(**OURS),)),
        {
            ("note", "Deployment", "kueue-system/kueue-controller-manager"),
            ("differs", "Configuration", "muster.gpuPods"),
        },
    ),
    "webhooks of something that is nowhere": (
        Survey(crds=(crd("v1beta2"),), webhooks=(webhooks(),)),
        {("note", "Webhooks", "webhooks")},
    ),
    "a Kueue that is too old": (
        Survey(crds=(crd("v1beta1", storage="v1beta1", stored=("v1beta1",)),)),
        {("blocks", "CustomResourceDefinition", f"clusterqueues.{KUEUE}")},
    ),
    "objects of an older version": (
        Survey(crds=(crd("v1beta1", "v1beta2", stored=("v1beta1", "v1beta2")),)),
        {("note", "CustomResourceDefinition", f"clusterqueues.{KUEUE}")},
    ),
    "a client of an older version": (
        Survey(
            crds=(crd("v1beta2"),),
            objects={"ClusterQueue": (named("a", metadata=OLD_CLIENT), named("b", metadata=OF_KUEUE))},
        ),
        {("differs", "Client", "argocd")},
    ),
    "a check of MultiKueue": (
        Survey(
            crds=(crd("v1beta2"),),
            objects={
                "AdmissionCheck": (MULTIKUEUE_CHECK, named("own", spec={"controllerName": "example.com/check"})),
                "ClusterQueue": (
                    named("new", spec={"admissionChecksStrategy": {"admissionChecks": [{"name": "far"}]}}),
                    named("old", spec={"admissionChecks": ["far", "own"]}),
                ),
                "MultiKueueConfig": (named("clusters"),),
                "Workload": (named("w", "team", status={"clusterName": "west"}),),
            },
        ),
        {("lost", "ClusterQueue", name) for name in ("new", "old")}
        | {("lost", "AdmissionCheck", "far"), ("lost", "MultiKueueConfig", "clusters"), ("lost", "Workload", "team/w")},
    ),
    "queues that are not active, and concurrent admission": (
        Survey(
            crds=(crd("v1beta2"),),
            objects={
                "ClusterQueue": (
                    named("cq", spec={"concurrentAdmissionPolicy": {}}),
                    named("off", status={"conditions": [condition("Active", "False")]}),
                )
            },
        ),
        {("lost", "ClusterQueue", "cq"), ("note", "ClusterQueue", "off")},
    ),
    "jobs of a kind without an adapter": (
        Survey(crds=(crd("v1beta2"),), objects={"Workload": (OF_ANOTHER, OF_JOB_SET, named("free", "team"))}),
        {("lost", "Workloads of", "Foo")},
    ),
    "what has finished does not count": (
        Survey(
            crds=(crd("v1beta2"),),
            objects={"Workload": ({**OF_ANOTHER, "status": {"conditions": [condition("Finished")]}},)},
        ),
        set(),
    ),
    "elastic jobs, and an eviction under way": (
        Survey(
            crds=(crd("v1beta2"),),
            objects={
                "Workload": (
                    named("e", "t", metadata={"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}),
                    named("v", "t", status={"conditions": [condition("Evicted"), condition("QuotaReserved")]}),
                )
            },
        ),
        {("lost", "Workload", "t/e"), ("note", "Workload", "t/v")},
    ),
    "pods of a StatefulSet, and of something that is not known": (
        Survey(
            crds=(crd("v1beta2"),),
            pods=(
                named("o", "t", metadata={"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}}),
                named("p", "t", metadata={"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "foo"}}),
                named("q", "t", metadata={"annotations": {"kueue.x-k8s.io/safe-to-forcefully-delete": "true"}}),
            ),
        ),
        {("lost", "Pods of", "foo"), ("lost", "Pods", "")},
    ),
    "defaults, racks and circles": (
        Survey(
            crds=(crd("v1beta2"),),
            objects={
                "LocalQueue": (named("default", "team"), named("other", "team")),
                "WorkloadPriorityClass": (named("default"),),
                "Topology": (
                    named("racks", spec={"levels": [{"nodeLabel": "rack"}]}),
                    named("hosts", spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}),
                ),
                "Cohort": (
                    named("a", spec={"parentName": "b"}),
                    named("b", spec={"parentName": "a"}),
                    named("c", spec={"parentName": "a"}),
                ),
            },
        ),
        {("differs", "LocalQueue", "team/default"), ("differs", "WorkloadPriorityClass", "default")}
        | {("differs", "Topology", "racks"), ("differs", "Cohort", "a"), ("differs", "Cohort", "b")},
    ),
    "integrations that nobody uses": (
        Survey(crds=(crd("v1beta2"),), managers=(Manager(deployment(), ENABLED, "ns/map"),)),
        {("note", "Configuration", "ns/map"), ("note", "Deployment", "kueue-system/kueue-controller-manager")}
        | {("differs", "Configuration", "muster.gpuPods")},
    ),
    "integrations that somebody uses": (
        Survey(
            crds=(crd("v1beta2"),),
            managers=(Manager(deployment(), ENABLED, "ns/map"),),
            objects={"Workload": (OF_ANOTHER,)},
        ),
        {("lost", "Configuration", "ns/map"), ("note", "Deployment", "kueue-system/kueue-controller-manager")}
        | {("differs", "Configuration", "muster.gpuPods"), ("lost", "Workloads of", "Foo")},
    ),
    "settings that Muster refuses": (
        Survey(
            crds=(crd("v1beta2"),),
            managers=(
                Manager(
                    deployment(),
                    "pprofBindAddress: ':8083'\napiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n",
                    "ns/map",
                ),
            ),
        ),
        {("lost", "Configuration", "ns/map"), ("note", "Deployment", "kueue-system/kueue-controller-manager")}
        | {("differs", "Configuration", "muster.gpuPods")},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_differs(case: str) -> None:
    found, want = CASES[case]
    told = differences(found)
    assert {(each.level.value, each.kind, each.name) for each in told} == want
    assert [list(Level).index(each.level) for each in told] == sorted(list(Level).index(each.level) for each in told)
    assert all(each.says for each in told)


def rows() -> dict[str, str]:
    """The rows of docs/compatibility.md, with their verdicts."""
    text = (ROOT / "docs" / "compatibility.md").read_text()
    return {row[0].strip(): row[1].strip() for row in re.findall(r"^\| (.+?) \| (.+?) \|", text, flags=re.MULTILINE)}


@pytest.mark.parametrize("case", CASES)
def test_each_difference_stands_for_a_row_of_the_documentation(case: str) -> None:
    for each in differences(CASES[case][0]):
        if not each.row:
            assert each.level is not Level.DIFFERS
            continue
        (verdict,) = [verdict for row, verdict in rows().items() if row.startswith(each.row)]
        assert each.level is not Level.LOST or verdict != "Same", f"{each.row} is there now"


def test_what_is_the_same_of_several_is_said_once() -> None:
    found = [
        judged.Difference(Level.LOST, "ClusterQueue", f"cq-{i}", "has no effect", "6.17 MultiKueue") for i in range(9)
    ]
    out = io.StringIO()
    screen = Console(file=out, width=80)
    for each in command.page(found, {"ClusterQueue": 9, "holding quota": 2}):
        screen.print(each)
    text = out.getvalue()
    assert "ClusterQueue cq-0, cq-1, cq-2, cq-3, cq-4 and 4 more: has no effect" in " ".join(text.split())
    assert "Stays as it is: 9 ClusterQueue, 2 holding quota" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "In the way" not in text


def test_losses_have_to_be_accepted() -> None:
    lost = [judged.Difference(Level.LOST, "x", "y", "z")]
    assert command.obstacles([], accept_losses=False) is None
    assert "--accept-losses" in str(command.obstacles(lost, accept_losses=False))
    assert command.obstacles(lost, accept_losses=True) is None
    blocked = [*lost, judged.Difference(Level.BLOCKS, "x", "y", "z")]
    assert "in the way" in str(command.obstacles(blocked, accept_losses=True))


# ------------------------------------------------------------------ settings


def test_settings_keep_what_muster_takes() -> None:
    text = """
    apiVersion: config.kueue.x-k8s.io/v1beta2
    kind: Configuration
    namespace: kueue-system
    pprofBindAddress: :8083
    fairSharing: {preemptionStrategies: [LessThanInitialShare]}
    integrations:
      frameworks: [ray.io/rayjob, batch/job, sparkoperator.k8s.io/sparkapplication, pod]
      externalFrameworks: [Foo.v1.example.com]
    featureGates: {LocalQueueMetrics: true}
    somethingNew: {deep: 1}
    """
    written, left_out = converted(
        text, {"LocalQueueMetrics": False, "ManagedJobsNamespaceSelectorAlwaysRespected": False}
    )
    found = parse(written)
    assert found.integrations.frameworks == ("ray.io/rayjob", "batch/job", "pod")
    assert found.fair_sharing is not None
    assert found.muster.gpu_pods.enabled is False
    assert found.feature_gates["LocalQueueMetrics"] is False
    for name in ("pprofBindAddress", SPARK, "externalFrameworks", "somethingNew"):
        assert any(name in problem for problem in left_out), left_out
    assert "namespace" not in yaml.safe_load(written)


@pytest.mark.parametrize("text", ["", f"integrations: {{frameworks: [{SPARK}]}}", "kind: Configuration"])
def test_settings_can_be_used_whatever_was_left_out(text: str) -> None:
    written, _ = converted(text, {})
    assert parse(written).integrations.frameworks == ("batch/job",)


def test_gates_are_read_from_the_command_line() -> None:
    pod = {"containers": [{"args": ["--feature-gates=A=true,B=false", "-feature-gates", "C=1"]}]}
    assert survey.gates_of(pod) == {"A": True, "B": False, "C": True}


def test_whose_webhooks_they_are() -> None:
    both = [webhooks(**OURS), webhooks("ValidatingWebhookConfiguration", **OURS)]
    assert survey.is_of_kueue(webhooks())
    assert not survey.is_of_kueue(webhooks(**OURS))
    assert survey.is_published(both)
    assert not survey.is_published(both[:1])
    both[0]["webhooks"][0]["clientConfig"] = {"url": "https://x"}
    assert not survey.is_published(both)


# ------------------------------------------------------------------ pods


def pod(name: str = "p", **more: Any) -> Pod:
    requests = more.pop("requests", {"gpu": "2", "cpu": "500m"})
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "labels": {"project": "alpha"}}
    spec = {"nodeName": "host", "containers": [{"name": "c", "resources": {"requests": requests}}]}
    return convert(
        {
            "metadata": {**metadata, **more.pop("metadata", {})},
            "spec": {**spec, **more},
            "status": {"phase": "Running"},
        },
        Pod,
    )


def around(*, quota: tuple[str, ...] = ("gpu", "cpu"), **labels: str) -> Around:
    def flavor(name: str) -> dict[str, Any]:
        return {"name": name, "resources": [{"name": each, "nominalQuota": "1"} for each in quota]}

    group = {"coveredResources": list(quota), "flavors": [flavor("a100"), flavor("h100")]}
    queue = {"metadata": {"name": "cq"}, "spec": {"resourceGroups": [group]}}
    local = {"metadata": {"name": "lq", "namespace": "team"}, "spec": {"clusterQueue": "cq"}}
    of = lambda name: {"metadata": {"name": name}, "spec": {"nodeLabels": {"gpu": name}}}
    return Around(
        local_queues={("team", "lq"): convert(local, LocalQueue)},
        cluster_queues={"cq": convert(queue, ClusterQueue)},
        flavors={name: convert(of(name), ResourceFlavor) for name in ("a100", "h100")},
        priority_classes={"urgent": convert({"metadata": {"name": "urgent"}, "value": 7}, PriorityClass)},
        nodes={"host": convert({"metadata": {"name": "host", "labels": labels or {"gpu": "h100"}}}, Node)},
    )


ALPHA = mapping.rules("project", ["alpha=lq"], None)


def test_a_pod_is_imported_with_the_flavor_that_it_runs_on() -> None:
    found = imports.verdict(pod(priorityClassName="urgent"), ALPHA, around(quota=("gpu", "pods")))
    assert isinstance(found, Import)
    (assignment,) = found.admission["podSetAssignments"]
    assert assignment["flavors"] == {"gpu": "h100", "pods": "h100"}
    assert assignment["resourceUsage"] == {"gpu": "2", "pods": "1"}
    assert found.uncounted == ("cpu",)
    assert found.workload["spec"]["priority"] == 7
    assert "ownerReferences" not in found.workload["metadata"]
    patch = imports.pod_patch(found)["metadata"]
    assert patch["labels"] == {"kueue.x-k8s.io/queue-name": "lq"}
    assert patch["annotations"] == {"kueue.x-k8s.io/prebuilt-workload-name": found.name}
    assert patch["finalizers"] == ["kueue.x-k8s.io/managed"]
    conditions = imports.status(found.admission, 0.0)["status"]["conditions"]
    assert [(each["type"], each["reason"]) for each in conditions] == [
        ("QuotaReserved", "Imported"),
        ("Admitted", "Imported"),
    ]


LEFT_ALONE = {
    "queued already": pod(metadata={"labels": {"project": "alpha", "kueue.x-k8s.io/managed": "true"}}),
    "of a queued Job": pod(metadata={"labels": {"kueue.x-k8s.io/podset": "main"}}),
    "not on a node": pod(nodeName=""),
    "of a DaemonSet": pod(metadata={"ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": True}]}),
    "being deleted": pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_is_left_alone(case: str) -> None:
    assert isinstance(imports.verdict(LEFT_ALONE[case], ALPHA, around()), Skipped)


IMPOSSIBLE = {
    "no rule matches it": (pod(metadata={"labels": {"project": "beta"}}), ALPHA, around()),
    "it names the queue x": (
        pod(metadata={"labels": {"project": "alpha", "kueue.x-k8s.io/queue-name": "x"}}),
        ALPHA,
        around(),
    ),
    "there is no LocalQueue other": (pod(), mapping.rules("project", ["alpha=other"], None), around()),
    "there is no PriorityClass none": (pod(priorityClassName="none"), ALPHA, around()),
    "has the labels of no flavor": (pod(), ALPHA, around(gpu="t4")),
    "has no quota for anything": (pod(), ALPHA, around(quota=("memory",))),
    "a request that is": (pod(requests={"gpu": "many"}), ALPHA, around()),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_cannot_be_imported_says_why(case: str) -> None:
    found = imports.verdict(*IMPOSSIBLE[case])
    assert isinstance(found, Impossible)
    assert case in found.why


def test_rules_are_those_of_kueues_importer(tmp_path: Path) -> None:
    file = tmp_path / "mapping.yaml"
    file.write_text(
        "- match: {labels: {project: alpha}, priorityClassName: low}\n  skip: true\n"
        "- match: {labels: {project: alpha}}\n  toLocalQueue: lq\n"
    )
    rules = mapping.rules(None, [], str(file))
    found = [
        mapping.rule_for(each, rules) for each in (pod(priorityClassName="low"), pod(), pod(metadata={"labels": {}}))
    ]
    assert [None if each is None else (each.skip, each.to_local_queue) for each in found] == [
        (True, ""),
        (False, "lq"),
        None,
    ]


@pytest.mark.parametrize(
    ("label", "pairs", "text", "says"),
    [
        (None, [], None, "say where pods belong"),
        ("l", [], None, "say where pods belong"),
        ("l", ["alpha"], None, "write VALUE=QUEUE"),
        ("l", ["a=b"], "[]", "not both"),
        (None, [], "[{match: {labels: {a: b}}}]", "neither toLocalQueue nor skip"),
        (None, [], "[{matches: {}}]", "unknown field"),
        (None, [], "[", "--queue-mapping-file"),
    ],
)
def test_rules_that_say_nothing(
    tmp_path: Path, label: str | None, pairs: list[str], text: str | None, says: str
) -> None:
    file = tmp_path / "mapping.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Fault, match=re.escape(says)) as fault:
        mapping.rules(label, pairs, None if text is None else str(file))
    assert fault.value.status == USAGE
