"""What happens to a pod as it is created."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from admission.settings import GpuPods, Settings, WithoutQueue
from admission.settings.configuration import LabelSelector
from admission.webhook.review import UserInfo
from tests.unit.webhook.asking import (
    ADMISSION_GATE,
    DEFAULT_QUEUE,
    GPU,
    JOB_CONTROLLER,
    MANAGED,
    NO_QUEUES,
    QUEUE,
    TENANT,
    TOPOLOGY_GATE,
    FakeCaches,
    ask,
    gates,
    owned,
    patched,
    pod,
    settings,
)

ONE_GPU = {GPU: "1"}
MANAGE_ALL = settings(manage_jobs_without_queue_name=True)


@dataclass(frozen=True)
class Case:
    id: str
    pod: dict[str, Any]
    want_queue: str | None = None
    want_gated: bool = True
    with_settings: Settings | None = None
    caches: FakeCaches = NO_QUEUES
    user: UserInfo = TENANT


def gpu(**changes: Any) -> Settings:
    return settings(GpuPods(**changes))


CASES = [
    Case("a pod that names a queue is gated", pod({QUEUE: "q"}), want_queue="q"),
    Case("a pod that asks for nothing special is left alone", pod(limits={"cpu": "1"}), want_gated=False),
    Case("an empty queue name is none", pod({QUEUE: ""}), want_queue="", want_gated=False),
    Case("a pod that asks for a GPU joins the default queue", pod(limits=ONE_GPU), want_queue="default"),
    Case("also where there is no default queue yet", pod(limits=ONE_GPU), want_queue="default", caches=NO_QUEUES),
    Case(
        "a GPU pod that names a queue keeps it",
        pod({QUEUE: "q"}, limits=ONE_GPU),
        want_queue="q",
        caches=DEFAULT_QUEUE,
    ),
    Case("no GPUs are asked for with zero", pod(limits={GPU: "0"}), want_gated=False),
    Case("nor with zero of another form", pod(limits={GPU: "0.0e3"}), want_gated=False),
    Case("a slice of a GPU counts", pod(limits={"nvidia.com/mig-1g.5gb": "1"}), want_queue="default"),
    Case("a resource of another name does not count", pod(limits={"nvidia.com/gpu-fake": "1"}), want_gated=False),
    Case(
        "a GPU in an init container counts",
        pod(initContainers=[{"name": "i", "image": "i", "resources": {"limits": ONE_GPU}}]),
        want_queue="default",
    ),
    Case("a GPU asked for by the pod counts", pod(resources={"requests": ONE_GPU}), want_queue="default"),
    Case(
        "a claim counts where device classes are configured",
        pod(resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}]),
        want_queue="default",
        with_settings=gpu(device_classes=("gpu.nvidia.com",)),
    ),
    Case(
        "a claim does not count elsewhere",
        pod(resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}]),
        want_gated=False,
    ),
    Case(
        "a device class asked for as a resource counts",
        pod(limits={"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "1"}),
        want_queue="default",
        with_settings=gpu(device_classes=("gpu.nvidia.com",)),
    ),
    Case(
        "with pods that ask for GPUs let through only named queues count",
        pod(limits=ONE_GPU),
        want_gated=False,
        with_settings=gpu(without_queue=WithoutQueue.ALLOW),
    ),
    Case("switched off, GPUs do not count", pod(limits=ONE_GPU), want_gated=False, with_settings=gpu(enabled=False)),
    Case("an exempt namespace is left alone", pod(limits=ONE_GPU, namespace="gpu-operator"), want_gated=False),
    Case(
        "a namespace in which GPUs are not looked for is left alone",
        pod(limits=ONE_GPU),
        want_gated=False,
        with_settings=gpu(namespace_selector=LabelSelector(match_labels={"gpus": "queued"})),
        caches=FakeCaches(namespaces={"ns": {}}),
    ),
    Case(
        "a system-critical pod gets its GPU at once",
        pod(limits=ONE_GPU, priorityClassName="system-node-critical"),
        want_gated=False,
    ),
    Case(
        "a system-critical pod that names a queue is queued",
        pod({QUEUE: "q"}, priorityClassName="system-node-critical"),
        want_queue="q",
    ),
    Case(
        "a DaemonSet's pod is never touched",
        pod({QUEUE: "q"}, limits=ONE_GPU, metadata=owned("DaemonSet", "apps/v1")),
        want_queue="q",
        want_gated=False,
        user=JOB_CONTROLLER,
    ),
    Case(
        "a tenant's pod is not a DaemonSet's because it says so",
        pod(limits=ONE_GPU, metadata=owned("DaemonSet", "apps/v1")),
        want_queue="default",
    ),
    Case(
        "a mirror pod is never touched",
        pod(annotations={"kubernetes.io/config.mirror": "x"}, limits=ONE_GPU),
        want_gated=False,
        user=UserInfo("system:node:n1", ("system:nodes",)),
    ),
    Case(
        "a tenant's pod is no mirror pod because it says so",
        pod(annotations={"kubernetes.io/config.mirror": "x"}, limits=ONE_GPU),
        want_queue="default",
    ),
    Case(
        "a pod of an owner without an adapter is queued by itself",
        pod(limits=ONE_GPU, metadata=owned("ReplicaSet", "apps/v1")),
        want_queue="default",
        user=JOB_CONTROLLER,
    ),
    Case(
        "a Job's pod is the Job's business",
        pod(limits=ONE_GPU, metadata=owned("Job", "batch/v1")),
        want_gated=False,
        user=JOB_CONTROLLER,
    ),
    Case(
        "a tenant's pod is not a Job's because it says so",
        pod(limits=ONE_GPU, metadata=owned("Job", "batch/v1")),
        want_queue="default",
    ),
    Case(
        "the pod of an unqueued Job may name a queue itself",
        pod({QUEUE: "q"}, metadata=owned("Job", "batch/v1")),
        want_queue="q",
        user=JOB_CONTROLLER,
    ),
    Case(
        "the pod of a started Job is not queued again",
        pod({QUEUE: "q", "kueue.x-k8s.io/podset": "main"}, metadata=owned("Job", "batch/v1")),
        want_queue="q",
        want_gated=False,
        user=JOB_CONTROLLER,
    ),
    Case(
        "a pod of an owner that nobody knows is queued by itself",
        pod(limits=ONE_GPU, metadata=owned("Notebook", "kubeflow.org/v1")),
        want_queue="default",
        user=JOB_CONTROLLER,
    ),
    Case(
        "a namespace that is not managed is left alone, queue or not",
        pod({QUEUE: "q"}, limits=ONE_GPU, namespace="kube-system"),
        want_queue="q",
        want_gated=False,
        caches=FakeCaches(namespaces={"kube-system": {"kubernetes.io/metadata.name": "kube-system"}}),
    ),
    Case("a namespace that was just made is managed", pod({QUEUE: "q"}, namespace="new"), want_queue="q"),
    Case("with all managed, a pod without queue waits", pod(), with_settings=MANAGE_ALL),
    Case(
        "with all managed, a pod joins the default queue where there is one",
        pod(),
        want_queue="default",
        with_settings=MANAGE_ALL,
        caches=DEFAULT_QUEUE,
    ),
    Case(
        "with all managed, a Job's pod is still the Job's business",
        pod({QUEUE: "q"}, metadata=owned("Job", "batch/v1")),
        want_queue="q",
        want_gated=False,
        with_settings=MANAGE_ALL,
        user=JOB_CONTROLLER,
    ),
    Case(
        "without the pod integration nothing is gated",
        pod({QUEUE: "q"}, limits=ONE_GPU),
        want_queue="q",
        want_gated=False,
        with_settings=Settings(namespace="muster-system"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_which_pods_are_gated(case: Case) -> None:
    answer = ask("mutate", case.pod, with_settings=case.with_settings, caches=case.caches, user=case.user)
    assert answer.allowed, answer.message
    got = patched(case.pod, answer)
    labels = got["metadata"].get("labels", {})
    assert (ADMISSION_GATE in gates(got), labels.get(QUEUE)) == (case.want_gated, case.want_queue)
    if not case.want_gated:
        assert got == case.pod


def test_a_gated_pod_carries_all_that_it_is_found_by() -> None:
    before = pod({QUEUE: "q", "app": "a"}, {"note": "n"}, metadata={"finalizers": ["example.com/keep"]})
    before["spec"]["schedulingGates"] = [{"name": "example.com/mine"}]
    got = patched(before, ask("mutate", before))
    assert got["metadata"]["labels"] == {QUEUE: "q", "app": "a", MANAGED: "true"}
    assert got["metadata"]["finalizers"] == ["example.com/keep", MANAGED]
    assert gates(got) == ["example.com/mine", ADMISSION_GATE, TOPOLOGY_GATE]
    assert got["metadata"]["annotations"]["note"] == "n"
    assert len(got["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"]) == 8


def test_gating_twice_adds_nothing_but_the_hash() -> None:
    once = patched(pod({QUEUE: "q"}), ask("mutate", pod({QUEUE: "q"})))
    assert patched(once, ask("mutate", once)) == once


def test_the_role_hash_cannot_be_chosen() -> None:
    chosen = pod({QUEUE: "q"}, {"kueue.x-k8s.io/role-hash": "deadbeef"})
    honest = pod({QUEUE: "q"})
    hashes = [
        patched(each, ask("mutate", each))["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"]
        for each in (chosen, honest)
    ]
    assert hashes[0] == hashes[1] != "deadbeef"


def test_a_pod_that_its_parent_suspends_gets_no_finalizer() -> None:
    before = pod(annotations={"kueue.x-k8s.io/pod-suspending-parent": "statefulset"})
    got = patched(before, ask("mutate", before))
    assert ADMISSION_GATE in gates(got)
    assert "finalizers" not in got["metadata"]


def test_the_rank_is_copied_from_the_label_that_is_named() -> None:
    before = pod({QUEUE: "q", "rank": "3"}, {"kueue.x-k8s.io/pod-group-pod-index-label": "rank"})
    assert patched(before, ask("mutate", before))["metadata"]["labels"]["kueue.x-k8s.io/pod-group-pod-index"] == "3"


GROUP, TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
REQUIRED, PREFERRED = "kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-preferred-topology"


@pytest.mark.parametrize(
    ("labels", "annotations", "want"),
    [
        pytest.param({MANAGED: "false"}, {}, f"metadata.labels[{MANAGED}]", id="managed is true or nothing"),
        pytest.param({GROUP: "g"}, {}, f"metadata.annotations[{TOTAL}]: Required", id="a group has a size"),
        pytest.param({}, {TOTAL: "2"}, f"metadata.labels[{GROUP}]: Required", id="a size belongs to a group"),
        pytest.param({GROUP: "g"}, {TOTAL: "0"}, f"metadata.annotations[{TOTAL}]", id="a group is not empty"),
        pytest.param({GROUP: "g"}, {TOTAL: "2.5"}, f"metadata.annotations[{TOTAL}]", id="a size is a whole number"),
        pytest.param({GROUP: "g"}, {TOTAL: "9" * 5000}, f"metadata.annotations[{TOTAL}]", id="a size is of 32 bits"),
        pytest.param({GROUP: "G_1"}, {TOTAL: "2"}, f"metadata.labels[{GROUP}]", id="a group can name a Workload"),
        pytest.param({QUEUE: "Q!"}, {}, f"metadata.labels[{QUEUE}]", id="a queue is a name"),
        pytest.param(
            {},
            {"kueue.x-k8s.io/pod-group-fast-admission": "true"},
            f"metadata.labels[{GROUP}]",
            id="fast admission is for groups",
        ),
        pytest.param(
            {GROUP: "g", "kueue.x-k8s.io/prebuilt-workload-name": "w"},
            {TOTAL: "2"},
            "prebuilt-workload-name",
            id="a group's workload is the group's",
        ),
        pytest.param({}, {REQUIRED: "rack", PREFERRED: "rack"}, "more than one", id="one topology request"),
        pytest.param({}, {REQUIRED: "not a label!"}, f"metadata.annotations[{REQUIRED}]", id="a level is a label"),
        pytest.param(
            {"kueue.x-k8s.io/max-exec-time-seconds": "0"}, {}, "max-exec-time-seconds", id="a time limit is positive"
        ),
        pytest.param({}, {"kueue.x-k8s.io/elastic-job": "true"}, "elastic-job", id="a pod does not grow"),
        pytest.param(
            {}, {"kueue.x-k8s.io/admission-gated-by": "a,,b"}, "admission-gated-by", id="admission gates have names"
        ),
    ],
)
def test_what_a_queued_pod_may_not_be_created_with(labels: dict, annotations: dict, want: str) -> None:
    answer = ask("mutate", pod({QUEUE: "q", **labels}, annotations))
    assert not answer.allowed
    assert answer.code == 403
    assert want in answer.message


def test_a_gpu_pod_without_a_queue_can_be_refused() -> None:
    answer = ask("mutate", pod(limits=ONE_GPU), with_settings=gpu(without_queue=WithoutQueue.DENY))
    assert not answer.allowed
    assert f"metadata.labels[{QUEUE}]: Required value: nvidia.com/gpu is asked for" in answer.message
    assert "namespace ns" in answer.message
