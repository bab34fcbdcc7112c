"""Which jobs with operators of their own the API server asks about, and how it knows what such an operator made.

The expressions agree with `custom_jobs` as those in `matching` do with the other kinds. Parts of a job are left out
only if who creates them may write the status of the owner's kind, which operators may and users may not: an owner
reference alone would be a way around every quota.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from admission.api import job_kinds, names
from admission.api.job_kinds import JobKind, Path
from admission.webhook.context import Rules
from admission.webhook.gpus import GpuResources, cel_list, cel_string
from admission.webhook.matching import Condition, Matching, Scope, label

#: Whether it is suspended, in every kind; of the fields each kind has one.
SUSPENDED: Final = " || ".join(
    f"{{of}}.spec{''.join(f'.?{part}' for part in path)}.orValue(false)"
    for path in dict.fromkeys(kind.suspend for kind in job_kinds.JOB_KINDS)
)

#: A RayJob on a cluster that is there already is no one's business.
ON_ITS_OWN: Final = Condition(
    name="brings-its-own-pods", expression="size(object.spec.?clusterSelector.orValue({})) == 0"
)


def not_by(user: str) -> str:
    """Starting and stopping a job must not wait for the webhook."""
    return f"request.userInfo.?username.orValue('') != {cel_string(user)}"


def suspended(of: str) -> str:
    return f"({SUSPENDED.format(of=of)})"


def scopes(rules: Rules, kind: JobKind) -> list[Scope]:
    """Where this kind is asked about: jobs that name a queue, and those with GPUs in a pod template.

    Where only the adapter finds the templates, it is asked about every job.
    """
    matching = Matching(rules)
    return matching.split(matching.named_job, _asks_for_gpus(rules, kind, matching.gpus))


def to_validate(rules: Rules, kind: JobKind) -> str:
    """A job that names a queue, or did, or that GPUs may have got into."""
    matching = Matching(rules)
    named, asks = matching.named_or_was, _asks_for_gpus(rules, kind, matching.gpus)
    return named if asks is None or rules.manage_all else f"{named} || (oldObject != null && {asks})"


def _asks_for_gpus(rules: Rules, kind: JobKind, gpus: GpuResources | None) -> str | None:
    if gpus is None:
        return None
    exempt = cel_list(sorted(rules.gpu_exempt_namespaces))
    asks = " || ".join(_within("object.?spec", path, gpus.cel) for path in kind.templates) or "true"
    return f"(!(request.namespace in {exempt}) && ({asks}))"


def _within(of: str, path: Path, test: Callable[[str], str], depth: int = 0) -> str:
    """Whether the test holds for a value at the path, any part of which may be missing."""
    for index, part in enumerate(path):
        rest = path[index + 1 :]
        item = f"x{depth}"
        if part == job_kinds.EACH:
            return f"{of}.orValue([]).exists({item}, {_within(item, rest, test, depth + 1)})"
        if part == job_kinds.EVERY:
            return f"{of}.orValue({{}}).exists({item}, {_within(f'{of}.orValue({{}})[{item}]', rest, test, depth + 1)})"
        of = f"{of}.?{part}"
    return test(f"{of}.orValue({{}})")


def part_of_a_job(rules: Rules) -> str | None:
    """Whether the operator of an enabled kind makes the object for a job of that kind."""
    if not rules.custom:
        return None
    known = cel_list(f"{kind.group}/{kind.kind}" for kind in rules.custom)
    group = f"o.apiVersion.split({cel_string('/')})[0]"
    may_write_status = (
        f"authorizer.group({group}).resource(o.kind.lowerAscii() + 's').subresource('status')"
        ".namespace(request.namespace).check('update').allowed()"
    )
    return (
        "object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && "
        f"({group} + '/' + o.kind) in {known} && {may_write_status})"
    )


def not_a_part(rules: Rules, unless: str = "") -> list[Condition]:
    """Leaves parts out, but for those for which `unless` holds."""
    part = part_of_a_job(rules)
    if part is None:
        return []
    expression = f"!({part}) || ({unless})" if unless else f"!({part})"
    return [Condition(name="not-of-a-queued-custom-job", expression=expression)]


def pods_not_a_part(rules: Rules) -> list[Condition]:
    """The same for pods: one that names a queue itself, and is in no pod set of a job, is queued by itself."""
    by_itself = f"{label(names.QUEUE_LABEL)} != '' && {label(names.PODSET_LABEL)} == ''"
    return not_a_part(rules, unless="" if rules.manage_all else by_itself)


def resources(rules: Rules) -> Sequence[tuple[str, str, str]]:
    """Group, version and plural of every enabled kind."""
    return [(kind.group, kind.version, kind.plural) for kind in rules.custom]
