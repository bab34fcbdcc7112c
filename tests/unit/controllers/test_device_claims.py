"""Whom a change of device classes, claims and claim templates makes dirty, and what the core then hears."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admission.api import devices, kueue
from admission.api.decoding import convert
from admission.controllers.cluster import Cluster, Dirty
from admission.controllers.inbox import Observed
from admission.controllers.store import Key
from admission.controllers.tables import DEVICES, optional
from admission.jobs.registry import adapters
from admission.kube.informers import Deleted, Upserted
from admission.settings.configuration import (
    CelSelector,
    DeviceClassMapping,
    DeviceClassSource,
    DeviceSource,
    Resources,
    SourceSelector,
)
from tests.unit.controllers.builders import NAMESPACE, NOW, cluster_queue, local_queue, settings, template, workload

W = Key(NAMESPACE, "w")
SETTINGS = msgspec.structs.replace(
    settings(),
    resources=Resources(device_class_mappings=(DeviceClassMapping(name="gpus", device_class_names=("gpu",)),)),
)


def pods(**spec: Any) -> kueue.Workload:
    raw = template()
    raw["spec"] |= spec
    return workload().spec(pod_sets=(kueue.PodSet(name="main", count=2, template=raw),)).obj


def claimed_by(**claim: str) -> kueue.Workload:
    return pods(resourceClaims=[{"name": "c", **claim}])


def claim_template(count: int = 1, version: str = "1") -> devices.ResourceClaimTemplate:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}]
    meta = {"name": "t", "namespace": NAMESPACE, "uid": "uid-t", "resourceVersion": version}
    return convert(
        {"metadata": meta, "spec": {"spec": {"devices": {"requests": requests}}}}, devices.ResourceClaimTemplate
    )


def claim(version: str = "1", **more: Any) -> devices.ResourceClaim:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 3}}]
    meta = {"name": "s", "namespace": NAMESPACE, "uid": "uid-s", "resourceVersion": version}
    return convert({"metadata": meta, "spec": {"devices": {"requests": requests}}, **more}, devices.ResourceClaim)


def device_class(extended: str, version: str = "1") -> devices.DeviceClass:
    meta = {"name": "gpu", "uid": "uid-gpu", "resourceVersion": version}
    return convert({"metadata": meta, "spec": {"extendedResourceName": extended}}, devices.DeviceClass)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster(SETTINGS, adapters(SETTINGS), lambda: NOW)
    take(made, cluster_queue(), local_queue())
    return made


def take(cluster: Cluster, *objects: Any) -> Dirty:
    """Who became dirty."""
    cluster.dirty = Dirty()
    for obj in objects:
        cluster.take(Observed(obj.kind, Upserted(obj)))
    return cluster.dirty


def test_a_template_that_comes_later_wakes_its_workload(cluster: Cluster) -> None:
    obj = claimed_by(resourceClaimTemplateName="t")
    take(cluster, obj)
    assert cluster.value(obj).misconfigured == 'ResourceClaimTemplate "t" does not exist'
    assert list(take(cluster, claim_template()).workloads) == [W]
    assert cluster.value(obj).pod_sets[0].requests == {"cpu": 1000, "gpus": 1}


def test_a_template_that_goes_or_is_made_anew_is_read_again(cluster: Cluster) -> None:
    obj = claimed_by(resourceClaimTemplateName="t")
    take(cluster, obj, claim_template())
    assert cluster.value(obj).misconfigured is None
    cluster.dirty = Dirty()
    cluster.take(Observed("ResourceClaimTemplate", Deleted(claim_template())))
    assert list(cluster.dirty.workloads) == [W]
    assert cluster.value(obj).misconfigured is not None


def test_only_those_who_name_a_claim_are_woken_by_it(cluster: Cluster) -> None:
    take(cluster, pods())
    assert not take(cluster, claim(), claim_template()).workloads


def test_an_allocation_written_into_a_claim_wakes_nobody(cluster: Cluster) -> None:
    obj = claimed_by(resourceClaimName="s")
    take(cluster, obj, claim())
    assert cluster.value(obj).pod_sets[0].shared == {"gpus": 3}
    assert not take(cluster, claim("2", status={"allocation": {}})).workloads


def test_a_class_that_gives_an_extended_resource_changes_what_is_charged(cluster: Cluster) -> None:
    obj = pods(containers=[{"name": "c", "resources": {"limits": {"a.b/gpu": "1"}}}])
    take(cluster, obj)
    assert cluster.value(obj).pod_sets[0].requests == {"a.b/gpu": 1}
    assert list(take(cluster, device_class("a.b/gpu")).workloads) == [W]
    assert cluster.value(obj).pod_sets[0].requests == {"gpus": 1}
    assert not take(cluster, device_class("a.b/gpu", "2")).workloads, "nothing changed"
    assert list(take(cluster, device_class("", "3")).workloads) == [W]
    assert cluster.value(obj).pod_sets[0].requests == {"a.b/gpu": 1}


def test_devices_are_followed_only_where_classes_are_mapped() -> None:
    assert set(DEVICES) <= set(optional(SETTINGS))
    assert not set(DEVICES) & set(optional(settings()))
    off = msgspec.structs.replace(SETTINGS, feature_gates={"KueueDRAIntegration": False})
    assert not set(DEVICES) & set(optional(off))


def test_a_driver_that_tells_of_devices_wakes_who_counts_by_them() -> None:
    selector = SourceSelector(cel=CelSelector(expression="true"))
    counter = DeviceClassSource(counter=DeviceSource(name="memory", driver="d", device_selector=selector))
    mapping = DeviceClassMapping(name="gpus", device_class_names=("gpu",), sources=(counter,))
    counted = msgspec.structs.replace(settings(), resources=Resources(device_class_mappings=(mapping,)))
    cluster = Cluster(counted, adapters(counted), lambda: NOW)
    take(cluster, cluster_queue(), local_queue(), device_class(""), claim_template(2))
    waiting = claimed_by(resourceClaimTemplateName="t")
    assert list(take(cluster, waiting).workloads) == [W]
    assert "0 match" in (cluster.value(waiting).misconfigured or "")
    assert list(take(cluster, resource_slice()).workloads) == [W]
    assert cluster.value(waiting).pod_sets[0].requests == {"cpu": 1000, "gpus": 20}
    assert not take(cluster, resource_slice(version="2")).workloads, "nothing that counts has changed"
    cluster.take(Observed("ResourceSlice", Deleted(resource_slice(version="3"))))
    assert "0 match" in (cluster.value(waiting).misconfigured or "")


def resource_slice(version: str = "1") -> devices.ResourceSlice:
    found = [
        {"name": name, "consumesCounters": [{"counterSet": "c", "counters": {"memory": {"value": "10"}}}]}
        for name in ("a", "b")
    ]
    meta = {"name": "s", "uid": "uid-s", "resourceVersion": version}
    spec = {"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": found}
    return convert({"metadata": meta, "spec": spec}, devices.ResourceSlice)
