"""`muster run`: the settings are checked once, then webhook, controller and inspection run as one process tree.

What is wrong with the settings is said here and ends the program; the children are given settings that work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from admission import lifeline
from admission.commands import logs
from admission.commands.faults import told
from admission.commands.narrowing import narrowed, passed_on
from admission.commands.tree import Tree, until_told
from admission.settings import load, warnings

logger = logging.getLogger(__name__)


def child_options(kubeconfig: str | None, config: str | None, *, verbose: bool) -> list[str]:
    """The options that a child is started with."""
    given = {"--kubeconfig": kubeconfig, "--config": config}
    options = [part for name, value in given.items() if value is not None for part in (name, value)]
    return options + (["--verbose"] if verbose else [])


def run(
    kubeconfig: str | None, config: str | None, *, verbose: bool, only: str | None = None, without: Sequence[str] = ()
) -> None:
    """Until SIGTERM or SIGINT."""
    logs.configure("supervisor", verbose=verbose)
    lifeline.die_with_parent()
    with told():
        settings = narrowed(load(config), only)
    for warning in warnings(settings):
        logger.warning("%s", warning)
    tree = Tree(settings, child_options(kubeconfig, config, verbose=verbose), passed_on(only, without))

    async def work(stop: asyncio.Event) -> None:
        await tree.start()
        await tree.run(stop)

    asyncio.run(until_told(work))
