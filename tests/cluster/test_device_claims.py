"""Jobs whose pods claim devices or ask for shares of GPUs: charged by the controller, started by the job controller."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from admission.settings import GpuPods, GpuShares, Muster, Resources, dump, parse
from admission.settings.configuration import (
    CelSelector,
    DeviceClassMapping,
    DeviceClassSource,
    DeviceSource,
    SourceSelector,
)
from tests.cluster.controller_rig import cluster_queue, flavor, local_queue, running
from tests.cluster.webhook_process import serving
from tests.controlplane.cluster import Api, ControlPlane
from tests.controlplane.cluster import eventually as soon

pytestmark = pytest.mark.cluster

CONTROL_PLANE = {"controllers": ["job-controller"]}

#: The machine may be busy with other tests.
eventually = partial(soon, seconds=30)
DEVICES = "resource.k8s.io/v1"
QUEUE = "kueue.x-k8s.io/queue-name"
GPU = "example.com/gpu"
DRIVER = "vram.example.com"
VRAM = DeviceSource(
    name="memory", driver=DRIVER, device_selector=SourceSelector(cel=CelSelector(expression="device.driver != ''"))
)


@pytest.fixture(scope="module", autouse=True)
def muster(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Devices of the classes gpu and gpu-old count as `gpus`; pods with claims need no queue name."""
    with serving(
        control_plane,
        tmp_path_factory.mktemp("webhook"),
        resources=Resources(
            device_class_mappings=(
                DeviceClassMapping(name="gpus", device_class_names=("gpu", "gpu-old")),
                DeviceClassMapping(
                    name="vram", device_class_names=("vram",), sources=(DeviceClassSource(capacity=VRAM),)
                ),
            )
        ),
        feature_gates={"KueueDRAIntegrationConsumableCapacity": True},
        muster=Muster(
            gpu_pods=GpuPods(device_classes=("gpu",)),
            gpu_shares=GpuShares(presets=("mig-h100-80gb",), replicas={"nvidia.com/gpu.shared": 4}),
        ),
    ) as webhook:
        api = control_plane.api
        api.create(flavor())
        made = {"apiVersion": DEVICES, "kind": "DeviceClass", "metadata": {"name": "gpu"}}
        api.create({**made, "spec": {"extendedResourceName": GPU}})
        with running(control_plane, parse(dump(webhook.settings))):
            yield


@pytest.fixture
def ns(control_plane: ControlPlane) -> str:
    """A namespace whose LocalQueue `default` has a ClusterQueue of 16 cpu and 4 gpus."""
    name = control_plane.namespace()
    quotas = [{"name": "cpu", "nominalQuota": 16}, {"name": "gpus", "nominalQuota": 4}]
    group = {"coveredResources": ["cpu", "gpus"], "flavors": [{"name": "default", "resources": quotas}]}
    control_plane.api.create(cluster_queue(name, 0, resourceGroups=[group]))
    has_queue(control_plane.api, name)
    return name


def has_queue(api: Api, ns: str) -> None:
    """Makes the LocalQueue `default`. The webhook gives it to who names no queue as soon as it has heard of it."""
    api.create(local_queue("default", ns, ns))
    probe = job(ns, 1, queue=None, resourceClaimTemplateName="t")
    eventually(lambda: api.create(probe, dry_run=True)["metadata"]["labels"][QUEUE] == "default")


def requests(count: int, device_class: str = "gpu", **fields: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": device_class, **({} if fields else {"count": count}), **fields}
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


def template(ns: str, spec: dict[str, Any], name: str = "t") -> dict[str, Any]:
    metadata = {"name": name, "namespace": ns}
    return {"apiVersion": DEVICES, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": spec}}


def job(
    ns: str, pods: int, limits: dict[str, str] | None = None, queue: str | None = "default", **claim: str
) -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}, "limits": limits or {}}}
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if claim:
        spec["resourceClaims"] = [{"name": "device", **claim}]
        container["resources"]["claims"] = [{"name": "device"}]
    labels = {QUEUE: queue} if queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "j-", "namespace": ns, "labels": labels},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": spec}},
    }


def usage(api: Api, ns: str) -> dict[str, str]:
    """Of the only Workload, once it is admitted."""

    def ask() -> Any:
        (one,) = api.list("Workload", ns) or [{}]
        admission = one.get("status", {}).get("admission")
        return admission and admission["podSetAssignments"][0]["resourceUsage"]

    return dict(eventually(ask, message="the Workload is admitted"))


def waits_for(api: Api, ns: str, words: str) -> None:
    def ask() -> bool:
        (one,) = api.list("Workload", ns) or [{}]
        conditions = one.get("status", {}).get("conditions", [])
        return any(
            each["type"] == "QuotaReserved" and each["reason"] == "Misconfigured" and words in each["message"]
            for each in conditions
        )

    eventually(ask, message=f"the Workload is told: {words}")


def test_a_job_waits_for_its_claim_template_and_is_charged_by_it(api: Api, ns: str) -> None:
    made = api.create(job(ns, 2, resourceClaimTemplateName="t"))
    assert made["spec"]["suspend"]
    waits_for(api, ns, 'ResourceClaimTemplate "t" does not exist')
    api.create(template(ns, requests(2)))
    assert usage(api, ns) == {"cpu": "2", "gpus": "4"}
    eventually(lambda: len(api.list("Pod", ns)) == 2, message="both pods are created")
    assert not api.get("Job", made["metadata"]["name"], ns)["spec"]["suspend"]
    status = eventually(lambda: api.get("ClusterQueue", ns)["status"].get("flavorsUsage"))
    eventually(lambda: {"name": "gpus", "total": "4", "borrowed": "0"} in used(api, ns), message=str(status))


