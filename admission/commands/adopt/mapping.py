"""Which LocalQueue a running pod belongs to: rules over labels and priority class, the first that matches.

Read from the command line (the values of one label) or from a file in the form of Kueue's importer. A pod that no rule
matches is a mistake to be told, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import yaml

from admission.api.core import Pod
from admission.commands.faults import USAGE, Fault


class Match(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Empty fields match everything; all labels have to be there."""

    priority_class_name: str = ""
    labels: dict[str, str] = {}


class Rule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`skip` leaves the pods alone that match."""

    match: Match = Match()
    to_local_queue: str = ""
    skip: bool = False

    def fits(self, pod: Pod) -> bool:
        wanted = self.match
        return (not wanted.priority_class_name or wanted.priority_class_name == pod.spec.priority_class_name) and (
            wanted.labels.items() <= pod.metadata.labels.items()
        )


def rules(label: str | None, pairs: Iterable[str], file: str | None) -> tuple[Rule, ...]:
    """Of `--queue-label LABEL --queue-mapping VALUE=QUEUE...` or `--queue-mapping-file FILE`."""
    values = [each for pair in pairs for each in pair.split(",") if each]
    if file is not None:
        if label is not None or values:
            raise Fault("give --queue-mapping-file, or --queue-label with --queue-mapping, not both", USAGE)
        return _of_file(Path(file))
    if label is None or not values:
        raise Fault("say where pods belong: --queue-label LABEL --queue-mapping VALUE=QUEUE, or a file", USAGE)
    found = []
    for each in values:
        value, equals, queue = each.partition("=")
        if not equals or not queue:
            raise Fault(f"--queue-mapping {each!r}: write VALUE=QUEUE", USAGE)
        found.append(Rule(Match(labels={label: value}), queue))
    return tuple(found)


def _of_file(path: Path) -> tuple[Rule, ...]:
    try:
        found = msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")) or [], tuple[Rule, ...])
    except (OSError, yaml.YAMLError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise Fault(f"--queue-mapping-file {path}: {error}", USAGE) from error
    for index, rule in enumerate(found):
        if not rule.skip and not rule.to_local_queue:
            raise Fault(f"--queue-mapping-file {path}: rule {index + 1} has neither toLocalQueue nor skip", USAGE)
    return found


def rule_for(pod: Pod, every: Iterable[Rule]) -> Rule | None:
    return next((rule for rule in every if rule.fits(pod)), None)
