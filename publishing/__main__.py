"""`python -m publishing` writes every file that is made from the code for others; `--check` says which are stale.

What each file says is decided by the module that makes it. It must never touch a file that it did not make: a folder
that belongs to a maker may hold no others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from publishing import chart, dashboard, reference

ROOT: Final = Path(__file__).resolve().parent.parent

#: Each gives texts by their paths below the checkout.
_MAKERS: Final[tuple[Callable[[Path], Mapping[str, str]], ...]] = (dashboard.files, chart.files, reference.files)
#: Folders in which nothing but made files may lie.
_OWNED: Final = (*chart.MADE, reference.MADE)


def files(root: Path = ROOT) -> dict[str, str]:
    """Path and text of every made file."""
    return {path: text for make in _MAKERS for path, text in make(root).items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what is made from the code."""
    parser = argparse.ArgumentParser(prog="python -m publishing", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail when a file is stale")
    options = parser.parse_args(arguments)
    wanted = files()
    stale = [path for path, text in wanted.items() if _there(ROOT / path) != text]
    too_many = [
        path
        for folder in _OWNED
        for found in sorted((ROOT / folder).rglob("*"))
        if found.is_file() and (path := found.relative_to(ROOT).as_posix()) not in wanted
    ]
    if not options.check:
        for path in stale:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(wanted[path], encoding="utf-8")
        for path in too_many:
            (ROOT / path).unlink()
    for path in (*stale, *too_many):
        sys.stderr.write(f"{path} {'is stale: run `make generate`' if options.check else 'written or removed'}\n")
    return int(options.check and bool(stale or too_many))


def _there(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main())
