"""What the settings change: everything managed, GPUs looked for in some namespaces only, GPU pods without a queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from admission.settings import GpuPods, Muster, WithoutQueue
from admission.settings.configuration import LabelSelector
from tests.cluster.webhook_process import calls, serving
from tests.controlplane.cluster import ApiError, ControlPlane, eventually

pytestmark = pytest.mark.cluster

CONTROL_PLANE = {"controllers": ["job-controller", "daemonset-controller"]}

QUEUE = "kueue.x-k8s.io/queue-name"
MANAGED = "kueue.x-k8s.io/managed"
GATE = "kueue.x-k8s.io/admission"
GPU = {"nvidia.com/gpu": "1"}
ON = {"kueue": "on"}


def containers(limits: dict[str, str] | None) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "none", "resources": {"limits": limits or {}}}]}


def pod(ns: str, labels: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    metadata = {"generateName": "p-", "namespace": ns, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": containers(limits)}


def job(ns: str, labels: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", **containers(limits)}}
    metadata = {"generateName": "j-", "namespace": ns, "labels": labels or {}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


def is_gated(made: dict[str, Any]) -> bool:
    return GATE in [gate["name"] for gate in made["spec"].get("schedulingGates") or []]


def default_queue(plane: ControlPlane, ns: str) -> None:
    plane.api.create(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "default", "namespace": ns},
            "spec": {"clusterQueue": "c"},
        }
    )


class TestEverythingIsManaged:
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def webhook(cls, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        folder = tmp_path_factory.mktemp("all")
        selector = LabelSelector(match_labels=ON)
        with serving(
            control_plane, folder, manage_jobs_without_queue_name=True, managed_jobs_namespace_selector=selector
        ):
            yield

    def test_an_excluded_namespace_is_left_alone(self, control_plane: ControlPlane) -> None:
        ns = control_plane.namespace()
        default_queue(control_plane, ns)
        for made in (control_plane.api.create(job(ns)), control_plane.api.create(pod(ns, {QUEUE: "q"}, GPU))):
            assert not made["spec"].get("suspend")
            assert not is_gated(made)
            ours = {name for name in made["metadata"].get("labels", {}) if name.startswith("kueue.x-k8s.io/")}
            assert ours <= {QUEUE}

    def test_a_job_joins_the_default_queue(self, control_plane: ControlPlane) -> None:
        ns = control_plane.namespace(ON)
        default_queue(control_plane, ns)

        def joined() -> bool:
            made = control_plane.api.create(job(ns), dry_run=True)
            return made["spec"]["suspend"] is True and made["metadata"]["labels"] == {QUEUE: "default"}

        eventually(joined, message="the webhook knows of the LocalQueue")

    def test_a_pod_without_any_queue_waits(self, control_plane: ControlPlane) -> None:
        made = control_plane.api.create(pod(control_plane.namespace(ON)))
        assert is_gated(made)
        assert made["metadata"]["labels"] == {MANAGED: "true"}

    def test_the_pods_of_a_started_job_and_of_a_daemon_set_are_not_gated(self, control_plane: ControlPlane) -> None:
        api, ns = control_plane.api, control_plane.namespace(ON)
        made = api.create(job(ns))
        assert made["spec"]["suspend"] is True
        api.patch("Job", made["metadata"]["name"], {"spec": {"suspend": False}}, ns)
        (of_job,) = eventually(lambda: api.list("Pod", ns))
        assert not is_gated(of_job)
        api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}}
        spec["template"]["spec"] = {**containers(GPU), "tolerations": [{"operator": "Exists"}]}
        api.create(
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "namespace": ns}, "spec": spec}
        )
        (of_daemon_set,) = eventually(lambda: api.list("Pod", ns, "a=b"))
        assert not is_gated(of_daemon_set)


class TestGpusInSomeNamespaces:
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def webhook(cls, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        gpu_pods = GpuPods(namespace_selector=LabelSelector(match_labels=ON))
        with serving(control_plane, tmp_path_factory.mktemp("some"), muster=Muster(gpu_pods=gpu_pods)):
            yield

    def test_a_gpu_is_seen_where_it_is_looked_for(self, control_plane: ControlPlane) -> None:
        ns = control_plane.namespace(ON)
        assert is_gated(control_plane.api.create(pod(ns, limits=GPU)))
        assert control_plane.api.create(job(ns, limits=GPU))["spec"]["suspend"] is True

    def test_elsewhere_nobody_is_asked(self, control_plane: ControlPlane) -> None:
        api, ns = control_plane.api, control_plane.namespace()
        names = ("mpod.kb.io", "mgpupod.kb.io", "mjob.kb.io", "mgpujob.kb.io")
        before = [calls(api, name) for name in names]
        assert not is_gated(api.create(pod(ns, limits=GPU)))
        assert api.create(job(ns, limits=GPU))["spec"]["suspend"] is False
        assert [calls(api, name) for name in names] == before

    @pytest.mark.parametrize("labels", [ON, {}])
    def test_a_pod_that_names_a_queue_costs_one_call_wherever_it_is(
        self, control_plane: ControlPlane, labels: dict
    ) -> None:
        api, ns = control_plane.api, control_plane.namespace(labels)
        before = calls(api, "mpod.kb.io") + calls(api, "mgpupod.kb.io")
        assert is_gated(api.create(pod(ns, {QUEUE: "q"}, GPU)))
        assert calls(api, "mpod.kb.io") + calls(api, "mgpupod.kb.io") == before + 1


class TestGpuPodsWithoutQueueAreRefused:
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def webhook(cls, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        # Patterns of every form, for the expressions that they become.
        gpu_pods = GpuPods(
            without_queue=WithoutQueue.DENY,
            resources=("nvidia.com/gpu", "a.com/*-gpu", "b.com/*"),
            device_classes=("gpu.example.com",),
        )
        with serving(control_plane, tmp_path_factory.mktemp("deny"), muster=Muster(gpu_pods=gpu_pods)):
            yield

    @pytest.mark.parametrize(
        "resource",
        ["nvidia.com/gpu", "a.com/big-gpu", "b.com/any", "deviceclass.resource.kubernetes.io/gpu.example.com"],
    )
    def test_it_is_told_to_name_one(self, control_plane: ControlPlane, resource: str) -> None:
        ns = control_plane.namespace()
        for made in (pod(ns, limits={resource: "1"}), job(ns, limits={resource: "1"})):
            with pytest.raises(ApiError, match="a LocalQueue of namespace") as caught:
                control_plane.api.create(made)
            assert caught.value.status == 403
            assert resource in caught.value.message

    def test_what_is_none_is_let_through(self, control_plane: ControlPlane) -> None:
        ns = control_plane.namespace()
        for resource in ("a.com/gpu", "xb.com/any", "a.com/gpu-1"):
            assert not is_gated(control_plane.api.create(pod(ns, limits={resource: "1"})))
