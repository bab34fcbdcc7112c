"""Finds the folder that travels beside the code: the manifests.

In a checkout it stands at the root, in an installed wheel inside the package (see force-include in pyproject.toml).
It only ever finds it; it never writes there.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_ROOT = _PACKAGE.parent


def webhook_config() -> Path:
    """The folder with the CRDs, webhook configurations and everything else that `kubectl apply -k` installs."""
    installed, checkout = _PACKAGE / "_webhook_config", _ROOT / "webhook-config"
    for folder in (installed, checkout):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"neither {installed} nor {checkout} is there: the installation is incomplete")
