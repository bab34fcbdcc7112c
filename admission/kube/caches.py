"""Keeps the two things that the webhook knows of the cluster, in threads beside it: namespaces' labels and LocalQueues.

They are shared informers of the official client over metadata alone, so a review reads memory and waits for no one.
It never answers from a cache that was not filled once, and never asks a server that is down in a tight loop.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

import msgspec
from kubernetes.client.api_client import ApiClient
from kubernetes.client.exceptions import ApiException
from kubernetes.informer import SharedInformer

from admission.kube import access
from admission.kube.resources import LOCAL_QUEUES, NAMESPACES, Resource

logger = logging.getLogger(__name__)

#: Both caches need an object's metadata and nothing else of it.
_METADATA: Final = "application/json;as={}PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"
_PAGE: Final = "1000"
_CONNECT_SECONDS: Final = 5.0
#: A watch with bookmarks says something every minute; longer silence means that the connection is dead.
_SILENCE_SECONDS: Final = 150.0
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 10.0


class _Follower:
    """One shared informer and the requests that it makes."""

    def __init__(self, client: ApiClient, resource: Resource[Any]) -> None:
        self._client = client
        self._resource = resource
        self._stopped = threading.Event()
        self._pause = _FIRST_PAUSE
        self._asked_at = 0.0
        self._open: Any = None
        self.filled = threading.Event()
        self._informer = SharedInformer(self._source())

    def start(self) -> None:
        self._informer.start()

    def stop(self) -> None:
        """The informer waits for its thread, and that for the next bookmark, up to a minute, unless its watch ends."""
        self._stopped.set()
        stopping = threading.Thread(target=self._informer.stop, daemon=True)
        stopping.start()
        watch = self._open
        if watch is not None:
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # it may be ending just now
                watch.shutdown()
        stopping.join(_CONNECT_SECONDS)

    def get(self, key: str) -> Any:
        return self._informer.cache.get_by_key(key)

    def _source(self) -> Callable[..., Any]:
        """The function that the informer lists with and, with `watch`, watches with.

        The official client reads from its docstring that objects are to be left as they are.
        """

        def source(**asked: Any) -> Any:
            """Objects of one resource.

            :return: object
            """
            return self._watch(asked["resource_version"]) if asked.get("watch") else self._list()

        return source

    def _list(self) -> Any:
        """All objects. Waits for a server that is down, since the informer would complain and do the same."""
        while not self._stopped.is_set():
            try:
                return self._pages()
            except Exception as error:  # noqa: BLE001  # the transport's faults are of many kinds; all are waited out
                self._rest(error)
        return SimpleNamespace(items=[], metadata=SimpleNamespace(resource_version=None))

    def _pages(self) -> Any:
        items: list[Any] = []
        token = ""
        while True:
            query = [("limit", _PAGE), *([("continue", token)] if token else [])]
            answer = _accepted(self._request(query, _METADATA.format("", "List"), 30.0))
            page = msgspec.json.decode(answer.data)
            items += page.get("items") or []
            token = page["metadata"].get("continue") or ""
            if not token:
                self._pause = _FIRST_PAUSE
                version = page["metadata"]["resourceVersion"]
                return SimpleNamespace(items=items, metadata=SimpleNamespace(resource_version=version))

    def _watch(self, version: str) -> Any:
        # The informer only watches once it holds what the list returned.
        self.filled.set()
        if time.monotonic() - self._asked_at < _FIRST_PAUSE:
            self._stopped.wait(_FIRST_PAUSE)
        self._asked_at = time.monotonic()
        seconds = str(random.randint(300, 600))  # noqa: S311  # spreads the reconnects
        query = [
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", seconds),
        ]
        try:
            answer = _accepted(self._request(query, _METADATA.format("", ""), (_CONNECT_SECONDS, _SILENCE_SECONDS)))
        except Exception as error:
            if getattr(error, "status", 0) != 410:
                self._rest(error)
            raise
        self._pause = _FIRST_PAUSE
        self._open = answer
        return answer

    def _request(self, query: list[tuple[str, str]], accept: str, timeout: float | tuple[float, float]) -> Any:
        request = self._client.param_serialize(
            "GET",
            self._resource.path(),
            query_params=query,
            header_params={"Accept": accept},
            auth_settings=["BearerToken"],
        )
        return self._client.call_api(*request, _request_timeout=timeout).response

    def _rest(self, error: Exception) -> None:
        logger.warning(
            "the API server cannot be followed, trying again",
            extra={"kind": self._resource.kind, "error": str(error)[:300], "seconds": round(self._pause, 1)},
        )
        self._stopped.wait(random.uniform(self._pause / 2, self._pause))  # noqa: S311  # jitter
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


def _accepted(answer: Any) -> Any:
    if answer.status != 200:
        raise ApiException(status=answer.status, reason=answer.data[:300].decode("utf-8", "replace"))
    return answer


class Caches:
    """What the webhook knows of the cluster; safe to read from any thread."""

    def __init__(self, kubeconfig: str | None) -> None:
        client = access.blocking_client(kubeconfig)
        self._namespaces = _Follower(client, NAMESPACES)
        self._local_queues = _Follower(client, LOCAL_QUEUES)

    def start(self) -> None:
        """Start following, in daemon threads."""
        # The informer's own lines are tracebacks for every lost connection; `_Follower` says the same in one line.
        logging.getLogger("kubernetes.informer.informer").setLevel(logging.CRITICAL)
        self._namespaces.start()
        self._local_queues.start()

    def stop(self) -> None:
        self._namespaces.stop()
        self._local_queues.stop()

    @property
    def synced(self) -> bool:
        """Whether both hold what was in the cluster after the start."""
        return self._namespaces.filled.is_set() and self._local_queues.filled.is_set()

    def wait_synced(self, timeout: float | None = None) -> bool:
        """Wait until `synced`, for at most `timeout` seconds; whether it is."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for follower in (self._namespaces, self._local_queues):
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not follower.filled.wait(left):
                return False
        return True

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """None for a namespace that is not known (yet)."""
        found = self._namespaces.get(name)
        return None if found is None else found["metadata"].get("labels") or {}

    def has_local_queue(self, namespace: str, name: str) -> bool:
        return self._local_queues.get(f"{namespace}/{name}") is not None
