"""What a process costs and what an API server was asked: CPU seconds, peak memory, requests by verb.

Read from /proc and from the API server's own counters, before and after. It must never cost what it measures: only at
processes that another program starts and stops is there a look now and then.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

#: Verb, resource and subresource, as `PATCH workloads/status`; with the code where it was refused.
Requests = Counter[str]

WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU in seconds; memory is the peak of resident MiB."""

    cpu: float = 0.0
    memory: float = 0.0

    def since(self, before: Usage) -> Usage:
        return Usage(self.cpu - before.cpu, self.memory)


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def usage(pid: int) -> Usage:
    """Of the process and all that it started; nothing for one that is gone."""
    cpu, memory = 0.0, 0.0
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        cpu = sum(int(ticks) for ticks in fields[11:15]) / _TICKS  # own, and those of children that ended
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                memory = int(line.split()[1]) / 1024
        for child in children(pid):
            below = usage(child)
            cpu, memory = cpu + below.cpu, memory + below.memory
    return Usage(cpu, memory)


def command_of(pid: int) -> str:
    """Its command line; empty for one that is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def usage_of_children(pid: int, named: str) -> Usage:
    """Of those children that have this in their command line, and of all that they started."""
    found = [usage(child) for child in children(pid) if named in command_of(child)]
    return Usage(sum(one.cpu for one in found), sum(one.memory for one in found))


def requests(metrics: str) -> Requests:
    """From the text of the API server's metrics; watches are left out, since they last."""
    found: Requests = Counter()
    for match in _SAMPLE.finditer(metrics):
        labels = dict(_LABEL.findall(match["labels"]))
        verb = labels.get("verb", "")
        if verb in {"WATCH", "CONNECT"} or not labels.get("resource"):
            continue
        subresource = labels.get("subresource", "")
        what = labels["resource"] + (f"/{subresource}" if subresource else "")
        code = labels.get("code", "")
        refused = f" ({code})" if code >= "400" else ""
        found[f"{verb} {what}{refused}"] += int(float(match["value"]))
    return found


def asked(before: Requests, after: Requests) -> dict[str, int]:
    """What was asked in between, the most frequent first."""
    return dict((after - before).most_common())


def writes(requests: Mapping[str, int]) -> int:
    return sum(count for what, count in requests.items() if what.partition(" ")[0] in WRITES)


class Look:
    """Looks now and then at processes that some other program starts and stops, and keeps what it saw last.

    `names` are those of programs; the one that has several of them at once counts the sum.
    """

    def __init__(self, parent: int, names: Mapping[str, str], every: float = 0.5) -> None:
        self._parent = parent
        self._names = names
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seen: dict[str, Usage] = {}

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            for pid in children(self._parent):
                command = command_of(pid)
                for role, name in self._names.items():
                    if name in command:
                        self.seen[role] = usage(pid)

    @classmethod
    @contextlib.contextmanager
    def at(cls, parent: int, names: Mapping[str, str]) -> Iterator[Look]:
        look = cls(parent, names)
        look._thread.start()
        try:
            yield look
        finally:
            look._stop.set()
            look._thread.join()
