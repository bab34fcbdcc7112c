"""Informers and caches against a real API server that compacts, restarts and closes watches."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from admission.kube.caches import Caches
from admission.kube.client import Client, connect
from admission.kube.informers import Deleted, Delta, Informer, Replaced, Upserted
from admission.kube.resources import SECRETS
from tests.controlplane.cluster import ControlPlane, eventually

pytestmark = pytest.mark.cluster


class View:
    """What a consumer knows that believes every delta."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.replaced = 0

    def deliver(self, delta: Delta[dict[str, Any]]) -> None:
        match delta:
            case Replaced(items):
                self.objects = {item["metadata"]["name"]: item for item in items}
                self.replaced += 1
            case Upserted(obj):
                self.objects[obj["metadata"]["name"]] = obj
            case Deleted(obj):
                self.objects.pop(obj["metadata"]["name"], None)

    def names(self) -> set[str]:
        return set(self.objects)


async def soon(question: Callable[[], bool], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not question():  # noqa: ASYNC110  # what is asked has no event of its own
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def following(
    plane: ControlPlane, label: str, *, since: str | None = None
) -> AsyncIterator[tuple[Client, View, Informer[dict[str, Any]]]]:
    view = View()
    async with await connect(plane.kubeconfig) as client:
        informer = Informer(client, SECRETS, view.deliver, label_selector=f"test={label}")
        informer._version = since
        task = asyncio.ensure_future(informer.run())
        try:
            await asyncio.wait_for(informer.wait_synced(), 60)
            yield client, view, informer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def secret(name: str, label: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "labels": {"test": label}}}


def test_everything_that_happens_is_delivered(control_plane: ControlPlane) -> None:
    async def work() -> None:
        async with following(control_plane, "all") as (client, view, informer):
            assert view.replaced == 1
            await client.create(SECRETS, secret("a", "all"), "default")
            await client.create(SECRETS, secret("b", "all"), "default")
            await client.patch(SECRETS, "default", "a", {"data": {"x": "eA=="}})
            await soon(lambda: view.names() == {"a", "b"} and view.objects["a"].get("data") == {"x": "eA=="})
            await client.patch(SECRETS, "default", "a", {"metadata": {"labels": {"test": "other"}}})
            await client.delete(SECRETS, "default", "b")
            await soon(lambda: not view.names())
            assert view.replaced == 1
            assert informer.last_contact is not None

    asyncio.run(work())


def test_an_object_of_a_megabyte_arrives(control_plane: ControlPlane) -> None:
    async def work() -> None:
        async with following(control_plane, "big") as (client, view, _):
            body = secret("big", "big") | {"stringData": {"x": "y" * 1_000_000}}
            await client.create(SECRETS, body, "default")
            await soon(lambda: view.names() == {"big"})
            assert base64.b64decode(view.objects["big"]["data"]["x"]) == b"y" * 1_000_000

    asyncio.run(work())


def test_a_restart_of_the_api_server_loses_nothing(control_plane: ControlPlane) -> None:
    async def work() -> None:
        async with following(control_plane, "restart") as (client, view, _):
            await client.create(SECRETS, secret("before", "restart"), "default")
            await soon(lambda: view.names() == {"before"})
            await asyncio.to_thread(control_plane.restart, "kube-apiserver")
            await client.delete(SECRETS, "default", "before")
            await client.create(SECRETS, secret("after", "restart"), "default")
            await soon(lambda: "after" in view.names(), 60)
            assert view.names() == {"after"}

    asyncio.run(work())


def compact(plane: ControlPlane, revision: str) -> None:
    """Have etcd forget everything before `revision`, through the JSON gateway of its client port."""
    import requests

    answer = requests.post(f"{plane.etcd}/v3/kv/compaction", json={"revision": revision, "physical": True}, timeout=10)
    answer.raise_for_status()


def test_a_version_that_was_compacted_away_is_listed_again(control_plane: ControlPlane) -> None:
    async def work() -> None:
        async with await connect(control_plane.kubeconfig) as client:
            await client.create(SECRETS, secret("kept", "gone"), "default")
            newest = (await client.list(SECRETS)).resource_version
        await asyncio.to_thread(compact, control_plane, newest)
        # The API server itself remembers what it watched; after a restart it has only what etcd kept.
        await asyncio.to_thread(control_plane.restart, "kube-apiserver")
        async with following(control_plane, "gone", since="1") as (_, view, _informer):
            await soon(lambda: view.names() == {"kept"})
            assert view.replaced == 1

    asyncio.run(work())


def test_a_watch_that_is_closed_goes_on_where_it_was(control_plane: ControlPlane, monkeypatch: Any) -> None:
    ended: list[str] = []
    watch = Client.watch

    async def short(self: Client, resource: Any, version: str, **kwargs: Any) -> Any:
        async for event in watch(self, resource, version, **{**kwargs, "seconds": 1}):
            yield event
        ended.append(version)

    monkeypatch.setattr(Client, "watch", short)

    async def work() -> None:
        async with following(control_plane, "closed") as (client, view, _):
            for i in range(6):
                await client.create(SECRETS, secret(f"s{i}", "closed"), "default")
                await asyncio.sleep(0.5)
            await soon(lambda: len(view.names()) == 6)
            await soon(lambda: len(ended) >= 2)
            assert view.replaced == 1

    asyncio.run(work())


class TestCaches:
    @pytest.fixture(autouse=True)
    def crds(self, control_plane: ControlPlane) -> None:
        subprocess.run(
            [control_plane.bin / "kubectl", "--kubeconfig", control_plane.kubeconfig, "apply", "-f", CRD], check=True
        )

    def test_the_webhook_knows_namespaces_and_local_queues(self, control_plane: ControlPlane) -> None:
        caches = Caches(control_plane.kubeconfig)
        caches.start()
        try:
            assert caches.wait_synced(60)
            eventually(lambda: caches.namespace_labels("default") == {"kubernetes.io/metadata.name": "default"})
            assert caches.namespace_labels("nowhere") is None
            namespace = control_plane.namespace({"team": "vision"})
            eventually(lambda: (caches.namespace_labels(namespace) or {}).get("team") == "vision")
            assert not caches.has_local_queue(namespace, "q")
            queue = {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "LocalQueue",
                "metadata": {"name": "q", "namespace": namespace},
                "spec": {"clusterQueue": "cq"},
            }
            eventually(lambda: control_plane.api.create(queue))
            eventually(lambda: caches.has_local_queue(namespace, "q"))
            control_plane.restart("kube-apiserver")
            control_plane.api.delete("LocalQueue", "q", namespace)
            eventually(lambda: not caches.has_local_queue(namespace, "q"), seconds=60)
        finally:
            caches.stop()


CRD = "webhook-config/crds/kueue.x-k8s.io_localqueues.yaml"
