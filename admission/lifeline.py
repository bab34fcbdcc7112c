"""Ties a child process to its parent: it dies when the parent does, and can say how far it has come.

The kernel kills the child on Linux; elsewhere a thread looks. States go up a pipe whose descriptor the parent names in
the environment. A child without a parent that asked for this is left alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from typing import Final

PARENT: Final = "MUSTER_PARENT_PID"
STATES: Final = "MUSTER_STATES_FD"

_PR_SET_PDEATHSIG: Final = 1


def die_with(parent: int) -> None:
    """From now on this process ends at once when its parent, whose id is `parent`, does."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), name="lifeline", daemon=True).start()
    # The parent may have died before the line above.
    if os.getppid() != parent:
        os._exit(1)


def die_with_parent() -> None:
    """The same, for a child that was started by `children.Child`."""
    if parent := os.environ.get(PARENT):
        die_with(int(parent))


def tell(state: str) -> None:
    """Say to the parent what this process is doing now: one word."""
    if descriptor := os.environ.get(STATES):
        # A parent that does not listen any more is about to end this process.
        with contextlib.suppress(OSError):
            os.write(int(descriptor), state.encode() + b"\n")


def leave() -> None:
    """End a child that has ended in order: half a second of taking the interpreter apart would serve nobody."""
    if PARENT in os.environ:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
