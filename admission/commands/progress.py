"""Says on standard error how far something is that lasts: a moving line on a terminal, else a line now and then.

It is told what to say and when. It must never write to standard output, where an answer may be.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from rich.status import Status

#: Seconds between two lines where there is no terminal.
_PAUSE: Final = 5.0


class Progress:
    """What says how far it is. `status` is the moving line of a terminal."""

    def __init__(self, status: Status | None, clock: Callable[[], float]) -> None:
        self._status = status
        self._clock = clock
        # What is over soon says nothing.
        self._said, self._at = "", clock()

    def __call__(self, text: str) -> None:
        if self._status is not None:
            self._status.update(text)
            return
        now = self._clock()
        if text != self._said and now - self._at >= _PAUSE:
            self._said, self._at = text, now
            click.echo(f"muster: {text}", err=True)

    def done(self, line: str, *, err: bool = False) -> None:
        """A line of the answer, which the moving line makes way for."""
        if self._status is not None:
            self._status.stop()
        click.echo(line, err=err)
        if self._status is not None:
            self._status.start()


@contextlib.contextmanager
def progress(clock: Callable[[], float] = time.monotonic) -> Iterator[Progress]:
    """Until the work is done, or has failed."""
    if not sys.stderr.isatty():
        yield Progress(None, clock)
        return
    from rich.console import Console

    with Console(stderr=True, highlight=False).status("") as status:
        yield Progress(status, clock)
