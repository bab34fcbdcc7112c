"""Narrows what a process does to what the command line says, for tests and for looking for faults.

`--only` replaces the integrations of the settings; `--without scheduler` keeps every controller and decides nothing.
It must never widen anything but by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from admission.api.job_kinds import JOB_KINDS
from admission.commands.faults import USAGE, Fault
from admission.settings import Settings
from admission.settings.problems import FRAMEWORKS

#: What can be left out.
SCHEDULER: Final = "scheduler"
_FRAMEWORKS: Final = {
    "job": "batch/job",
    **{kind.kind.lower(): kind.framework for kind in JOB_KINDS},
    **{name: name for name in FRAMEWORKS},
}


def narrowed(settings: Settings, only: str | None) -> Settings:
    """The settings with just these kinds of jobs; as they are where nothing is said."""
    if only is None:
        return settings
    frameworks = tuple(dict.fromkeys(_framework(kind.strip()) for kind in only.split(",")))
    integrations = msgspec.structs.replace(settings.integrations, frameworks=frameworks)
    return msgspec.structs.replace(settings, integrations=integrations)


def _framework(kind: str) -> str:
    found = _FRAMEWORKS.get(kind.lower())
    if found is None:
        raise Fault(f"--only {kind!r}: there is no such kind of jobs here; write Job, Pod or the like", USAGE)
    return found


def passed_on(only: str | None, without: Sequence[str]) -> dict[str, list[str]]:
    """The same as options of the children, by their names."""
    kinds = [] if only is None else ["--only", only]
    return {"webhook": kinds, "controller": [*kinds, *_without(without)]}


def _without(names: Iterable[str]) -> list[str]:
    return [part for name in names for part in ("--without", name)]
