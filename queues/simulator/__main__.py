"""Replays a trace of gangs: `python -m queues.simulator TRACE.csv --cohort research=team-a:32,team-b:40`.

The trace is a CSV file with the columns gang, arrival_s, queue, pods, gpus_per_pod and duration_s. Prints for each
queue how many gangs started, how long they waited, and how often they were preempted.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from queues.core import events, model
from queues.core.policy import Policy
from queues.core.state import State
from queues.simulator.replay import Arrival, Turn, replay

GPU = model.ResourceName("nvidia.com/gpu")
FLAVOR = model.FlavorName("gpus")
NAMESPACE = "replay"


def cohort_of(text: str) -> tuple[str, dict[str, int]]:
    """`name=queue:gpus,queue:gpus`."""
    try:
        name, queues = text.split("=")
        return name, {queue: int(gpus) for queue, gpus in (pair.split(":") for pair in queues.split(","))}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=queue:gpus,queue:gpus") from None


def cluster(cohorts: Iterable[tuple[str, dict[str, int]]]) -> State:
    """One flavor; each cohort's queues may borrow from one another and reclaim what is theirs."""
    state = State()
    state.apply(events.FlavorChanged(model.ResourceFlavor(FLAVOR)))
    state.apply(events.NamespaceChanged(model.Namespace(model.NamespaceName(NAMESPACE), {})))
    reclaim = model.Preemption(reclaim_within_cohort=model.PreemptionPolicy.ANY)
    for cohort, queues in cohorts:
        for name, gpus in queues.items():
            quotas = model.FlavorQuotas(FLAVOR, {GPU: model.Quota(gpus)})
            groups = (model.ResourceGroup((GPU,), (quotas,)),)
            queue = model.ClusterQueueName(name)
            spec = model.ClusterQueue(queue, groups, model.CohortName(cohort), preemption=reclaim)
            state.apply(events.ClusterQueueChanged(spec))
            state.apply(events.LocalQueueChanged(model.LocalQueue(model.ObjectKey(NAMESPACE, name), queue)))
    return state


def arrivals(trace: Path) -> list[Arrival]:
    with trace.open(newline="") as rows:
        return [arrival(row) for row in csv.DictReader(rows)]


def arrival(row: dict[str, str]) -> Arrival:
    pods = model.PodSet("main", int(row["pods"]), {GPU: int(row["gpus_per_pod"])})
    at = float(row["arrival_s"])
    key = model.ObjectKey(NAMESPACE, row["gang"])
    home = model.ObjectKey(NAMESPACE, row["queue"])
    workload = model.Workload(model.Uid(row["gang"]), key, home, (pods,), created_at=at, queued_at=at)
    return Arrival(workload, float(row["duration_s"]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m queues.simulator", description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--cohort", type=cohort_of, action="append", required=True, metavar="NAME=QUEUE:GPUS,...")
    options = parser.parse_args()
    todo = {a.workload.uid: a.workload for a in arrivals(options.trace)}
    waits: dict[str, list[float]] = defaultdict(list)
    preempted: dict[str, int] = defaultdict(int)
    started: set[str] = set()
    for happening in replay(cluster(options.cohort), arrivals(options.trace), Policy()):
        queue = todo[happening.uid].queue.name
        if happening.turn is Turn.STARTED and happening.uid not in started:
            started.add(happening.uid)
            waits[queue].append(happening.at - todo[happening.uid].created_at)
        preempted[queue] += happening.turn is Turn.PREEMPTED
    sys.stdout.write(f"{'queue':20} {'started':>8} {'mean wait s':>12} {'longest s':>10} {'preempted':>10}\n")
    for queue, found in sorted(waits.items()):
        mean = sum(found) / len(found)
        sys.stdout.write(f"{queue:20} {len(found):8} {mean:12.1f} {max(found):10.1f} {preempted[queue]:10}\n")
    left = len(todo) - len(started)
    if left:
        sys.stdout.write(f"{left} gangs never start: they ask for more than their queue can ever have\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
