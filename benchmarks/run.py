"""The benchmark: `python -m benchmarks.run baseline topology ...`, peer and Muster in turn, figures and bounds.

`--quick` runs a tenth of the work; `--runner peer` lets the peer's own runner drive both. Ends with status 1 when a
bound was missed. It must run on a machine that does nothing else, or its figures mean nothing.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable

from benchmarks import contestants, core, gangs, load, racks, report, restart, scenarios, scheduling, webhooks
from benchmarks.contestants import MUSTER, PEER
from benchmarks.report import Figure

QUICK = 10

#: Each takes the divisor of its work and the sides.
OTHERS: dict[str, Callable[[int, list[str]], list[Figure]]] = {
    "gangs": gangs.figures,
    "racks": racks.figures,
    "webhook": webhooks.figures,
    "restart": restart.figures,
    "load": load.figures,
}


def scheduled(name: str, divisor: int, sides: list[str], *, by_peer: bool) -> list[Figure]:
    """One scheduling scenario."""
    scenario = scenarios.SCENARIOS[name].part(divisor)
    run = scheduling.run_by_peer if by_peer else scheduling.driven
    runs = {}
    for side in sides:
        print(f"# {name}: {scenario.workloads} workloads, {side}", file=sys.stderr, flush=True)
        runs[side] = run(contestants.SIDES[side], scenario)
    ideal = None
    if not by_peer:
        outcome = core.ideal(scenario)
        ideal = (outcome.ended, outcome.waits)
    return scheduling.figures(scenario, runs, by_peer=by_peer, ideal=ideal)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("scenarios", nargs="+", choices=[*scenarios.SCENARIOS, *OTHERS])
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--part", type=int, default=0, metavar="N", help="one Nth of the work")
    parser.add_argument("--runner", choices=["ours", "peer"], default="ours", help="who creates and ends workloads")
    parser.add_argument("--side", choices=[PEER.name, MUSTER.name], help="only one side: figures without ratios")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that control planes are taken down
    divisor = args.part or (QUICK if args.quick else 1)
    sides = [args.side] if args.side else [PEER.name, MUSTER.name]
    if os.getloadavg()[0] > 0.5:
        print(f"# load {os.getloadavg()[0]:.1f}: others are at work here, do not publish these figures", flush=True)
    missed = False
    for name in args.scenarios:
        if name in OTHERS:
            figures = OTHERS[name](divisor, sides)
        else:
            figures = scheduled(name, divisor, sides, by_peer=args.runner == "peer")
        try:
            suffix = "".join([f"-part{divisor}" * (divisor > 1), "-peers-runner" * (args.runner == "peer")])
            report.finish(name + suffix, figures)
        except SystemExit:
            missed = True
    sys.exit(missed)


if __name__ == "__main__":
    main()
