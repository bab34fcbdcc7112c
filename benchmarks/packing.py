"""How much fits, by the policy that chooses the places, and how close together gangs come, on published traces.

Two questions. What share of the GPUs of a sharing cluster is allocated before pods no longer fit (`packing_openb`): the
published policies first, to show that the simulation is faithful, then Muster's. And where gangs land in the racks and
blocks of two real networks (`packing_gangs`). Run as `python -m benchmarks.packing --traces FOLDER`; the folder holds
the public traces as they are published (`traces`), nothing is downloaded.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks import packing_gangs, packing_openb, report, traces
from benchmarks.packing_policies import POLICIES

SEEDS = range(42, 52)


def openb(seeds: range, folder: Path) -> Iterator[report.Figure]:
    """Allocation of each policy, beside what is published; the reproduced ones have to lie within a deviation of it."""
    trace = packing_openb.read(folder)
    known = {name: (mean, deviation) for name, mean, deviation in packing_openb.published()}
    for name, policy in POLICIES.items():
        outcomes = [packing_openb.run(trace, seed, policy) for seed in seeds]
        mean = statistics.mean(each.allocated for each in outcomes)
        large = statistics.mean(each.large_started for each in outcomes)
        bound = None
        is_whole = len(outcomes) == len(SEEDS)  # single seeds lie where they like
        if is_whole and name in known:
            published, deviation = known[name]
            bound = report.Bound(at_least=published - deviation, at_most=published + deviation)
        elif is_whole:
            bound = report.Bound(at_least=known["FGD"][0])
        yield report.show(report.Figure(f"packing.openb.{name}", mean, "%", bound=bound))
        if len(outcomes) > 1:
            deviation = statistics.stdev(each.allocated for each in outcomes)
            yield report.show(report.Figure(f"packing.openb.{name}.deviation", deviation, "%"))
        unallocated = trace.gpus * (1 - mean / 100)
        yield report.show(report.Figure(f"packing.openb.{name}.unallocated", unallocated, "GPUs"))
        yield report.show(report.Figure(f"packing.openb.{name}.whole_nodes_started", large, "%"))


def gangs(folder: Path, load: float | None) -> Iterator[report.Figure]:
    work = packing_gangs.jobs(folder)
    for tree in traces.TREES:
        for way in packing_gangs.WAYS:
            tally = packing_gangs.measured(folder, tree, way, work, load)
            name = f"packing.gangs.{tree}.{way}"
            figures = (
                ("gangs", tally.gangs / tally.runs, "gangs"),
                ("in_a_rack", 100 * tally.in_a_rack / tally.gangs, "%"),
                ("in_a_block", 100 * tally.in_a_block / tally.gangs, "%"),
                ("links_between_racks", 100 * tally.between_racks / tally.edges, "%"),
                ("links_between_blocks", 100 * tally.between_blocks / tally.edges, "%"),
                ("waited", tally.waited / tally.gangs, "s"),
                ("allocated", 100 * tally.allocated / tally.runs, "%"),
            )
            for what, value, unit in figures:
                yield report.show(report.Figure(f"{name}.{what}", value, unit))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=("openb", "gangs"), help="one of the two questions")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="so many of the ten seeds")
    parser.add_argument("--traces", type=Path, help="folder with the public traces, in place of MUSTER_TRACES")
    parser.add_argument("--load", type=float, help="in place of that of each tree (`packing_gangs.LOADS`)")
    args = parser.parse_args()
    folder = traces.folder(args.traces)
    figures: list[report.Figure] = []
    if args.only in (None, "openb"):
        figures.extend(openb(SEEDS[: args.seeds], folder))
    if args.only in (None, "gangs"):
        figures.extend(gangs(folder, args.load))
    report.finish("packing", figures)


if __name__ == "__main__":
    main()
