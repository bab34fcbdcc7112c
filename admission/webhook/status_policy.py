"""What may stand in the status of a Workload, and how it may change, as a ValidatingAdmissionPolicy.

Judged by the API server from the Workload and the one before it, for everybody but Muster itself: controllers of
admission checks and of foreign jobs write there too, and a slip of theirs would move quota that is in use. It must
never be evaluated for Muster's own writes, which are most of all, nor call anybody.
"""

from __future__ import annotations

from typing import Final

from admission.api import names
from admission.webhook.gpus import cel_string
from admission.webhook.matching import Condition, annotation

Validation = dict[str, str]

_RESERVED: Final = (
    "{}.?status.?conditions.orValue([]).exists(c, "
    f"c.type == {cel_string(names.QUOTA_RESERVED)} && c.status == 'True')"
)
_NOW, _BEFORE = _RESERVED.format("object"), _RESERVED.format("oldObject")
_IS_POD_SET: Final = "object.spec.podSets.exists(p, p.name == {}.name{})"

_USED: Final = "quantity(string(a.resourceUsage[r]))"
#: CPU is counted in thousandths, everything else in whole units. What is too large or too fine for that is let through.
_PER_POD: Final = (
    f"(r == 'cpu' ? {_USED}.asApproximateFloat() >= 9e12 || "
    f"int({_USED}.asApproximateFloat() * 1000.0 + 0.5) % a.count == 0 : "
    f"!{_USED}.isInteger() || {_USED}.asInteger() % a.count == 0)"
)


def _list(of: str, field: str) -> str:
    return f"{of}.?status.?{field}.orValue([])"


def conditions(controller: str) -> list[Condition]:
    """Whose writes are judged: those of everybody but `controller`."""
    return [Condition(name="is-not-musters", expression=f"request.userInfo.?username.orValue('') != '{controller}'")]


def validations() -> list[Validation]:
    """Each tolerates what was there before, or nobody could mend anything else about such an object."""
    assignments = "{}.status.admission.podSetAssignments"
    now, before = assignments.format("object"), assignments.format("oldObject")
    reclaimable, reclaimable_before = _list("object", "reclaimablePods"), _list("oldObject", "reclaimablePods")
    checks, checks_before = _list("object", "admissionChecks"), _list("oldObject", "admissionChecks")
    same = " && ".join(f"a.?{field} == b.?{field}" for field in ("name", "flavors", "resourceUsage", "count"))
    return [
        Validation(
            expression=(
                f"object.?status.?admission.hasValue() || !({_NOW}) || "
                f"(!oldObject.?status.?admission.hasValue() && {_BEFORE})"
            ),
            message="status.admission must be set while quota is reserved",
        ),
        Validation(
            expression=(
                "!object.?status.?admission.hasValue() || "
                "object.?status.?admission == oldObject.?status.?admission || "
                f"{now}.all(a, {_IS_POD_SET.format('a', '')})"
            ),
            message="status.admission.podSetAssignments must name pod sets of the workload",
        ),
        Validation(
            expression=(
                "!object.?status.?admission.hasValue() || "
                "object.?status.?admission == oldObject.?status.?admission || "
                f"{now}.all(a, a.?count.orValue(0) <= 0 || a.?resourceUsage.orValue({{}}).all(r, {_PER_POD}))"
            ),
            message=(
                "resourceUsage of status.admission.podSetAssignments must be a multiple of their count: "
                "the same for each pod, CPU in thousandths and everything else in whole units"
            ),
        ),
        Validation(
            expression=(
                "!object.?status.?admission.hasValue() || !oldObject.?status.?admission.hasValue() || "
                "object.status.admission == oldObject.status.admission || "
                "(object.status.admission.clusterQueue == oldObject.status.admission.clusterQueue && "
                f"size({now}) == size({before}) && {now}.all(a, {before}.exists(b, {same})))"
            ),
            message=(
                "status.admission is immutable while it is set, but for topologyAssignment and delayedTopologyRequest"
            ),
        ),
        Validation(
            expression=(
                f"{reclaimable} == {reclaimable_before} || "
                f"{reclaimable}.all(r, {_IS_POD_SET.format('r', ' && r.count <= p.count')})"
            ),
            message="status.reclaimablePods must name pod sets of the workload and at most all of their pods",
        ),
        Validation(
            expression=(
                f"{reclaimable} == {reclaimable_before} || !({_NOW}) || !({_BEFORE}) || "
                f"{annotation(names.ELASTIC_JOB)} == 'true' || "
                f"{reclaimable_before}.all(o, {reclaimable}.exists(r, r.name == o.name && r.count >= o.count))"
            ),
            message="status.reclaimablePods may only grow while quota is reserved",
        ),
        Validation(
            expression=(
                f"{checks} == {checks_before} || "
                f"{checks}.all(c, c.?podSetUpdates.orValue([]).all(u, {_IS_POD_SET.format('u', '')}))"
            ),
            message="podSetUpdates of status.admissionChecks must name pod sets of the workload",
        ),
        Validation(
            expression=(
                f"{checks} == {checks_before} || "
                f"{checks}.all(c, c.state != 'Ready' || {checks_before}.all(o, o.name != c.name || "
                "o.state != 'Ready' || o.?podSetUpdates.orValue([]) == c.?podSetUpdates.orValue([])))"
            ),
            message="podSetUpdates are immutable while their admission check stays Ready",
        ),
        Validation(
            expression=(
                "!object.?status.?clusterName.hasValue() || "
                "object.?status.?clusterName == oldObject.?status.?clusterName || "
                f"{annotation(names.WORKLOAD_SLICE_REPLACEMENT_FOR)} != '' || "
                f"object.status.clusterName in {_list('oldObject', 'nominatedClusterNames')}"
            ),
            message="status.clusterName must be one of status.nominatedClusterNames",
        ),
    ]
