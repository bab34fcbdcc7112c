"""Finds out where the API server is and who Muster is there, with the official client's configuration loading.

Works from a kubeconfig (tokens, client certificates, exec and OIDC plugins) or from the service account of the pod.
It never talks to the API server.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from kubernetes.aio.client.configuration import Configuration

# The official client's two halves are imported where they are used: each costs a third of a second, and no process
# needs both.

#: Requests in flight to the API server; watches take one each.
_CONNECTIONS: Final = 256


class AccessError(Exception):
    """The kubeconfig or service account cannot be used."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the configuration was loaded with; `expire` says that it has to be loaded again from time to time."""

    loader: Any = None

    @property
    def expire(self) -> bool:
        user = getattr(self.loader, "_user", None)
        return self.loader is not None and user is not None and (self.loader.provider == "gcp" or "exec" in user)


async def load(kubeconfig: str | None) -> tuple[Configuration, Credentials]:
    """Configuration from `kubeconfig`; else from $KUBECONFIG, the service account, or the user's own kubeconfig."""
    from kubernetes.aio import config
    from kubernetes.aio.client.configuration import Configuration

    configuration = type.__call__(Configuration)
    configuration.connection_pool_maxsize = _CONNECTIONS
    named = kubeconfig or os.environ.get("KUBECONFIG")
    try:
        if named is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=configuration)
            return configuration, Credentials()
        path = _existing(named)
        loader = await config.load_kube_config(
            str(path), client_configuration=configuration, persist_config=False, temp_file_path=None
        )
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
        raise AccessError(f"the cluster's credentials cannot be used: {error}") from error
    return configuration, Credentials(loader)


def blocking_client(kubeconfig: str | None) -> Any:
    """The official client with threads and blocking calls, found in the same places as `load` does."""
    from kubernetes import config as blocking
    from kubernetes.client.api_client import ApiClient
    from kubernetes.client.configuration import Configuration as BlockingConfiguration

    configuration = type.__call__(BlockingConfiguration)
    # A connection that was lost must come to light at once; the informers have their own pauses.
    configuration.retries = False
    named = kubeconfig or os.environ.get("KUBECONFIG")
    try:
        if named is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            blocking.load_incluster_config(client_configuration=configuration)
        else:
            path = str(_existing(named))
            blocking.load_kube_config(path, client_configuration=configuration, persist_config=False)
    except (blocking.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
        raise AccessError(f"the cluster's credentials cannot be used: {error}") from error
    return ApiClient(configuration)


def _existing(named: str | None) -> Path:
    path = Path(named).expanduser() if named else Path.home() / ".kube" / "config"
    if not path.is_file():
        raise AccessError(f"there is no kubeconfig {path}; name one with --kubeconfig")
    return path


async def refresh(credentials: Credentials, configuration: Configuration) -> None:
    """Renew the token every minute where it is about to expire. Runs until it is cancelled."""
    from kubernetes.aio import config

    await config.refresh_token(credentials.loader, configuration)
