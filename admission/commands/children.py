"""Runs the processes of `muster run` as children: starts them, starts them again when they die, ends them in order.

A child is a `muster` command of its own. What it has reached comes up a pipe (`lifeline`); what it is called and how
it is started is given. It never outlives this process, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

from admission import lifeline

logger = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
#: A child that ran for this long starts again at once when it dies.
_STABLE: Final = 60.0


class Child:
    """One supervised process. `state` is the last word it said; empty while it is not running.

    `longest_pause`: seconds that it stays away at most when it dies again and again.
    """

    def __init__(
        self,
        name: str,
        arguments: list[str],
        changed: Callable[[], None] = lambda: None,
        longest_pause: float = _LONGEST_PAUSE,
    ) -> None:
        self.name = name
        self.state = ""
        self._arguments = arguments
        self._changed = changed
        self._longest_pause = longest_pause
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._spawned = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Run it until `stop`. Returns when it was started for the first time."""
        self._running = asyncio.ensure_future(self._run())
        await self._spawned.wait()

    def announce_end(self) -> None:
        """Tell one that works that it will be ended soon, by SIGUSR1. Only for children that know it."""
        if self.state == "ready":
            self._signal(signal.SIGUSR1)

    async def stop(self, patience: float) -> None:
        """End it with SIGTERM; after `patience` seconds with SIGKILL."""
        self._stopping.set()
        if self._process is not None and self._process.returncode is None:
            self._signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(patience):
                    await self._process.wait()
            except TimeoutError:
                logger.warning("does not end in time, killing it", extra={"child": self.name})
                self._signal(signal.SIGKILL)
                await self._process.wait()
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            # Not through the process object: that would reap a child which has just ended, behind asyncio's back.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            started = loop.time()
            code = await self._once()
            self._say("")
            if self._stopping.is_set():
                return
            if loop.time() - started > _STABLE:
                pause = _FIRST_PAUSE
            logger.error(
                "ended by itself, starting it again", extra={"child": self.name, "status": code, "seconds": pause}
            )
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._longest_pause)

    async def _once(self) -> int:
        states, theirs = os.pipe()
        environment = os.environ | {lifeline.PARENT: str(os.getpid()), lifeline.STATES: str(theirs)}
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "admission.cli",
                *self._arguments,
                env=environment,
                pass_fds=(theirs,),
                stdin=asyncio.subprocess.DEVNULL,
            )
        except BaseException:  # cancelled as well: the pipe has no other owner
            os.close(states)
            raise
        finally:
            os.close(theirs)
        self._spawned.set()
        logger.info("started", extra={"child": self.name, "pid": self._process.pid})
        listening = asyncio.ensure_future(self._listen(states))
        try:
            return await self._process.wait()
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening

    async def _listen(self, states: int) -> None:
        reader = asyncio.StreamReader()
        with os.fdopen(states, "rb") as pipe:
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), pipe
            )
            try:
                while line := await reader.readline():
                    self._say(line.decode(errors="replace").strip())
            finally:
                transport.close()

    def _say(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self._changed()
