"""Runs `muster adopt`: shows what will differ, asks, and takes over; or brings running pods into queues.

Put together from the modules beside it. Nothing is changed by a dry run, nor while something stands in the way.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from admission.api import names
from admission.commands import output
from admission.commands.adopt.differences import Difference, Level, differences, is_true
from admission.commands.adopt.imports import Import, Impossible, Skipped, Verdict
from admission.commands.adopt.mapping import rules
from admission.commands.adopt.settings import converted
from admission.commands.adopt.survey import KINDS, Survey, survey
from admission.commands.adopt.takeover import Options, take_over
from admission.commands.faults import IN_THE_WAY, REFUSED, USAGE, Fault, told
from admission.commands.output import Form
from admission.commands.progress import progress
from admission.commands.reach import Reach

if TYPE_CHECKING:
    from rich.console import RenderableType

_TITLES: Final = {
    Level.BLOCKS: "In the way",
    Level.LOST: "Not there in Muster",
    Level.DIFFERS: "Works otherwise",
    Level.NOTE: "Good to know",
}
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line says of a take-over."""

    dry_run: bool
    yes: bool
    accept_losses: bool
    write_settings: str | None
    options: Options


@dataclass(frozen=True, slots=True)
class PodWishes:
    """What the command line says of an import. `config` are the settings that Muster runs with."""

    dry_run: bool
    label: str | None
    pairs: tuple[str, ...]
    file: str | None
    config: str | None


# ------------------------------------------------------------------ taking over


def obstacles(found: Iterable[Difference], *, accept_losses: bool) -> str | None:
    """Why it is not done as things are, and what to do; None where nothing stands in the way."""
    levels = Counter(each.level for each in found)
    if levels[Level.BLOCKS]:
        return f"{levels[Level.BLOCKS]} things are in the way; mend them first"
    if levels[Level.LOST] and not accept_losses:
        return f"{levels[Level.LOST]} things are not there in Muster; if you can do without, add --accept-losses"
    return None


def counts(found: Survey) -> dict[str, int]:
    """How many objects of each kind there are, and how many workloads hold quota."""
    numbers = {kind: len(objects) for _, kind, _ in KINDS if (objects := found.objects.get(kind))}
    held = [
        each
        for each in found.objects.get("Workload", ())
        if is_true(each, names.QUOTA_RESERVED) and not is_true(each, names.FINISHED)
    ]
    return numbers | ({"holding quota": len(held)} if held else {})


def page(found: Sequence[Difference], numbers: dict[str, int]) -> list[RenderableType]:
    """By level, and what is the same of several objects said once."""
    from rich.padding import Padding
    from rich.text import Text

    shown: list[RenderableType] = []
    for level, title in _TITLES.items():
        alike: dict[tuple[str, str, str], list[str]] = {}
        for each in found:
            if each.level is level:
                alike.setdefault((each.kind, each.says, each.row), []).append(each.name)
        if alike:
            shown.append(Text(title, style="bold"))
        for (kind, says, row), of in alike.items():
            who = f"{kind} {output.first_of(of, _NAMED)}".strip()
            see = f" [{row}]" if row else ""
            shown.append(Padding(Text.assemble((f"{who}: ", "bold"), says, (see, "dim")), (0, 0, 0, 2)))
    stays = ", ".join(f"{number} {kind}" for kind, number in numbers.items()) or "nothing"
    shown.append(Text(f"Stays as it is: {stays}"))
    return shown


def as_data(found: Sequence[Difference], numbers: dict[str, int], problem: str | None) -> dict[str, Any]:
    return {
        "ready": problem is None,
        "problem": problem,
        "objects": numbers,
        "differences": [
            {
                "level": each.level.value,
                "kind": each.kind,
                "name": each.name,
                "says": each.says,
                "row": each.row or None,
            }
            for each in found
        ],
    }


def _write_settings(found: Survey, path: Path) -> str:
    manager = next((each for each in found.managers if each.settings or each.gates), None)
    text, left_out = converted("" if manager is None else manager.settings, {} if manager is None else manager.gates)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Fault(f"{path} cannot be written: {error}", USAGE) from error
    return f"wrote Muster's settings to {path}; {len(left_out)} fields of Kueue's were left out"


