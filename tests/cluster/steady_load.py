"""Workloads that come at a steady pace and end soon after they may run, and what is asked of whoever admits them.

Some are gangs of pods, where a webhook gates them. The judgement is made from every state that the API server stored,
and never from what Muster says.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import requests

from tests.cluster.test_kills import none, started_without_end
from tests.cluster.town import GPU, Trails, gates, is_true, kueue, pod
from tests.controlplane.cluster import Api, ApiError, eventually

#: GPUs of each team, and workloads a second.
QUOTA = 40
RATE = 50


def team(api: Api, name: str) -> str:
    """A namespace with a ClusterQueue of `QUOTA` GPUs."""
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    api.create(kueue("ResourceFlavor", name, {}))
    quotas = [{"name": GPU, "nominalQuota": str(QUOTA)}, {"name": "cpu", "nominalQuota": "10k"}]
    groups = [{"coveredResources": [GPU, "cpu"], "flavors": [{"name": name, "resources": quotas}]}]
    api.create(kueue("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups}))
    api.create(kueue("LocalQueue", "default", {"clusterQueue": name}, name))
    eventually(lambda: api.get("LocalQueue", "default", name)["status"]["conditions"])
    return name


def workload(namespace: str, name: str, gpus: int = 1) -> dict[str, Any]:
    resources = {"requests": {GPU: str(gpus), "cpu": "1"}}
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": resources}]}}
    spec = {"queueName": "default", "podSets": [{"name": "main", "count": 1, "template": template}]}
    return kueue("Workload", name, spec, namespace)


class Load:
    """So many workloads a second, with `gangs` every fifth of them two pods; each ends soon after it may run."""

    def __init__(self, api: Api, namespace: str, *, seconds: float, rate: float = RATE, gangs: bool = False) -> None:
        self.api, self.namespace = api, namespace
        self.count = int(rate * seconds)
        self._rate, self._gangs = rate, gangs
        self.refused: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._come, self._end)]

    @property
    def pods(self) -> int:
        return 2 * len(range(0, self.count, 5)) if self._gangs else 0

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for each in self._threads:
            each.join()

    def all_came(self) -> None:
        self._threads[0].join()

    def _come(self) -> None:
        began = time.monotonic()

        def one(number: int) -> None:
            time.sleep(max(0.0, began + number / self._rate - time.monotonic()))
            name = f"w{number}"
            bodies = [workload(self.namespace, name)]
            if self._gangs and number % 5 == 0:
                more = {"queue": "default", "group": name, "total": 2}
                bodies = [pod(self.namespace, f"{name}-{k}", 1, **more) for k in range(2)]
            for body in bodies:
                self._create(body)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, range(self.count)))

    def _create(self, body: dict[str, Any]) -> None:
        """As a client that keeps trying, and knows how often it had to."""
        deadline = time.monotonic() + 60
        while True:
            try:
                self.api.create(body)
            except (ApiError, requests.RequestException) as error:
                if isinstance(error, ApiError) and error.status == 409:
                    return  # it was made, and only the answer was lost
                self.refused.append(str(error))
                if time.monotonic() > deadline:
                    return
                time.sleep(0.2)
            else:
                return

    def _end(self) -> None:
        """Workloads and pods as they run to their end."""
        while not self._over.wait(0.3):
            with contextlib.suppress(ApiError, requests.RequestException):  # one that has too much to do is asked again
                self._end_some()

    def _end_some(self) -> None:
        for each in self.api.list("Workload", self.namespace):
            if not each["metadata"].get("ownerReferences") and is_true(each, "Admitted"):
                self._finish(each)
        for each in self.api.list("Pod", self.namespace):
            if not gates(each) and each["status"].get("phase") == "Pending":
                body = {"status": {"phase": "Succeeded"}}
                with contextlib.suppress(ApiError):
                    self.api.patch("Pod", each["metadata"]["name"], body, self.namespace, sub="status")

    def _finish(self, each: dict[str, Any]) -> None:
        if is_true(each, "Finished"):
            return
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        done = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": at}
        version = {"resourceVersion": each["metadata"]["resourceVersion"]}
        body = {"metadata": version, "status": {"conditions": [*each["status"]["conditions"], done]}}
        with contextlib.suppress(ApiError):
            self.api.patch("Workload", each["metadata"]["name"], body, self.namespace, sub="status")

    def left(self) -> list[str]:
        workloads, pods = self.api.list("Workload", self.namespace), self.api.list("Pod", self.namespace)
        found = [each["metadata"]["name"] for each in workloads if not is_true(each, "Finished")]
        found += [each["metadata"]["name"] for each in pods if gates(each) or each["metadata"].get("finalizers")]
        missing = self.count - len(workloads)
        return [*found, f"{missing} without a Workload"] if missing else found


def judge(trails: Trails, load: Load) -> None:
    """None lost, admitted twice, half released or beyond the quota."""
    eventually(lambda: none(load.left()), seconds=90, every=0.5, message="everything runs to its end")
    found = trails.of("Workload", load.namespace)
    assert len(found) == load.count
    assert [line for each in found if (line := started_without_end(each))] == []
    assert trails.admitted_twice(load.namespace) == []
    assert trails.over_quota({"all": QUOTA}, {load.namespace: "all"}) == []
    assert len(trails.of("Pod", load.namespace)) == load.pods


class Admissions:
    """When each Workload was first seen to be admitted, by a watch."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self.at: dict[str, float] = {}
        self._running = True
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        self._api.follow("Workload", self._see, lambda: self._running)

    def _see(self, _event: str, obj: dict[str, Any]) -> None:
        if obj["metadata"]["namespace"] == self._namespace and is_true(obj, "Admitted"):
            self.at.setdefault(obj["metadata"]["uid"], time.monotonic())

    def stop(self) -> None:
        self._running = False

    def after(self, when: float) -> float:
        """Seconds from `when` to the first admission after it."""
        return min(at for at in list(self.at.values()) if at > when) - when

    def pause(self, when: float) -> float:
        """The longest time without an admission that began around `when`."""
        times = sorted(list(self.at.values()))  # noqa: C414  # it grows meanwhile
        return max(later - earlier for earlier, later in itertools.pairwise(times) if earlier > when - 1)
