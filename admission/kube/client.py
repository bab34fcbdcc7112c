"""Talks to the API server: typed objects in and out, over the official client's authentication and transport.

Bodies are encoded and decoded by msgspec, since the official client's generated models cost more than the request
itself. It keeps to the configured rate, waits where the API server says so, and never repeats a write whose outcome it
does not know: that is its caller's decision, from a fresh look at the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from admission.api.meta import ListMeta, PatchKind
from admission.kube import access
from admission.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerFailed,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_answer,
)
from admission.kube.pacing import Pace
from admission.kube.reading import read
from admission.kube.resources import Resource

__all__ = [
    "AlreadyExists",
    "ApiError",
    "Client",
    "Conflict",
    "Forbidden",
    "Gone",
    "Invalid",
    "Listing",
    "NotFound",
    "PatchKind",
    "ServerFailed",
    "TooManyRequests",
    "Unauthorized",
    "Unreachable",
    "WatchEvent",
    "connect",
    "readable",
]

T = TypeVar("T")
logger = logging.getLogger(__name__)

PAGE: Final = 1_000
#: How often a request that the API server turned away unprocessed (429) is sent again.
_RETRIES: Final = 5
#: A watch with bookmarks says something at least every minute; longer silence means that the connection is dead.
_WATCH_SILENCE: Final = 150.0


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """All objects of a list call, of all its pages, and the version to watch from."""

    items: tuple[T, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """`type` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR; `object` the JSON of the object (or Status)."""

    type: str
    object: msgspec.Raw


class _Page(msgspec.Struct):
    """What lacks either is no list: nothing may be taken for deleted because of it."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_PAGES: Final = msgspec.json.Decoder(_Page)
_EVENTS: Final = msgspec.json.Decoder(_Event)


class _Transport(RESTClientObject):  # type: ignore[misc]
    """The official transport (TLS, client certificates, proxy), as a session that takes raw bytes."""

    def session(self, *, user_agent: str) -> aiohttp.ClientSession:
        # Left to itself the session reads ~/.netrc and the proxy variables for each request anew, in threads: a third
        # of what a request costs.
        self.configuration.client_session_kwargs = {"trust_env": False, "cookie_jar": aiohttp.DummyCookieJar()}
        session: aiohttp.ClientSession = self._create_pool_manager()
        session.headers.update({"User-Agent": user_agent, "Accept": "application/json"})
        return session


