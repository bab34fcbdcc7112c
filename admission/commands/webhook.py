"""`muster webhook`: answers admission reviews until it is told to end.

The settings decide what is answered and where; the rest is `admission.webhook.server`. It needs no database and no
controller.
"""

from __future__ import annotations

import os

from admission import lifeline
from admission.commands import logs
from admission.commands.faults import Fault, told
from admission.commands.narrowing import narrowed
from admission.commands.surroundings import PUBLISHED_ELSEWHERE
from admission.settings import load


def run(kubeconfig: str | None, config: str | None, *, verbose: bool, only: str | None = None) -> None:
    """Until SIGTERM or SIGINT."""
    logs.configure("webhook", verbose=verbose)
    lifeline.die_with_parent()
    with told():
        settings = narrowed(load(config), only)
        from admission.webhook.server import serve

        try:
            serve(
                settings,
                kubeconfig,
                on_ready=lambda: lifeline.tell("ready"),
                publishes=PUBLISHED_ELSEWHERE not in os.environ,
            )
        except OSError as error:
            where = f"{settings.webhook.host}:{settings.webhook.port}"
            raise Fault(f"the webhook cannot listen on {where}: {error}") from error
