"""A controller in this process, on a real API server that has the CRDs and nothing else, and builders for objects."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from prometheus_client import generate_latest

from admission.commands.memory import Memory
from admission.controllers.loop import Controller
from admission.kube.client import connect
from admission.resources import webhook_config
from admission.settings import Settings
from admission.settings.configuration import LeaderElection
from tests.cluster.account import NAMESPACE, kubeconfig_of_muster
from tests.controlplane.cluster import KINDS, KUEUE, Api, ControlPlane, eventually

Object = dict[str, Any]

SETTINGS = Settings(namespace=NAMESPACE, leader_election=LeaderElection(leader_elect=False))


def install_crds(plane: ControlPlane) -> None:
    plane.kubectl("apply", "--server-side", "-k", str(webhook_config() / "crds"))
    # The handlers of a new CRD come up a moment after it is established, each by itself.
    for kind in [kind for kind, (version, _, _) in KINDS.items() if version == KUEUE]:
        eventually(lambda kind=kind: plane.api.list(kind) is not None, message=f"{kind} is served")


class Running:
    """One controller on an event loop in a thread of its own."""

    def __init__(self, kubeconfig: str, settings: Settings = SETTINGS, journal: Any = None) -> None:
        self._kubeconfig = kubeconfig
        self._settings = settings
        self._journal = journal
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None
        self.controller: Controller | None = None
        self.error: BaseException | None = None

    def start(self) -> Running:
        self._thread.start()
        eventually(lambda: self.error or (self.controller is not None and self.controller.is_synced))
        if self.error is not None:
            raise self.error
        return self

    def stop(self) -> None:
        """In order."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        if self.error is not None:
            raise self.error

    def kill(self) -> None:
        """At once, between any two writes: nothing that is under way gets a chance to end."""
        if self._loop is not None and self._task is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(30)

    def metrics(self) -> str:
        """What a scrape finds now, read on the controller's own loop: it may change while another thread reads it."""

        async def scrape() -> str:
            assert self.controller is not None
            return generate_latest(self.controller.metrics.registry).decode()

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(scrape(), self._loop).result(30)

    def _main(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            try:
                asyncio.run(self._run())
            except Exception as error:  # noqa: BLE001  # the test is told
                self.error = error

    async def _run(self) -> None:
        self._loop, self._stop, self._task = asyncio.get_running_loop(), asyncio.Event(), asyncio.current_task()
        async with await connect(self._kubeconfig) as client:
            memory = self._journal if isinstance(self._journal, Memory) else None
            recalled = None if memory is None else memory.recall()
            self.controller = Controller(client, self._settings, self._journal, recalled=recalled)
            if memory is not None:
                self.controller.recall_starts(memory.recall_starts)
            await self.controller.run(self._stop)


@contextlib.contextmanager
def running(plane: ControlPlane, settings: Settings = SETTINGS, journal: Any = None) -> Iterator[Running]:
    controller = Running(kubeconfig_of_muster(plane), settings, journal).start()
    try:
        yield controller
    finally:
        controller.stop()


# ------------------------------------------------------------------ objects


def flavor(name: str = "default", **spec: Any) -> Object:
    return {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def cluster_queue(name: str, cpu: Any, *, cohort: str | None = None, flavors: str = "default", **spec: Any) -> Object:
    quota = {"name": "cpu", "nominalQuota": cpu}
    return {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": flavors, "resources": [quota]}]}],
            "namespaceSelector": {},
            **({"cohortName": cohort} if cohort else {}),
            **spec,
        },
    }


def local_queue(name: str, queue: str, namespace: str = "default", **spec: Any) -> Object:
    return {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": queue, **spec},
    }


def workload(name: str, queue: str, cpu: Any = 1, count: int = 1, namespace: str = "default", **spec: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "queueName": queue,
            "podSets": [
                {
                    "name": "main",
                    "count": count,
                    "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
                }
            ],
            **spec,
        },
    }


# ------------------------------------------------------------------ questions


class Watched:
    """What a test asks about Workloads and queues of one namespace."""

    def __init__(self, api: Api, namespace: str = "default") -> None:
        self.api = api
        self.namespace = namespace

    def condition(self, kind: str, name: str, type_: str) -> Mapping[str, Any]:
        namespace = self.namespace if kind in {"Workload", "LocalQueue"} else None
        conditions = self.api.get(kind, name, namespace).get("status", {}).get("conditions") or []
        return next((each for each in conditions if each["type"] == type_), {})

    def is_true(self, name: str, type_: str) -> bool:
        return self.condition("Workload", name, type_).get("status") == "True"

    def admitted(self, *names: str, seconds: float = 30) -> None:
        for name in names:
            eventually(partial(self.is_true, name, "Admitted"), seconds=seconds, message=f"{name} is admitted")

    def waits(self, name: str, reason: str, seconds: float = 30) -> str:
        """Is told why it waits; gives the message."""

        def told() -> str:
            found = self.condition("Workload", name, "QuotaReserved")
            return found.get("message", "") if (found.get("status"), found.get("reason")) == ("False", reason) else ""

        return str(eventually(told, seconds=seconds, message=f"{name} waits for {reason}"))

    def version(self, name: str) -> str:
        return str(self.api.get("Workload", name, self.namespace)["metadata"]["resourceVersion"])

    def finish(self, name: str) -> None:
        """Without undoing what the controller says of it meanwhile."""

        def finished() -> bool:
            found = self.api.get("Workload", name, self.namespace)
            conditions = found.get("status", {}).get("conditions") or []
            done = {
                "type": "Finished",
                "status": "True",
                "reason": "Succeeded",
                "message": "",
                "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            body = {"metadata": version, "status": {"conditions": [*conditions, done]}}
            self.api.patch("Workload", name, body, self.namespace, sub="status")
            return True

        eventually(finished, message=f"{name} is finished")

    def status(self, kind: str, name: str) -> Mapping[str, Any]:
        namespace = self.namespace if kind == "LocalQueue" else None
        return self.api.get(kind, name, namespace).get("status") or {}

    def gone(self, kind: str, name: str) -> None:
        namespace = self.namespace if kind in {"Workload", "LocalQueue"} else None
        eventually(lambda: self.api.find(kind, name, namespace) is None, message=f"{kind} {name} is gone")
