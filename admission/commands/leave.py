"""Runs `muster leave`: takes Muster out of a cluster, so that nothing is stuck or refused when it is gone.

Works from the objects alone, before the manifests are deleted or after. It stops Muster first, so that nobody puts back
what is taken away. It starts nothing, ends nothing that runs, and never deletes CRDs or what is in them.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from admission.api import names
from admission.api.batch import JOB_COMPLETE, JOB_FAILED
from admission.api.core import PodSchedulingGate
from admission.api.meta import ObjectMeta
from admission.api.schema import Object
from admission.commands import stopping
from admission.commands.adopt.survey import KINDS, raw
from admission.commands.faults import USAGE, Fault, told
from admission.commands.progress import Progress, progress
from admission.commands.reach import Reach

if TYPE_CHECKING:
    from admission.kube.client import Client
    from admission.kube.resources import Resource

T = TypeVar("T")

_WRITES: Final = 16
_OURS: Final = {"app.kubernetes.io/name": "muster"}
_FINALIZERS: Final = {names.RESOURCE_IN_USE_FINALIZER, names.POD_FINALIZER}
_GATES: Final = {names.ADMISSION_GATE, names.TOPOLOGY_GATE, names.ELASTIC_JOB_GATE}
_ENDS: Final = {JOB_COMPLETE, JOB_FAILED}
_AGGREGATED: Final = ("muster-batch-admin-role", "muster-batch-user-role")
_HELM: Final = "helm uninstall muster --namespace"
_KUBECTL: Final = "kubectl delete -k webhook-config -l app.kubernetes.io/name=muster"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line says. `namespace` is where Muster is installed."""

    namespace: str
    seconds: float
    dry_run: bool
    yes: bool


class _Named(Object, frozen=True):
    """All that matters of an object here: there may be very many."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class _Gates(Object, frozen=True):
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()


class _Pod(_Named, frozen=True):
    spec: _Gates = msgspec.field(default_factory=_Gates)


@dataclass(slots=True)
class Found:
    """What there is of Muster in a cluster."""

    #: What has a finalizer of Muster's.
    held: list[tuple[Resource[Any], ObjectMeta]] = field(default_factory=list)
    #: Objects of Muster's own kinds.
    kinds: Counter[str] = field(default_factory=Counter)
    gated_pods: int = 0
    suspended_jobs: int = 0

    def holding(self) -> str:
        kinds = Counter(resource.kind for resource, _ in self.held)
        return ", ".join(f"{number} {kind}" for kind, number in kinds.items())

    def stays(self) -> Iterator[str]:
        """What nobody looks after any more."""
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.kinds.items()) or "nothing in them"
        yield f"stays: the CRDs of {names.GROUP}, with {kinds}; kubectl delete crd deletes all of that"
        if self.gated_pods:
            yield f"stays gated: {self.gated_pods} pods; delete them, or take the gate off to let them run"
        if self.suspended_jobs:
            yield f"stays suspended: {self.suspended_jobs} jobs; delete them, or set suspend to false to let them run"


# ------------------------------------------------------------------ looking


async def look(client: Client) -> Found:
    """What there is, as of now."""
    from admission.kube.resources import Resource

    pods = Resource("", "v1", "pods", "Pod", True, _Pod)
    found = Found()
    for plural, kind, namespaced in KINDS:
        resource = Resource(names.GROUP, names.VERSION, plural, kind, namespaced, _Named)
        objects = await _all(client, resource)
        if objects:
            found.kinds[kind] = len(objects)
        found.held += [(resource, each.metadata) for each in objects if _is_held(each.metadata)]
    for pod in await _all(client, pods):
        if _is_held(pod.metadata):
            found.held.append((pods, pod.metadata))
        found.gated_pods += any(gate.name in _GATES for gate in pod.spec.scheduling_gates)
    found.suspended_jobs = await _suspended(client)
    return found


async def _all(
    client: Client, resource: Resource[T], namespace: str | None = None, label: str | None = None
) -> tuple[T, ...]:
    """Nothing of a kind that is not served here."""
    from admission.kube.errors import NotFound

    try:
        return (await client.list(resource, namespace, label_selector=label)).items
    except NotFound:
        return ()


def _is_held(metadata: ObjectMeta) -> bool:
    return not _FINALIZERS.isdisjoint(metadata.finalizers)


async def _suspended(client: Client) -> int:
    """Jobs that wait in a queue. Those of a job that is queued itself are its operator's."""
    from admission.kube.resources import CUSTOM_JOBS, JOBS

    number = sum(
        each.spec.suspend and not any(end.type in _ENDS and end.status == "True" for end in each.status.conditions)
        for each in await _all(client, JOBS, label=names.QUEUE_LABEL)
    )
    for resource in CUSTOM_JOBS.values():
        number += sum(each.is_suspended for each in await _all(client, resource, label=names.QUEUE_LABEL))
    return number


