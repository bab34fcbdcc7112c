"""Says on standard error how far something is that lasts: a moving line on a terminal, else a line now and then.

It is told what to say and when. It must never write to standard output, where an answer may be.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import click

#: Seconds between two lines where there is no terminal.
_PAUSE: Final = 5.0

#: Takes what is to be said.
Say = Callable[[str], None]


@contextlib.contextmanager
def progress(clock: Callable[[], float] = time.monotonic) -> Iterator[Say]:
    """Yields what says how far it is."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True, highlight=False).status("") as status:
            yield status.update
        return
    said: dict[str, float | str] = {"text": "", "at": float("-inf")}

    def say(text: str) -> None:
        now = clock()
        if text != said["text"] and now - float(said["at"]) >= _PAUSE:
            said["text"], said["at"] = text, now
            click.echo(f"muster: {text}", err=True)

    yield say
