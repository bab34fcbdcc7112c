"""The certificates of `muster dev`: kept in its folder instead of a Secret, replaced by the same rules.

What is trusted and what is served comes from `admission.tls`; this keeps it in one file, across restarts, and puts what
is served where the webhook looks for it. It never serves what has not been published.
"""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path

from admission import tls
from admission.commands.surroundings import CERTIFICATES
from admission.tls import Certificates, Need


class Kept:
    """Certificates for one address, in `folder`; the webhook serves from `serving`."""

    def __init__(self, folder: Path, serving: Path, host: str) -> None:
        self._file = folder / CERTIFICATES
        self._serving = serving
        self._names = (host, "localhost") if host == "127.0.0.1" else (host,)
        self._held = self._load() or self._issued()
        self.serve()

    @property
    def trusted(self) -> bytes:
        """The authorities, for whoever connects."""
        return self._held.authorities

    def due(self) -> Need:
        """What has to be replaced now."""
        return tls.needs_rotation(self._held, self._names, datetime.now(UTC))

    def take(self, need: Need) -> None:
        """Replace it. A new authority is to be published, a new certificate to be served."""
        self._held = tls.rotate(self._held, need, self._names, datetime.now(UTC))
        self._save()

    def serve(self) -> None:
        """Put certificate and key where the webhook reads them."""
        tls.write_files(self._serving, self._held)

    def _issued(self) -> Certificates:
        self._held = tls.issue(self._names, datetime.now(UTC))
        self._save()
        return self._held

    def _load(self) -> Certificates | None:
        with contextlib.suppress(OSError, ValueError):
            held = tls.from_secret(json.loads(self._file.read_text(encoding="utf-8")))
            if held is not None and tls.needs_rotation(held, self._names, datetime.now(UTC)) is not Need.ALL:
                return held
        return None

    def _save(self) -> None:
        temporary = self._file.with_suffix(".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(tls.to_secret(self._held), file)
        temporary.replace(self._file)