# ------------------------------------------------------------------ leaving


async def leave(client: Client, wishes: Wishes, say: Progress) -> AsyncIterator[str]:
    """Yields what was done, a line a step. Each step can be done again."""
    from admission.commands import install

    # 1. Whoever leads would put back what is taken away.
    for deployment in await _deployments(client, wishes.namespace):
        await stopping.stop(client, deployment, "Muster", wishes.seconds, say)
        yield f"stopped Muster: Deployment {wishes.namespace}/{deployment['metadata']['name']} has 0 replicas"
    await stopping.gone(client, wishes.namespace, _OURS, "Muster", wishes.seconds, say)

    # 2. Nobody answers, so nobody may be asked. With an API that does not answer no namespace can be deleted.
    callers = await install.remove_callers(client, wishes.namespace)
    for name in [*callers, *await _remove_apis(client), *await _remove_roles(client)]:
        yield f"deleted {name}"

    # 3. What nobody else would ever let go.
    found = await look(client)
    if found.held:
        say(f"taking finalizers off {len(found.held)} objects")
        limit = asyncio.Semaphore(_WRITES)
        await asyncio.gather(*(_let_go(client, resource, metadata, limit) for resource, metadata in found.held))
        yield f"took the finalizer off {found.holding()}"

    for line in found.stays():
        yield line
    yield f"to delete: the rest of Muster's manifests, with {_HELM} {wishes.namespace}, or {_KUBECTL}"


async def _deployments(client: Client, namespace: str) -> tuple[dict[str, Any], ...]:
    return await _all(client, stopping.deployments(), namespace, _label())


def _label() -> str:
    return ",".join(f"{key}={value}" for key, value in _OURS.items())


async def _remove_apis(client: Client) -> list[str]:
    services = raw("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
    named = [each["metadata"]["name"] for each in await _all(client, services, label=_label())]
    for name in named:
        await client.delete(services, None, name)
    return [f"APIService/{name}" for name in named]


async def _remove_roles(client: Client) -> list[str]:
    """Kubernetes puts an aggregated role back when what it is made of goes a moment before it does."""
    from admission.kube.errors import NotFound

    resource, removed = raw("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False), []
    for name in _AGGREGATED:
        with contextlib.suppress(NotFound):
            await client.delete(resource, None, name)
            removed.append(f"ClusterRole/{name}")
    return removed


async def _let_go(client: Client, resource: Resource[Any], metadata: ObjectMeta, limit: asyncio.Semaphore) -> None:
    from admission.kube.errors import Conflict, NotFound

    async with limit:
        while _is_held(metadata):
            left = [each for each in metadata.finalizers if each not in _FINALIZERS]
            change = {"metadata": {"finalizers": left, "resourceVersion": metadata.resource_version}}
            with contextlib.suppress(Conflict):
                with contextlib.suppress(NotFound):
                    await client.patch(resource, metadata.namespace, metadata.name, change)
                return
            try:
                metadata = (await client.get(resource, metadata.namespace, metadata.name)).metadata
            except NotFound:
                return


# ------------------------------------------------------------------ the command


async def _preview(client: Client, namespace: str) -> list[str]:
    found = await look(client)
    running = [each["metadata"]["name"] for each in await _deployments(client, namespace)]
    return [
        *(f"to stop: Deployment {namespace}/{name}" for name in running),
        "to delete: Muster's webhook configurations, admission policies, APIServices and aggregated roles",
        *([f"to take the finalizer off: {found.holding()}"] if found.held else ()),
        *found.stays(),
    ]


async def _work(reach: Reach, wishes: Wishes) -> None:
    async with reach.client() as client:
        if wishes.dry_run or not wishes.yes:
            with progress() as say:
                say("looking at the cluster")
                lines = await _preview(client, wishes.namespace)
            click.echo("\n".join(lines))
        if wishes.dry_run:
            return
        if not wishes.yes:
            _ask()
        with progress() as say:
            async for line in leave(client, wishes, say):
                say.done(line)


def _ask() -> None:
    if not sys.stdin.isatty():
        raise Fault("say --yes where nobody can be asked", USAGE)
    click.confirm("Take Muster out of this cluster?", abort=True, err=True)


def run(reach: Reach, wishes: Wishes) -> None:
    """`muster leave`."""
    with told():
        asyncio.run(_work(reach, wishes))
