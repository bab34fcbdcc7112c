"""Reads the public traces that the packing benchmark replays, as their publishers give them.

They are not part of this repository and nothing is downloaded: MUSTER_TRACES, or `--traces`, names a folder that holds
the files somewhere below it, packed by gzip or not. docs/topology.md says where each comes from and what it may be used
for. It must never make up what a file does not say.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

PODS = "openb_pod_list_default.csv"
NODES = "openb_node_list_gpu_node.csv"
JOBS = "philly.csv"
TREES = {"lingjun-2023": "topo.csv", "zhejianglab-2024": "topology.csv"}

#: Two weeks with many gangs, counted in days from the first job.
_FIRST_DAY, _DAYS = 85, 14
_GPUS_OF_A_HOST = 8
#: Each server's links go to four leaf switches next to one another: those are its block.
_LEAVES_OF_A_BLOCK = 4


class JobRow(NamedTuple):
    """`arrival` in seconds from the first day of the part that is used; `gpus` of one pod; `duration` in seconds."""

    arrival: int
    pods: int
    gpus: int
    duration: float


def folder(given: Path | None) -> Path:
    """SystemExit where no folder is named."""
    named = given or (Path(os.environ["MUSTER_TRACES"]) if "MUSTER_TRACES" in os.environ else None)
    if named is None or not named.is_dir():
        raise SystemExit(
            f"packing: no folder with the public traces{f' at {named}' if named else ''}; name it by MUSTER_TRACES or "
            f"--traces (docs/topology.md says where {PODS} and the others come from)"
        )
    return named


def rows(traces: Path, name: str) -> list[dict[str, str]]:
    """The rows of the file with this name, wherever below the folder it lies. SystemExit where it is missing."""
    for path in sorted([*traces.rglob(name), *traces.rglob(f"{name}.gz")]):
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        return list(csv.DictReader(io.StringIO(text)))
    raise SystemExit(f"packing: there is no {name} below {traces}; docs/topology.md says where it comes from")


def openb_pods(traces: Path) -> list[tuple[tuple[int, int, int, int], int]]:
    """Cores in thousandths, MiB, GPUs and thousandths of each of one pod, and how many such pods there are."""
    asked = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    found = Counter(tuple(int(row[name]) for name in asked) for row in rows(traces, PODS))
    return sorted((shape, count) for shape, count in found.items() if len(shape) == len(asked))


def openb_nodes(traces: Path) -> list[tuple[int, int, int]]:
    """Cores in thousandths, MiB and GPUs of every node with GPUs, alike ones together."""
    given = ("cpu_milli", "memory_mib", "gpu", "model")
    found = sorted(
        tuple(row[name] if name == "model" else int(row[name]) for name in given) for row in rows(traces, NODES)
    )
    return [(int(cpu), int(memory), int(gpus)) for cpu, memory, gpus, _ in found]


def philly_jobs(traces: Path) -> list[JobRow]:
    """A job of up to 8 GPUs is one pod, a larger one a gang of whole hosts (12 GPUs are three pods of 4)."""
    jobs = sorted(
        (datetime.fromisoformat(row["timestamp"]), row["num_gpus"], row["duration"]) for row in rows(traces, JOBS)
    )
    start = jobs[0][0] + timedelta(days=_FIRST_DAY)
    end = start + timedelta(days=_DAYS)
    found = []
    for at, asked, duration in jobs:
        gpus = int(asked)
        if start <= at < end:
            each = gpus if gpus <= _GPUS_OF_A_HOST else _GPUS_OF_A_HOST if gpus % _GPUS_OF_A_HOST == 0 else 4
            found.append(JobRow(int((at - start).total_seconds()), gpus // each, each, float(duration)))
    return found


def hosts(traces: Path, tree: str) -> list[tuple[str, str, str]]:
    """Block, rack and name of every host of one of `TREES`."""
    found = rows(traces, TREES[tree])
    if tree == "lingjun-2023":
        placed = {row["node"]: (row["PSW"], row["ASW"]) for row in found}
    else:
        placed = {row["server"]: (_block(row["leaf"]), row["rack"]) for row in found}
    return sorted((block, f"{block}-{rack}", f"{block}-{rack}-{host}") for host, (block, rack) in placed.items())


def _block(leaf: str) -> str:
    number = int(leaf.removeprefix("leaf-"))
    return f"leaf-{(number - 1) // _LEAVES_OF_A_BLOCK * _LEAVES_OF_A_BLOCK + 1:02}"
