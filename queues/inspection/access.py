"""Decides who a caller is and whether they may see something, by asking the cluster through a `Reviewer`.

A caller is known by the headers of the API server's aggregation layer, believed only on a connection with its client
certificate, or by a bearer token. It must never let anyone in because the cluster could not be asked.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import unquote

#: Where `server` puts what it knows of a connection into the WSGI environment; no client can set these.
PEER = "muster.peer"
HEADERS = "muster.headers"

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"

#: Seconds for which an answer of the cluster is believed, as in the API server's own delegated authorisation.
BELIEVED = 10.0
#: Answers kept of each sort; the least recently used go first.
KEPT = 4096

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """One right: a verb on a resource, or with `path` on a path that is no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"{self.verb} {self.path}"
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        named = f" {self.name!r}" if self.name else ""
        place = f" in namespace {self.namespace!r}" if self.namespace else ""
        return f"{self.verb} {what}.{self.group}{named}{place}"


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What the API server publishes about its aggregation layer.

    (ConfigMap `kube-system/extension-apiserver-authentication`.) No allowed names: any certificate of this CA.
    """

    client_ca: str
    allowed_names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)


@dataclass(frozen=True, slots=True)
class Peer:
    """The client certificate of a connection, verified against the aggregation layer's CA."""

    common_name: str


class ReviewError(Exception):
    """The cluster could not be asked."""


class Reviewer(Protocol):
    """Asks the API server. Every method may block for some seconds and raises `ReviewError` where it gets no answer."""

    def review_token(self, token: str) -> User | None:
        """Whose token this is; None for one that the cluster does not know."""
        ...

    def review_access(self, user: User, access: Access) -> bool: ...

    def aggregation(self) -> Aggregation | None:
        """None where the API server has no aggregation layer."""
        ...


class UnauthenticatedError(Exception):
    """Nobody knows who is calling."""


@dataclass(slots=True)
class _Answers(Generic[T]):
    """Answers of the cluster, for a while."""

    clock: Callable[[], float]
    kept: OrderedDict[Any, tuple[float, T]] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: Any, ask: Callable[[], T]) -> T:
        now = self.clock()
        with self.lock:
            known = self.kept.get(key)
            if known is not None and known[0] > now:
                self.kept.move_to_end(key)
                return known[1]
        answer = ask()
        with self.lock:
            self.kept[key] = (now + BELIEVED, answer)
            self.kept.move_to_end(key)
            while len(self.kept) > KEPT:
                self.kept.popitem(last=False)
        return answer


class Authorizer:
    """Safe to use from several threads."""

    def __init__(self, reviewer: Reviewer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._reviewer = reviewer
        self._tokens: _Answers[User | None] = _Answers(clock)
        self._rights: _Answers[bool] = _Answers(clock)
        self._aggregation: Aggregation | None = None

    @property
    def aggregation(self) -> Aggregation | None:
        """As last read; None before that, and where there is none."""
        return self._aggregation

    def refresh(self) -> None:
        """Reads the aggregation layer's settings again; what was read before stays where that fails."""
        self._aggregation = self._reviewer.aggregation()

    def authenticate(self, environ: Mapping[str, Any]) -> User:
        """The caller of this request. Raises `UnauthenticatedError`, or `ReviewError` where the cluster is away."""
        user = self._from_aggregation(environ) or self._from_token(environ)
        if user is None:
            raise UnauthenticatedError
        return user

    def allows(self, user: User, access: Access) -> bool:
        if MASTERS in user.groups:
            return True
        return self._rights.get((user, access), lambda: self._reviewer.review_access(user, access))

    def _from_aggregation(self, environ: Mapping[str, Any]) -> User | None:
        peer, known = environ.get(PEER), self._aggregation
        if not isinstance(peer, Peer) or known is None:
            return None
        if known.allowed_names and peer.common_name not in known.allowed_names:
            return None
        return remote_user(environ.get(HEADERS, ()), known)

    def _from_token(self, environ: Mapping[str, Any]) -> User | None:
        scheme, _, token = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii() or not token.isprintable():
            return None
        key = hashlib.sha256(token.encode()).digest()
        user = self._tokens.get(key, lambda: self._reviewer.review_token(token))
        return None if user is None else _with_system_group(user)


def remote_user(headers: Sequence[tuple[str, str]], known: Aggregation) -> User | None:
    """The user that the aggregation layer names, from the single header lines: values may hold commas."""
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name.lower(), []).append(value)

    def of(names: Sequence[str]) -> list[str]:
        return [value for name in names for value in values.get(name.lower(), ())]

    user = next((value for value in of(known.username_headers) if value), None)
    if user is None:
        return None
    extra: dict[str, list[str]] = {}
    for prefix in known.extra_prefixes:
        for name, given in values.items():
            if name.startswith(prefix.lower()) and len(name) > len(prefix):
                extra.setdefault(unquote(name[len(prefix) :]), []).extend(given)
    return _with_system_group(
        User(
            name=user,
            groups=tuple(of(known.group_headers)),
            uid=next(iter(of(known.uid_headers)), ""),
            extra=tuple(sorted((key, tuple(given)) for key, given in extra.items())),
        )
    )


def _with_system_group(user: User) -> User:
    """The API server adds this group to everyone whom it knows; the aggregator's own user comes without it."""
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups or user.name == "system:anonymous":
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)
