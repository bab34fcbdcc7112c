"""Plays the users: submits each gang at its time, and again the bare pods that preemption took."""

from __future__ import annotations

import threading
import time

from examples.demo import manifests
from examples.demo.auditor import Auditor
from examples.demo.trace import Form, Gang
from tests.controlplane.cluster import Api, ApiError

#: A preempted pod is deleted; its user notices after this many seconds.
NOTICE = 0.5


class Driver:
    """Two threads: one submits by the clock, one looks after lost pods; a Job has its controller for that."""

    def __init__(self, api: Api, gangs: list[Gang], auditor: Auditor) -> None:
        self.api, self.gangs, self.auditor = api, gangs, auditor
        self.errors: list[str] = []
        self._running = True

    def start(self) -> None:
        for target in (self._submit, self._look_after):
            threading.Thread(target=target, daemon=True).start()

    def stop(self) -> None:
        self._running = False

    def _submit(self) -> None:
        started = time.monotonic()
        for gang in self.gangs:
            time.sleep(max(0.0, gang.arrival - (time.monotonic() - started)))
            if not self._running:
                return
            self.auditor.submitted[gang.name] = time.monotonic()
            for body in manifests.objects(gang):
                self._create(body)

    def _look_after(self) -> None:
        while self._running:
            time.sleep(NOTICE)
            finished = self.auditor.finished()
            pods = self.auditor.by_gang("Pod")
            for gang in self.gangs:
                if gang.form is Form.JOB or gang.name in finished or gang.name not in self.auditor.submitted:
                    continue
                there = [p for t in pods.get(gang.name, []) if (p := t.now)]
                names = {p["metadata"]["name"] for p in there}
                for i in range(gang.pods):
                    body = manifests.pod(gang, i)
                    if pods.get(gang.name) and body["metadata"]["name"] not in names:
                        self._create(body)

    def _create(self, body: dict[str, object]) -> None:
        try:
            self.api.create(body)
        except ApiError as error:
            if error.status != 409:
                self.errors.append(str(error))
