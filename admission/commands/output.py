"""The forms in which an answer is given: a table for people, JSON and YAML for programs.

A table has to be readable in 80 columns; what does not fit there is in the wide form. It must never cut off what goes
into a pipe, nor mix anything into what a program reads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

#: Columns of what is no terminal.
_PIPE: Final = 200
_WIDE_PIPE: Final = 500


class Form(Enum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_table(self) -> bool:
        return self in {Form.TABLE, Form.WIDE}


def console(form: Form = Form.TABLE) -> Console:
    """For standard output; wide where that is no terminal, so that nothing is cut off in a pipe."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDE_PIPE if form is Form.WIDE else _PIPE
    return Console(width=width, highlight=False)


def show(form: Form, data: Any, drawn: Callable[[], Iterable[RenderableType]]) -> None:
    """`data` for programs, `drawn` for people; only one of them is made."""
    match form:
        case Form.JSON:
            click.echo(msgspec.json.format(msgspec.json.encode(data)).decode())
        case Form.YAML:
            import yaml

            plain = msgspec.json.decode(msgspec.json.encode(data))
            click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), nl=False)
        case Form.TABLE | Form.WIDE:
            screen = console(form)
            for each in drawn():
                screen.print(each)


def table(*titles: str, right: Iterable[str] = ()) -> Table:
    """A table in Muster's style. Of a name that is too long for its column the rest goes on the next line."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    numbers = frozenset(right)
    for title in titles:
        is_number = title in numbers
        shown.add_column(title, justify="right" if is_number else "left", overflow="fold", no_wrap=is_number)
    return shown


def first_of(names: Sequence[str], most: int) -> str:
    """So many of the names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def age(seconds: float) -> str:
    """A length of time in kubectl's way: two units at most."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        minutes, rest = divmod(whole, 60)
        return f"{minutes}m{rest}s" if minutes < 10 and rest else f"{minutes}m"
    if whole < 172_800:
        hours, rest = divmod(whole // 60, 60)
        return f"{hours}h{rest}m" if hours < 8 and rest else f"{hours}h"
    days, rest = divmod(whole // 3600, 24)
    return f"{days}d{rest}h" if days < 8 and rest else f"{days}d"