class Client:
    """One connection pool to one API server; belongs to the event loop that made it."""

    def __init__(self, configuration: Configuration, *, pace: Pace, timeout: float, user_agent: str) -> None:
        self._configuration = configuration
        self._transport = _Transport(configuration)
        self._session = self._transport.session(user_agent=user_agent)
        self._pace = pace
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._watch_timeout = aiohttp.ClientTimeout(total=None, sock_connect=timeout, sock_read=_WATCH_SILENCE)
        self._proxy = configuration.proxy or proxy_of(str(configuration.host))
        #: The one that is meant where none is named.
        self.namespace = "default"
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def server(self) -> str:
        """Address of the API server."""
        return str(self._configuration.host)

    def impersonate(self, user: str, groups: Sequence[str] = ()) -> None:
        """Ask as somebody else from now on, where the API server lets this user do so."""
        self._session.headers.add("Impersonate-User", user)
        for group in groups:
            self._session.headers.add("Impersonate-Group", group)

    def keep_fresh(self, credentials: access.Credentials) -> None:
        """Renew short-lived credentials (exec plugins and the like) for as long as this client is open."""
        if credentials.expire:
            self._refreshing = asyncio.ensure_future(access.refresh(credentials, self._configuration))

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._refreshing
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ------------------------------------------------------------------ objects

    async def get(self, resource: Resource[T], namespace: str | None, name: str) -> T:
        return read(await self.raw("GET", resource.path(namespace, name)), resource.type)

    async def list(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = PAGE,
    ) -> Listing[T]:
        """Every object, page by page, as of one version. An object that cannot be read is left out and logged."""
        items: list[T] = []
        query = _given(labelSelector=label_selector, fieldSelector=field_selector, limit=limit)
        path = resource.path(namespace)
        content = await self.raw("GET", path, query=query)
        while True:
            page = _PAGES.decode(content)
            token = page.metadata.continue_
            following: asyncio.Task[bytes] | None = None
            if token:
                # The API server makes the next page while this one is read.
                following = asyncio.create_task(self.raw("GET", path, query={**query, "continue": token}))
            try:
                await asyncio.sleep(0)
                items.extend(found for raw in page.items or () if (found := readable(resource, raw)) is not None)
            except BaseException:  # cancelled as well: nobody would wait for the next page
                if following is not None:
                    following.cancel()
                raise
            if following is None:
                return Listing(tuple(items), page.metadata.resource_version)
            content = await following

    async def create(
        self, resource: Resource[T], body: Any, namespace: str | None = None, *, dry_run: bool = False
    ) -> T:
        query = _given(dryRun="All" if dry_run else None)
        path = resource.path(namespace)
        return read(await self.raw("POST", path, msgspec.json.encode(body), query=query), resource.type)

    async def replace(
        self, resource: Resource[T], namespace: str | None, name: str, body: Any, *, subresource: str | None = None
    ) -> T:
        path = resource.path(namespace, name, subresource)
        return read(await self.raw("PUT", path, msgspec.json.encode(body)), resource.type)

    async def patch(
        self,
        resource: Resource[T],
        namespace: str | None,
        name: str,
        body: Any,
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str | None = None,
    ) -> T:
        path = resource.path(namespace, name, subresource)
        answer = await self.raw("PATCH", path, msgspec.json.encode(body), content_type=kind.value)
        return read(answer, resource.type)

    async def apply(self, resource: Resource[T], namespace: str | None, name: str, body: Any, *, manager: str) -> T:
        """Server-side apply, taking over fields that others hold."""
        query = {"fieldManager": manager, "force": "true"}
        answer = await self.raw(
            "PATCH",
            resource.path(namespace, name),
            msgspec.json.encode(body),
            query=query,
            content_type="application/apply-patch+yaml",
        )
        return read(answer, resource.type)

    async def delete(
        self,
        resource: Resource[Any],
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str = "Background",
    ) -> None:
        """Delete one object, on condition of its uid and version where they are given."""
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if preconditions := _given(uid=uid, resourceVersion=resource_version):
            options["preconditions"] = preconditions
        await self.raw("DELETE", resource.path(namespace, name), msgspec.json.encode(options))

    # ------------------------------------------------------------------ watching

    async def watch(
        self,
        resource: Resource[Any],
        resource_version: str,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        seconds: int | None = None,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[WatchEvent]:
        """Changes after `resource_version`, until the API server ends the watch (after `seconds`) or it breaks.

        `opened` is called when the API server has agreed to tell them.
        Ends normally when the watch was closed; raises `Gone` when the version is too old, on the request or later.
        """
        seconds = seconds or random.randint(300, 600)  # noqa: S311  # spreads the reconnects, protects nothing
        query = _given(
            watch="true",
            resourceVersion=resource_version,
            allowWatchBookmarks="true",
            timeoutSeconds=seconds,
            labelSelector=label_selector,
            fieldSelector=field_selector,
        )
        path = resource.path(namespace)
        async with self._answer("GET", path, b"", query, "application/json", self._watch_timeout) as answer:
            if answer.status >= 400:
                raise from_answer(answer.status, await answer.read(), answer.headers.get("Retry-After"))
            opened()
            async for line in _lines(answer.content):
                event = _EVENTS.decode(line)
                if event.type == "ERROR":
                    raise from_answer(0, bytes(event.object))
                yield WatchEvent(event.type, event.object)

    # ------------------------------------------------------------------ requests

    async def raw(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,  # noqa: ASYNC109  # passed on to the transport
    ) -> bytes:
        """One request, its whole answer. Raises an `ApiError` for every answer that is not a success."""
        limit = aiohttp.ClientTimeout(total=timeout) if timeout else self._timeout
        for attempt in range(_RETRIES + 1):
            async with self._answer(method, path, body, query, content_type, limit) as answer:
                content = await answer.read()
                if answer.status < 400:
                    return content
                error = from_answer(answer.status, content, answer.headers.get("Retry-After"))
            if not isinstance(error, TooManyRequests) or attempt == _RETRIES:
                raise error
            pause = error.retry_after or 1.0
            logger.info("the API server asks to wait", extra={"path": path, "seconds": pause})
            await asyncio.sleep(pause * random.uniform(1.0, 1.2))  # noqa: S311  # as above
        raise AssertionError("unreachable")

    @contextlib.asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        body: bytes,
        query: Mapping[str, str] | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # passed on to the transport
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to one paced and authenticated request; every fault of the network is `Unreachable`."""
        if (pause := self._pace.wait()) > 0:
            await asyncio.sleep(pause)
        headers = {"Content-Type": content_type} if body else {}
        token = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        url = self.server + path + ("?" + urlencode(query) if query else "")
        try:
            async with self._session.request(
                method,
                url,
                data=body or None,
                headers=headers,
                timeout=timeout,
                proxy=self._proxy,
                proxy_headers=self._configuration.proxy_headers,
                server_hostname=self._configuration.tls_server_name or None,
            ) as answer:
                yield answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = str(error) or type(error).__name__
            raise Unreachable(f"{method} {self.server}{path}: {why}") from error


async def connect(
    kubeconfig: str | None = None,
    *,
    qps: float = 300.0,
    burst: int = 500,
    timeout: float = 30.0,  # noqa: ASYNC109  # of each request, not of this call
    component: str = "",
    context: str | None = None,
) -> Client:
    """A client from a kubeconfig file, or from the pod's service account where none is named.

    Raises `access.AccessError` when the credentials cannot be read. Does not talk to the API server yet.
    """
    configuration, credentials = await access.load(kubeconfig, context)
    agent = f"muster/{_version()}" + (f" ({component})" if component else "")
    pace = Pace(qps, burst, asyncio.get_running_loop().time)
    client = Client(configuration, pace=pace, timeout=timeout, user_agent=agent)
    client.namespace = credentials.namespace
    client.keep_fresh(credentials)
    return client


def _version() -> str:
    """Of the installed distribution; 0 in a checkout that is not installed."""
    try:
        return version("muster-queue")
    except PackageNotFoundError:
        return "0"


def proxy_of(server: str) -> str | None:
    """The proxy that the environment names for this server."""
    parts = urlsplit(server)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)


def readable(resource: Resource[T], raw: msgspec.Raw) -> T | None:
    """The object, or None for one that its type cannot hold: one bad object must not hide all the others."""
    try:
        return read(bytes(raw), resource.type)
    except msgspec.DecodeError as error:
        logger.error("an object cannot be read", extra={"kind": resource.kind, "error": str(error)})  # noqa: TRY400
        return None


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream, of any length, without copying the tail at every chunk."""
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        head, newline, rest = chunk.partition(b"\n")
        parts.append(head)
        while newline:
            if line := b"".join(parts):
                yield line
            head, newline, rest = rest.partition(b"\n")
            parts = [head]


def _given(**parameters: str | int | None) -> dict[str, str]:
    """The parameters that are set."""
    return {name: str(value) for name, value in parameters.items() if value not in {None, ""}}
