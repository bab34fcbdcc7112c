"""Finds the folders that travel beside the code: the manifests and the migrations.

In a checkout they stand at the root, in an installed wheel inside the packages (see force-include in pyproject.toml).
It only ever finds them; it never writes there.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_ROOT = _PACKAGE.parent


def webhook_config() -> Path:
    """The folder with the CRDs, webhook configurations and everything else that `kubectl apply -k` installs."""
    return _found(_PACKAGE / "_webhook_config", _ROOT / "webhook-config")


def migrations() -> Path:
    """The folder with the Alembic environment and its versions."""
    return _found(_ROOT / "queues" / "_migrations", _ROOT / "migrations")


def _found(installed: Path, checkout: Path) -> Path:
    for folder in (installed, checkout):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"neither {installed} nor {checkout} is there: the installation is incomplete")