async def _adopt(reach: Reach, form: Form, wishes: Wishes) -> None:
    async with reach.client() as client:
        with progress() as say:
            say("looking at the cluster")
            surveyed = await survey(client)
        found, numbers = differences(surveyed), counts(surveyed)
        problem = obstacles(found, accept_losses=wishes.accept_losses)
        output.show(form, as_data(found, numbers, problem), lambda: page(found, numbers))
        if wishes.write_settings is not None:
            click.echo(f"muster: {_write_settings(surveyed, Path(wishes.write_settings))}", err=True)
        if problem is not None:
            raise Fault(problem, IN_THE_WAY)
        if wishes.dry_run or not surveyed.crds:
            return
        if not wishes.yes:
            _ask()
        with progress() as say:
            async for line in take_over(client, surveyed, wishes.options, say):
                say.done(line, err=not form.is_table)


def _ask() -> None:
    if not sys.stdin.isatty():
        raise Fault("say --yes where nobody can be asked", USAGE)
    click.confirm("Stop Kueue and take over?", abort=True, err=True)


def run(reach: Reach, form: Form, wishes: Wishes) -> None:
    """`muster adopt`."""
    with told():
        asyncio.run(_adopt(reach, form, wishes))


# ------------------------------------------------------------------ importing pods


def pods_page(found: Sequence[Verdict]) -> list[RenderableType]:
    from rich.text import Text

    shown = output.table("Pod", "Queue", "What")
    for each in found:
        name = f"{each.pod.metadata.namespace}/{each.pod.metadata.name}"
        match each:
            case Import():
                (assignment,) = each.admission["podSetAssignments"]
                usage = ", ".join(f"{amount} {what}" for what, amount in assignment["resourceUsage"].items())
                rest = f"; not counted: {', '.join(each.uncounted)}" if each.uncounted else ""
                shown.add_row(name, each.queue, f"{usage}{rest}")
            case Skipped():
                shown.add_row(name, "", f"left alone: {each.why}", style="dim")
            case Impossible():
                shown.add_row(name, "", Text(each.why, style="red"))
    kinds = Counter(type(each) for each in found)
    numbers = f"{kinds[Import]} to import, {kinds[Skipped]} left alone, {kinds[Impossible]} that cannot be imported"
    return [shown, Text(numbers)] if found else [Text("There are no pods in these namespaces")]


def pods_data(found: Sequence[Verdict]) -> list[dict[str, Any]]:
    data = []
    for each in found:
        item: dict[str, Any] = {"namespace": each.pod.metadata.namespace, "name": each.pod.metadata.name}
        match each:
            case Import():
                item |= {"verdict": "import", "queue": each.queue, "workload": each.name, "admission": each.admission}
            case Skipped():
                item |= {"verdict": "skip", "why": each.why}
            case Impossible():
                item |= {"verdict": "impossible", "why": each.why}
        data.append(item)
    return data


async def _import(reach: Reach, form: Form, namespaces: Sequence[str], wishes: PodWishes) -> None:
    from admission.commands.adopt import importing
    from admission.settings import load

    chosen = rules(wishes.label, wishes.pairs, wishes.file)
    resources = load(wishes.config).resources
    async with reach.client() as client:
        with progress() as say:
            say("looking at the pods")
            found = await importing.looked_at(client, namespaces or [client.namespace], chosen, resources)
        output.show(form, pods_data(found), lambda: pods_page(found))
        if impossible := sum(isinstance(each, Impossible) for each in found):
            raise Fault(f"{impossible} pods cannot be imported, so nothing was; mend that, or skip them", IN_THE_WAY)
        await importing.check(client)
        if wishes.dry_run:
            return
        wanted = [each for each in found if isinstance(each, Import)]
        with progress() as say:
            failed = await importing.write(client, wanted, say)
        if failed:
            raise Fault("\nmuster: ".join(["some pods were not imported; run this again:", *failed]), REFUSED)
        click.echo(f"imported {len(wanted)} pods", err=not form.is_table)


def run_import(reach: Reach, form: Form, namespaces: Sequence[str], wishes: PodWishes) -> None:
    """`muster adopt --import-pods`."""
    with told():
        asyncio.run(_import(reach, form, namespaces, wishes))
