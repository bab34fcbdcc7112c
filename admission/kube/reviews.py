"""Asks the API server who a caller is and what they may see, for the inspection server's threads.

TokenReviews, SubjectAccessReviews and the aggregation layer's settings, over the official client's blocking transport.
It never guesses: whatever is not a clear answer is raised as `ReviewError`.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from urllib3.exceptions import TimeoutError  # noqa: A004  # of connecting and of reading

from admission.kube import access
from queues.inspection.access import Access, Aggregation, ReviewError, User

_SECONDS: Final = (3.0, 5.0)
_SETTINGS: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

T = TypeVar("T")


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


class ClusterReviewer:
    """`queues.inspection.access.Reviewer` by the cluster that `kubeconfig` names (or the pod's service account)."""

    def __init__(self, kubeconfig: str | None = None) -> None:
        self._client = access.blocking_client(kubeconfig)

    def review_token(self, token: str) -> User | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        review = self._ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body, _TokenReview)
        if not review.status.authenticated:
            return None
        user = review.status.user
        extra = tuple(sorted((key, tuple(values)) for key, values in (user.extra or {}).items()))
        return User(user.username, tuple(user.groups or ()), user.uid, extra)

    def review_access(self, user: User, access: Access) -> bool:
        spec: dict[str, Any] = {"user": user.name, "groups": list(user.groups), "uid": user.uid}
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra}
        if access.path:
            spec["nonResourceAttributes"] = {"path": access.path, "verb": access.verb}
        else:
            spec["resourceAttributes"] = {
                "verb": access.verb,
                "group": access.group,
                "resource": access.resource,
                "subresource": access.subresource,
                "namespace": access.namespace,
                "name": access.name,
            }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        review = self._ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body, _AccessReview)
        return review.status.allowed and not review.status.denied

    def aggregation(self) -> Aggregation | None:
        data = self._ask("GET", _SETTINGS, None, _ConfigMap).data
        client_ca = data.get("requestheader-client-ca-file", "")
        if not client_ca.strip():
            return None
        return Aggregation(
            client_ca=client_ca,
            allowed_names=_names(data, "requestheader-allowed-names"),
            username_headers=_names(data, "requestheader-username-headers"),
            uid_headers=_names(data, "requestheader-uid-headers"),
            group_headers=_names(data, "requestheader-group-headers"),
            extra_prefixes=_names(data, "requestheader-extra-headers-prefix"),
        )

    def _ask(self, method: str, path: str, body: Any, kind: type[T]) -> T:
        request = self._client.param_serialize(
            method,
            path,
            header_params={"Accept": "application/json", "Content-Type": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
        )
        answer, content = self._answer(request, f"{method} {path}")
        if answer.status not in {200, 201}:
            said = bytes(content or b"")[:300].decode("utf-8", "replace")
            raise ReviewError(f"{method} {path}: {answer.status} {said}")
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError as error:
            raise ReviewError(f"{method} {path}: {error}") from error

    def _answer(self, request: Any, what: str) -> tuple[Any, bytes]:
        """Asks again where a kept connection broke (asking changes nothing), but not where time ran out."""
        for is_last in (False, True):
            try:
                answer = self._client.call_api(*request, _request_timeout=_SECONDS).response
                content = answer.data
            except Exception as error:  # the transport's faults are of many kinds, and none of them is an answer
                if is_last or isinstance(error, TimeoutError):
                    raise ReviewError(f"{what}: {error}") from error
            else:
                return answer, content
        raise AssertionError("unreachable")


def _names(data: dict[str, str], key: str) -> tuple[str, ...]:
    """A JSON list in a string."""
    try:
        return tuple(msgspec.json.decode(data.get(key) or "[]", type=list[str]))
    except msgspec.DecodeError as error:
        raise ReviewError(f"{key} of {_SETTINGS}: {error}") from error
