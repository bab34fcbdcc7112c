"""How much is logged, changed while the processes run: a signal for each level, passed on down the process tree.

Whoever may send a signal (in a cluster: who may `exec` into the pod) may change it; nothing listens for it on any
network. It must never end a process: a child that does not listen for the signal yet is left alone, and is started with
the level in its environment.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from admission.commands.faults import NOT_ALLOWED, USAGE, Fault

logger = logging.getLogger(__name__)

#: The environment variable with the level that a child starts with, where it was changed.
LEVEL: Final = "MUSTER_LOG_LEVEL"
LEVELS: Final = ("debug", "info", "warning", "error")
_PROC: Final = Path("/proc")


def number(level: str) -> int:
    """The signal that asks for a level. Real-time signals: nothing else in these processes uses them."""
    return signal.SIGRTMIN + 1 + LEVELS.index(level)


def listen(level: int) -> None:
    """Log from this level on, or from the one in the environment, until a signal says otherwise."""
    named = os.environ.get(LEVEL, "")
    logging.getLogger().setLevel(named.upper() if named in LEVELS else level)
    if hasattr(signal, "SIGRTMIN") and threading.current_thread() is threading.main_thread():
        for each in LEVELS:
            signal.signal(number(each), _changed)


def _changed(received: int, _frame: FrameType | None) -> None:
    level = LEVELS[received - signal.SIGRTMIN - 1]
    os.environ[LEVEL] = level
    logging.getLogger().setLevel(level.upper())
    for child in _children(os.getpid()):
        if is_listening(child, received):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, received)


def _children(parent: int) -> Iterator[int]:
    """The processes that a process has started, whichever of its threads did."""
    with contextlib.suppress(OSError):
        for thread in (_PROC / str(parent) / "task").iterdir():
            with contextlib.suppress(OSError):
                yield from map(int, (thread / "children").read_text().split())


def is_listening(process: int, number: int) -> bool:
    """Whether a process has said what it does on this signal; all others it would end."""
    try:
        status = (_PROC / str(process) / "status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def run(level: str, process: int) -> None:
    """Ask a process of Muster, and all below it, to log from this level on."""
    if sys.platform != "linux":
        raise Fault("the level can be changed on Linux only; start with --verbose instead", USAGE)
    if not is_listening(process, number(level)):
        raise Fault(f"process {process} is no process of Muster that can be told; name it with --pid", USAGE)
    try:
        os.kill(process, number(level))
    except PermissionError as error:
        message = f"process {process} may not be told: {error.strerror}; ask as the user that runs it"
        raise Fault(message, NOT_ALLOWED) from error
