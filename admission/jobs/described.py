"""What there is to say of a kind of job whose operator takes a suspend field: one `Description`, read by one adapter.

A description finds pod sets, readiness and the end in objects that stay plain dicts; `described_jobs` does the rest
for all kinds alike. Its functions must never fail on what somebody wrote into an object: what is not there is empty.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from admission.api.job_kinds import CustomJob, JobKind
from admission.jobs.gang import Verdict
from admission.jobs.injection import Directives

#: Names of fields and indexes of lists.
Place = tuple[str | int, ...]

_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Seen:
    """A job as observed, with the objects of its operator that tell more of it."""

    job: CustomJob
    parts: tuple[CustomJob, ...] = ()

    @property
    def spec(self) -> Mapping[str, Any]:
        return self.job.spec

    @property
    def status(self) -> Mapping[str, Any]:
        return self.job.status


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of one template, as a pod set has them.

    `place` is where the template stands in the job's spec; None where nothing can be put into it. The labels tell a
    pod's number, and that of its group where there are `groups` of them.
    """

    name: str
    count: int
    template: Mapping[str, Any]
    place: Place | None
    index_label: str = ""
    group_label: str = ""
    groups: int | None = None


#: A role, what stands in its template now, and what is to stand there.
Change = tuple[Role, Directives, Directives]
Write = Callable[[dict[str, Any], Sequence[Change]], None]


def _nothing(_: Seen) -> dict[str, int]:
    return {}


def _no(_: Seen) -> bool:
    return False


def _no_name(_: Seen) -> str:
    return ""


def write_templates(spec: dict[str, Any], changes: Sequence[Change]) -> None:
    """Puts the directives into the pod templates of the spec."""
    for role, _, wanted in changes:
        template = found(spec, role.place) if role.place is not None else None
        if isinstance(template, dict):
            _write(template, "metadata", {"labels": wanted.labels, "annotations": wanted.annotations})
            _write(
                template,
                "spec",
                {
                    "nodeSelector": wanted.node_selector,
                    "tolerations": wanted.tolerations,
                    "schedulingGates": wanted.gates,
                },
            )


def _write(template: dict[str, Any], part: str, values: Mapping[str, Any]) -> None:
    if any(values.values()) or isinstance(template.get(part), dict):
        put(within(template, part), values)


def within(target: dict[str, Any], key: str) -> dict[str, Any]:
    """The mapping at the key, which is made where there is none."""
    if not isinstance(target.get(key), dict):
        target[key] = {}
    inner: dict[str, Any] = target[key]
    return inner


def put(target: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Sets each field; an empty one is taken away."""
    for key, value in values.items():
        if value:
            target[key] = copy.deepcopy(value)
        else:
            target.pop(key, None)


@dataclass(frozen=True, slots=True)
class Description:
    """One kind. `roles` gives None while the operator has not yet said which pods there are.

    `ready` and `reclaimable` are about an admitted job, `active` about one that may be suspended already.
    A job that its operator will not run as it stands is `on_hold`; one that has no pods of its own is `ignored`.
    `write` and `restore` change a copy of the spec when the job starts and when it has stopped.
    """

    kind: JobKind
    roles: Callable[[Seen], tuple[Role, ...] | None]
    ready: Callable[[Seen], bool]
    active: Callable[[Seen], bool]
    verdict: Callable[[Seen], Verdict | None]
    reclaimable: Callable[[Seen], dict[str, int]] = _nothing
    priority_class: Callable[[Seen], str] = _no_name
    ignored: Callable[[Seen], bool] = _no
    on_hold: Callable[[Seen], bool] = _no
    managed_by: Place = ("managedBy",)
    write: Write = write_templates
    restore: Write = write_templates
    #: The kind of the objects that the operator makes of a job and that are read with it.
    part: JobKind | None = None
    #: Whether what a start injects is taken only by a job that is suspended, before it is let go.
    injects_first: bool = False
    #: Whether what was injected can be taken out only when nothing runs any more.
    restores_last: bool = False


# ------------------------------------------------------------------ reading


def found(value: Any, place: Iterable[str | int]) -> Any:
    """What stands at the place; None where there is nothing."""
    for part in place:
        if isinstance(part, int):
            value = value[part] if isinstance(value, list) and part < len(value) else None
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def mapping(value: Any, *place: str | int) -> Mapping[str, Any]:
    result = found(value, place)
    return result if isinstance(result, Mapping) else {}


def mappings(value: Any, *place: str | int) -> list[Mapping[str, Any]]:
    """The items of a list. One that is no mapping counts as an empty one, so that indexes stay what they are."""
    result = found(value, place)
    return [each if isinstance(each, Mapping) else {} for each in result] if isinstance(result, list) else []


def text(value: Any, *place: str | int) -> str:
    result = found(value, place)
    return result if isinstance(result, str) else ""


def number(value: Any, *place: str | int, default: int = 0) -> int:
    """A count, as the API server lets them be."""
    result = found(value, place)
    if isinstance(result, bool) or not isinstance(result, int):
        return default
    return min(max(result, 0), _MOST)


def has_condition(status: Mapping[str, Any], type_: str) -> bool:
    return any(each.get("type") == type_ and each.get("status") == "True" for each in mappings(status, "conditions"))


def verdict_of_conditions(success: str, failure: str, *, kind: str) -> Callable[[Seen], Verdict | None]:
    """The end as two conditions tell it."""

    def verdict(seen: Seen) -> Verdict | None:
        for each in mappings(seen.status, "conditions"):
            if each.get("type") in {success, failure} and each.get("status") == "True":
                is_success = each.get("type") == success
                return Verdict(is_success, text(each, "message") or f"The {kind} has {_ENDS[is_success]}")
        return None

    return verdict


_ENDS = {True: "succeeded", False: "failed"}


def template_of(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its pod template."""
    return mapping(value, "template")