def used(api: Api, queue: str) -> list[dict[str, str]]:
    return list(api.get("ClusterQueue", queue)["status"]["flavorsUsage"][0]["resources"])


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param(requests(1, "fpga"), 'device class "fpga" is mapped to no resource', id="a class without quota"),
        pytest.param(requests(1, allocationMode="All"), "allocationMode All", id="all devices"),
    ],
)
def test_what_cannot_be_charged_waits_for_another_template(api: Api, ns: str, spec: Any, words: str) -> None:
    api.create(template(ns, spec))
    api.create(job(ns, 1, resourceClaimTemplateName="t"))
    waits_for(api, ns, words)
    assert not api.list("Pod", ns)
    api.delete("ResourceClaimTemplate", "t", ns)
    api.create(template(ns, requests(1, "gpu-old")))
    assert usage(api, ns) == {"cpu": "1", "gpus": "1"}


def test_a_claim_that_all_pods_share_is_charged_once(api: Api, ns: str) -> None:
    metadata = {"name": "s", "namespace": ns}
    api.create({"apiVersion": DEVICES, "kind": "ResourceClaim", "metadata": metadata, "spec": requests(3)})
    api.create(job(ns, 3, resourceClaimName="s"))
    assert usage(api, ns) == {"cpu": "3", "gpus": "3"}


def test_devices_that_are_asked_for_as_a_resource_are_charged_by_their_class(api: Api, ns: str) -> None:
    api.create(job(ns, 3, {GPU: "1"}))
    assert usage(api, ns) == {"cpu": "3", "gpus": "3"}


def test_a_job_with_a_claim_is_queued_although_it_names_no_queue(api: Api, ns: str) -> None:
    api.create(template(ns, requests(1)))
    made = api.create(job(ns, 1, queue=None, resourceClaimTemplateName="t"))
    assert made["metadata"]["labels"][QUEUE] == "default"
    assert made["spec"]["suspend"]
    assert usage(api, ns) == {"cpu": "1", "gpus": "1"}


def test_slices_of_gpus_and_whole_gpus_draw_on_one_quota(control_plane: ControlPlane) -> None:
    """Two GPUs: seven slices of a seventh are the one, a whole GPU the other, and then nothing is left, not a trace."""
    api, ns, parts = control_plane.api, control_plane.namespace(), "muster.dev/gpu-parts"
    quotas = [{"name": "cpu", "nominalQuota": 99}, {"name": parts, "nominalQuota": 2 * 840}]
    group = {"coveredResources": ["cpu", parts], "flavors": [{"name": "default", "resources": quotas}]}
    api.create(cluster_queue(ns, 0, resourceGroups=[group]))
    has_queue(api, ns)

    def total() -> int:
        resources = (api.get("ClusterQueue", ns)["status"].get("flavorsReservation") or [{}])[0].get("resources", [])
        return next((int(each["total"]) for each in resources if each["name"] == parts), 0)

    # No queue is named: for slices and shared GPUs the webhook asks for one as it does for GPUs.
    slices = api.create(job(ns, 7, {"nvidia.com/mig-1g.10gb": "1"}, queue=None))
    assert slices["metadata"]["labels"][QUEUE] == "default"
    eventually(lambda: total() == 840, message="seven slices are a GPU")
    api.create(job(ns, 1, {"nvidia.com/gpu": "1"}))
    eventually(lambda: total() == 1680, message="and a whole one is the other")
    waiting = api.create(job(ns, 1, {"nvidia.com/gpu.shared": "1"}, queue=None))
    assert waiting["metadata"]["labels"][QUEUE] == "default"
    (workload,) = eventually(
        lambda: [each for each in api.list("Workload", ns) if "resourceRequests" in each.get("status", {})],
        message="the last one waits and says for what",
    )
    assert workload["status"]["resourceRequests"] == [{"name": "main", "resources": {"cpu": "1", parts: "210"}}]
    api.delete("Job", slices["metadata"]["name"], ns)
    eventually(lambda: total() == 840 + 210, message="a quarter of a GPU fits when the slices are gone")


def test_devices_that_count_by_their_capacity_are_charged_once_a_driver_tells_of_them(
    control_plane: ControlPlane,
) -> None:
    api, ns = control_plane.api, control_plane.namespace()
    quotas = [{"name": "cpu", "nominalQuota": 16}, {"name": "vram", "nominalQuota": "160Gi"}]
    group = {"coveredResources": ["cpu", "vram"], "flavors": [{"name": "default", "resources": quotas}]}
    api.create(cluster_queue(ns, 0, resourceGroups=[group]))
    api.create(local_queue("default", ns, ns))
    api.create({"apiVersion": DEVICES, "kind": "DeviceClass", "metadata": {"name": "vram"}, "spec": {}})
    large = f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("60Gi"))'
    api.create(template(ns, requests(1, "vram", selectors=[{"cel": {"expression": large}}])))
    api.create(job(ns, 2, resourceClaimTemplateName="t"))
    waits_for(api, ns, "1 devices are asked for and 0 match")
    found = [{"name": f"gpu-{size}", "capacity": {"memory": {"value": f"{size}Gi"}}} for size in (40, 80)]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "allNodes": True, "devices": found}
    api.create({"apiVersion": DEVICES, "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec})
    assert usage(api, ns) == {"cpu": "2", "vram": str(160 * 1024**3)}
