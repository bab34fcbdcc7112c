"""Muster's client against a real API server: what it reads and writes, and which error a refusal becomes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from typing import Any

import pytest

from admission.kube import access
from admission.kube.client import Client, connect
from admission.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound, Unreachable
from admission.kube.resources import NAMESPACES, NODES, PODS, SECRETS
from tests.controlplane.cluster import ControlPlane, free_port

pytestmark = pytest.mark.cluster


def run(plane: ControlPlane, work: Any, **options: Any) -> Any:
    async def main() -> Any:
        async with await connect(plane.kubeconfig, **options) as client:
            return await work(client)

    return asyncio.run(main())


def secret(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": {"made-by": "test"}}}


def test_objects_go_in_and_come_out_typed(control_plane: ControlPlane) -> None:
    name = f"n-{uuid.uuid4().hex[:6]}"

    async def work(client: Client) -> None:
        made = await client.create(NODES, {"metadata": {"name": name, "labels": {"rack": "r1"}}})
        assert made.metadata.labels == {"rack": "r1"}
        patched = await client.patch(NODES, None, name, {"metadata": {"labels": {"rack": None, "row": "7"}}})
        assert patched.metadata.labels == {"row": "7"}
        assert (await client.get(NODES, None, name)).metadata.uid == made.metadata.uid
        await client.delete(NODES, None, name, uid=made.metadata.uid)
        with pytest.raises(NotFound):
            await client.get(NODES, None, name)

    run(control_plane, work)


def test_a_list_has_every_page(control_plane: ControlPlane) -> None:
    namespace = control_plane.namespace()

    async def work(client: Client) -> None:
        await asyncio.gather(*(client.create(SECRETS, secret(f"s{i}"), namespace) for i in range(23)))
        listing = await client.list(SECRETS, namespace, label_selector="made-by=test", limit=5)
        assert sorted(item["metadata"]["name"] for item in listing.items) == sorted(f"s{i}" for i in range(23))
        assert listing.resource_version
        one = await client.list(SECRETS, namespace, field_selector="metadata.name=s7")
        assert [item["metadata"]["name"] for item in one.items] == ["s7"]

    run(control_plane, work)


def test_a_dry_run_leaves_nothing(control_plane: ControlPlane) -> None:
    namespace = control_plane.namespace()

    async def work(client: Client) -> None:
        await client.create(SECRETS, secret("s"), namespace, dry_run=True)
        assert (await client.list(SECRETS, namespace)).items == ()

    run(control_plane, work)


def test_each_refusal_is_an_error_of_its_own(control_plane: ControlPlane) -> None:
    namespace = control_plane.namespace()

    async def refused(kind: type[ApiError], request: Coroutine[Any, Any, Any]) -> ApiError:
        with pytest.raises(kind) as caught:
            await request
        assert type(caught.value) is kind
        return caught.value

    async def work(client: Client) -> None:
        made = await client.create(SECRETS, secret("s"), namespace)
        await refused(AlreadyExists, client.create(SECRETS, secret("s"), namespace))
        stale = {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}
        await refused(Conflict, client.patch(SECRETS, namespace, "s", stale))
        await refused(Conflict, client.delete(SECRETS, namespace, "s", uid=str(uuid.uuid4())))
        wrong = await refused(Invalid, client.patch(SECRETS, namespace, "s", {"metadata": {"labels": {"a": "!"}}}))
        assert "metadata.labels" in wrong.message
        missing = await refused(NotFound, client.get(PODS, namespace, "none"))
        assert (missing.status, missing.reason) == (404, "NotFound")
        await refused(Conflict, client.delete(SECRETS, namespace, "s", resource_version="1"))
        await client.delete(SECRETS, namespace, "s", resource_version=made["metadata"]["resourceVersion"])

    run(control_plane, work)


def test_without_rights_is_forbidden(tmp_path: Any, control_plane: ControlPlane) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": "default"}}
    control_plane.api.create(account)
    path = "/api/v1/namespaces/default/serviceaccounts/nobody/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = control_plane.api.request("POST", path, asked)["status"]["token"]
    theirs = tmp_path / "kubeconfig"
    theirs.write_text(open(control_plane.kubeconfig).read().replace(control_plane.token, token))  # noqa: PTH123, SIM115

    async def work() -> None:
        async with await connect(str(theirs)) as client:
            with pytest.raises(Forbidden, match="nobody"):
                await client.list(SECRETS)

    asyncio.run(work())


def test_a_server_that_is_not_there_is_unreachable(tmp_path: Any, control_plane: ControlPlane) -> None:
    wrong = tmp_path / "kubeconfig"
    text = open(control_plane.kubeconfig).read()  # noqa: PTH123, SIM115
    wrong.write_text(text.replace(control_plane.server, f"https://127.0.0.1:{free_port()}"))

    async def work() -> None:
        async with await connect(str(wrong)) as client:
            with pytest.raises(Unreachable):
                await client.get(NAMESPACES, None, "default")

    asyncio.run(work())


def test_a_kubeconfig_that_is_not_there_is_said_by_name(tmp_path: Any) -> None:
    with pytest.raises(access.AccessError, match="nowhere"):
        asyncio.run(connect(str(tmp_path / "nowhere")))


def test_requests_keep_to_the_configured_rate(control_plane: ControlPlane) -> None:
    async def work(client: Client) -> float:
        loop = asyncio.get_running_loop()
        started = loop.time()
        await asyncio.gather(*(client.get(NAMESPACES, None, "default") for _ in range(25)))
        return loop.time() - started

    assert run(control_plane, work, qps=20.0, burst=5) >= 0.95
