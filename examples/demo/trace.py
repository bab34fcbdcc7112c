"""The gangs of the demo: one hour of the Philly trace, with time compressed, in the three forms that users submit."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

TRACE = Path(__file__).parent.parent / "philly-hour" / "gangs.csv"
#: Seconds of the trace in one second of the demo: of arrivals, and of run times (so that the cluster is busy).
ARRIVALS, RUNS = 60, 30
#: Longest run time in the demo, in seconds; a few jobs of the trace run for hours.
LONGEST_RUN = 45.0


class Form(Enum):
    """How a gang is submitted."""

    POD_GROUP = "pod group"
    JOB = "Job with a queue label"
    PLAIN_POD = "GPU pod without any label"


@dataclass(frozen=True)
class Gang:
    """`arrival` and `run_for` in seconds of the demo."""

    name: str
    team: str
    arrival: float
    run_for: float
    pods: int
    gpus_per_pod: int
    form: Form


def gangs() -> list[Gang]:
    """All gangs by arrival. Those of several pods are groups and Jobs by turns, the others Jobs and plain pods."""
    found = []
    seen = {True: 0, False: 0}
    with TRACE.open(newline="") as rows:
        for row in csv.DictReader(rows):
            several = int(row["pods"]) > 1
            forms = (Form.POD_GROUP, Form.JOB) if several else (Form.PLAIN_POD, Form.JOB)
            found.append(
                Gang(
                    name=row["gang"],
                    team=f"team-{row['queue']}",
                    arrival=int(row["arrival_s"]) / ARRIVALS,
                    run_for=min(int(row["duration_s"]) / RUNS, LONGEST_RUN),
                    pods=int(row["pods"]),
                    gpus_per_pod=int(row["gpus_per_pod"]),
                    form=forms[seen[several] % 2],
                )
            )
            seen[several] += 1
    return sorted(found, key=lambda gang: (gang.arrival, gang.name))
