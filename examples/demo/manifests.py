"""The demo's objects: 16 nodes of 8 GPUs in racks and blocks, five queues in two cohorts, and the gangs."""

from __future__ import annotations

from typing import Any

from examples.demo.trace import Form, Gang

GPU = "nvidia.com/gpu"
KUEUE = "kueue.x-k8s.io/v1beta2"
BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
GANG_LABEL = "example.com/gang"
LOCAL_QUEUE = "default"

#: Nominal GPUs of each team, by cohort; 128 in all, as many as the nodes have.
COHORTS: dict[str, dict[str, int]] = {
    "research": {"team-e13805": 32, "team-6c71a0": 40, "team-6214e9": 24},
    "platform": {"team-11cb48": 16, "team-103959": 16},
}
NODES, GPUS_PER_NODE, NODES_PER_RACK, RACKS_PER_BLOCK = 16, 8, 4, 2


def named(api_version: str, kind: str, name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def nodes() -> list[dict[str, Any]]:
    capacity = {GPU: str(GPUS_PER_NODE), "cpu": "96", "memory": "1Ti", "pods": "110"}
    found = []
    for i in range(NODES):
        rack = i // NODES_PER_RACK
        labels = {HOST: f"host-{i:02}", RACK: f"rack-{rack}", BLOCK: f"block-{rack // RACKS_PER_BLOCK}"}
        labels["example.com/gpu"] = "h100"
        status = {"capacity": capacity, "allocatable": capacity}
        found.append(named("v1", "Node", f"host-{i:02}", metadata={"labels": labels}, status=status))
    return found


def queues() -> list[dict[str, Any]]:
    """Topology, flavor, cohorts, and for each team a namespace, a ClusterQueue and a LocalQueue."""
    levels = [{"nodeLabel": label} for label in (BLOCK, RACK, HOST)]
    found = [
        named(KUEUE, "Topology", "racks", spec={"levels": levels}),
        named(
            KUEUE, "ResourceFlavor", "h100", spec={"nodeLabels": {"example.com/gpu": "h100"}, "topologyName": "racks"}
        ),
    ]
    for cohort, teams in COHORTS.items():
        found.append(named(KUEUE, "Cohort", cohort, spec={}))
        for team, nominal in teams.items():
            flavor = {"name": "h100", "resources": [{"name": GPU, "nominalQuota": str(nominal)}]}
            spec = {
                "cohortName": cohort,
                "namespaceSelector": {"matchLabels": {"example.com/team": team}},
                "resourceGroups": [{"coveredResources": [GPU], "flavors": [flavor]}],
                "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            }
            found += [
                named("v1", "Namespace", team, metadata={"labels": {"example.com/team": team}}),
                named(KUEUE, "ClusterQueue", team, spec=spec),
                named(KUEUE, "LocalQueue", LOCAL_QUEUE, team, spec={"clusterQueue": team}),
            ]
    return found


def template(gang: Gang) -> dict[str, Any]:
    """The pod template; a gang of several pods has to sit in one rack."""
    annotations = {"example.com/run-for": f"{gang.run_for:.1f}s"}
    if gang.pods > 1:
        annotations["kueue.x-k8s.io/podset-required-topology"] = RACK
    resources = {"requests": {GPU: str(gang.gpus_per_pod)}, "limits": {GPU: str(gang.gpus_per_pod)}}
    container = {"name": "train", "image": "example.com/train", "resources": resources}
    return {
        "metadata": {"labels": {GANG_LABEL: gang.name}, "annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def pod(gang: Gang, index: int) -> dict[str, Any]:
    """One pod of a group, or a plain GPU pod that no one has told about queues."""
    body = template(gang)
    metadata = body["metadata"]
    if gang.form is Form.POD_GROUP:
        metadata["labels"] |= {QUEUE_LABEL: LOCAL_QUEUE, "kueue.x-k8s.io/pod-group-name": gang.name}
        metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = str(gang.pods)
    return named("v1", "Pod", f"{gang.name}-{index}", gang.team, metadata=metadata, spec=body["spec"])


def job(gang: Gang) -> dict[str, Any]:
    labels = {QUEUE_LABEL: LOCAL_QUEUE, GANG_LABEL: gang.name}
    spec = {"parallelism": gang.pods, "completions": gang.pods, "template": template(gang)}
    return named("batch/v1", "Job", gang.name, gang.team, metadata={"labels": labels}, spec=spec)


def objects(gang: Gang) -> list[dict[str, Any]]:
    """What a user creates for this gang."""
    return [job(gang)] if gang.form is Form.JOB else [pod(gang, i) for i in range(gang.pods)]
