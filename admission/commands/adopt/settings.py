"""Kueue's settings as Muster takes them: what can stay, and of what cannot, each field with the reason.

Decided by Muster's own reading of the same file, so that both never disagree. It must never drop a field in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from admission.settings import SettingsError, parse
from admission.settings.problems import FRAMEWORKS

#: More fields than there are cannot be wrong.
_ROUNDS: Final = 200
_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def converted(text: str, gates: Mapping[str, bool]) -> tuple[str, tuple[str, ...]]:
    """The settings for Muster as YAML, and what was left out. `gates` are those of Kueue's command line."""
    document = yaml.safe_load(text)
    if not isinstance(document, dict):
        document = {}
    document = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **document}
    if gates:
        document["featureGates"] = {**(document.get("featureGates") or {}), **gates}
    # Muster has a namespace of its own. What nobody asked for is not queued: that was so, and stays so.
    document.pop("namespace", None)
    document["muster"] = {"gpuPods": {"enabled": False}}
    problems: list[str] = []
    for _ in range(_ROUNDS):
        try:
            parse(yaml.safe_dump(document))
        except SettingsError as error:
            problems += error.problems
            if not _without(document, error.problems):
                break
        else:
            break
    integrations = document.get("integrations")
    if isinstance(integrations, dict) and integrations.get("frameworks") == []:
        integrations["frameworks"] = list(FRAMEWORKS[:1])
    return yaml.safe_dump(document, sort_keys=False), tuple(problems)


def _without(document: dict[str, Any], problems: tuple[str, ...]) -> bool:
    """Take the fields out that the problems name, from the end of lists so that places stay right."""
    paths = {_path(problem) for problem in problems}
    removed = [_remove(document, path) for path in sorted(paths, key=_last_first)]
    return any(removed)


def _path(problem: str) -> tuple[str | int, ...]:
    # The names of feature gates and labels have no colon, so the path ends at the first one that a space follows.
    text = problem.partition(": ")[0]
    return tuple(name or int(index) for name, index in _STEP.findall(text))


def _last_first(path: tuple[str | int, ...]) -> tuple[tuple[int, str], ...]:
    return tuple((-step, "") if isinstance(step, int) else (0, step) for step in path)


def _remove(document: dict[str, Any], path: tuple[str | int, ...]) -> bool:
    at: Any = document
    for step in path[:-1]:
        try:
            at = at[step]
        except (KeyError, IndexError, TypeError):
            return False
    try:
        del at[path[-1]]
    except (KeyError, IndexError, TypeError):
        return False
    return True
