"""Finds out where the API server is and who Muster is there, with the official client's configuration loading.

Works from a kubeconfig (tokens, client certificates, exec and OIDC plugins) or from the service account of the pod.
It never talks to the API server.
"""

from __future__ import annotations

import contextlib
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

_DEFAULT_NAMESPACE: Final = "default"
_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class AccessError(Exception):
    """The kubeconfig or service account cannot be used."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the configuration was loaded with; `expire` says that it has to be loaded again from time to time.

    `namespace` is the one that is meant where none is named: of the context, or of the pod.
    """

    loader: Any = None
    namespace: str = _DEFAULT_NAMESPACE

    @property
    def expire(self) -> bool:
        user = getattr(self.loader, "_user", None)
        return self.loader is not None and user is not None and (self.loader.provider == "gcp" or "exec" in user)


def _loading() -> Any:
    """The official client's loading of configurations.

    It names the official client of generated models, which nobody here makes one of: only its name is there while this
    is imported, or pydantic would come along (7 MiB).
    """
    from kubernetes.aio import client

    is_there = "ApiClient" in vars(client)
    if not is_there:
        client.ApiClient = None
    try:
        from kubernetes.aio import config
    finally:
        if not is_there:
            del client.ApiClient
    return config


async def load(kubeconfig: str | None, context: str | None = None) -> tuple[Configuration, Credentials]:
    """Configuration from `kubeconfig`; else from $KUBECONFIG, the service account, or the user's own kubeconfig.

    `context` is one of the kubeconfig's contexts; None: its current one.
    """
    from kubernetes.aio.client.configuration import Configuration

    config = _loading()
    configuration = type.__call__(Configuration)
    configuration.connection_pool_maxsize = _CONNECTIONS
    named = kubeconfig or os.environ.get("KUBECONFIG")
    try:
        if named is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=configuration)
            return configuration, Credentials(namespace=_namespace_of_pod())
        loader = await config.load_kube_config(
            _existing(named),
            context=context,
            client_configuration=configuration,
            persist_config=False,
            temp_file_path=None,
        )
        namespace = loader.current_context["context"].get("namespace") or _DEFAULT_NAMESPACE
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
        raise AccessError(f"the cluster's credentials cannot be used: {error}") from error
    return configuration, Credentials(loader, namespace)


def contexts(kubeconfig: str | None) -> list[str]:
    """The names of the contexts that there are to choose from."""
    config = _loading()
    try:
        found, _ = config.list_kube_config_contexts(_existing(kubeconfig or os.environ.get("KUBECONFIG")))
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
        raise AccessError(f"the kubeconfig cannot be used: {error}") from error
    return [context["name"] for context in found]


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
            blocking.load_kube_config(_existing(named), client_configuration=configuration, persist_config=False)
    except (blocking.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
        raise AccessError(f"the cluster's credentials cannot be used: {error}") from error
    return ApiClient(configuration)


def _existing(named: str | None) -> str:
    """The kubeconfig, or several with the separator of paths between them, of which missing ones do not count."""
    if not named:
        paths = [Path.home() / ".kube" / "config"]
    else:
        paths = [Path(each).expanduser() for each in named.split(os.pathsep) if each]
    found = [path for path in paths if path.is_file()]
    if not found:
        listed = ", ".join(map(str, paths))
        raise AccessError(f"there is no kubeconfig {listed}; name one with --kubeconfig")
    return os.pathsep.join(map(str, found))


def _namespace_of_pod() -> str:
    with contextlib.suppress(OSError):
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip() or _DEFAULT_NAMESPACE
    return _DEFAULT_NAMESPACE


async def refresh(credentials: Credentials, configuration: Configuration) -> None:
    """Renew the token every minute where it is about to expire. Runs until it is cancelled."""
    config = _loading()
    await config.refresh_token(credentials.loader, configuration)
