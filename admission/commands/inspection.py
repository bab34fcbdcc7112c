"""`muster inspection`: serves the inspection API, its pages and the visibility API from the journal's database.

The settings say where; the cluster says who may see what. It needs neither the webhook nor the controller to run, and
is as old as what the controller last wrote.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from admission import lifeline
from admission.commands import logs
from admission.commands.faults import told
from admission.commands.surroundings import journal_url, state_folder
from admission.settings import Settings, load

logger = logging.getLogger(__name__)

#: Whoever reads without a pause gets what the controller and the webhook leave of the processors.
_NICE: Final = 10


def run(kubeconfig: str | None, config: str | None, *, verbose: bool) -> None:
    """Until SIGTERM or SIGINT."""
    logs.configure("inspection", verbose=verbose)
    lifeline.die_with_parent()
    os.nice(_NICE)
    with told():
        settings = load(config)
        from admission.kube.reviews import ClusterReviewer
        from queues.inspection.server import Options, serve

        certificate, key = _certificate(settings)
        options = Options(
            url=journal_url(settings),
            certificate=certificate,
            key=key,
            binds=binds(settings),
            oldest_tls=settings.oldest_tls,
            ciphers=settings.ciphers,
        )
        serve(options, lambda: ClusterReviewer(kubeconfig), ready=_ready)


def binds(settings: Settings) -> tuple[str, ...]:
    """`HOST:PORT` of everything that is turned on."""
    visibility, inspection = settings.visibility_server, settings.muster.inspection
    found = []
    if settings.gate("VisibilityOnDemand"):
        found.append((visibility.bind_address, visibility.bind_port))
    if inspection.enabled:
        found.append((inspection.bind_address, inspection.bind_port))
    return tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in dict.fromkeys(found))


def _ready() -> None:
    # Called in the process that answers, which is a child of this one.
    lifeline.die_with(os.getppid())
    lifeline.tell("ready")


def _certificate(settings: Settings) -> tuple[Path, Path]:
    """The webhook's, which is kept fresh; one of its own where there is none."""
    from admission import tls

    folder = Path(settings.webhook.cert_dir)
    if not (folder / tls.CERTIFICATE_FILE).is_file():
        folder = state_folder(settings) / "inspection"
        now, file = datetime.now(UTC), folder / tls.CERTIFICATE_FILE
        if not file.is_file() or tls.is_due(file.read_bytes(), now):
            tls.write_files(folder, tls.issue(("muster-inspection", "localhost", "127.0.0.1"), now))
    return folder / tls.CERTIFICATE_FILE, folder / tls.KEY_FILE
