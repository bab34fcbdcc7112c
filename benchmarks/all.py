"""Every scenario but the large one, one after the other: `python -m benchmarks.all`, `--quick` for a tenth of the work.

Each runs in a process of its own, so that none sees the memory of another; the core by itself comes first, and its
placement on large clusters only where all of the work is done. Ends with status 1 when a bound was missed;
it must not stop at the first that was.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

#: Arguments of `benchmarks.run`.
RUNS = (
    ("baseline",),
    ("baseline", "--runner=peer"),
    ("topology",),
    ("gangs",),
    ("webhook",),
    ("restart",),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    more = ["--quick"] if parser.parse_args().quick else []
    commands = [[sys.executable, "-m", "benchmarks.core", *more]]
    if not more:
        commands.append([sys.executable, "-m", "benchmarks.topology"])
    commands += [[sys.executable, "-m", "benchmarks.run", *run, *more] for run in RUNS]
    statuses = [subprocess.run(command, check=False).returncode for command in commands]
    sys.exit(any(statuses))


if __name__ == "__main__":
    main()
