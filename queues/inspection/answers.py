"""The answers to people's questions, as data that goes into JSON: queues, what waits, one workload, usage, decisions.

They are made from the read model, for the REST endpoints, the pages and the command line alike, so that all say the
same. What a caller may not see comes in as `Scope` and is left out here; nothing here asks who the caller is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from queues.inspection import domains
from queues.inspection.quantities import idle_to_lend, unit
from queues.journal import read
from queues.journal.entries import Kind, LocalQueueRow, PodSetRow, QuotaRow, WorkloadRow, WorkloadState
from queues.journal.usage import By, UsageTotal, usage

Json = dict[str, Any]

#: How many of those ahead of a workload are listed.
LISTED_AHEAD = 20
#: And of those that were evicted for one.
LISTED_DISPLACED = 50
#: What an item of use calls the team.
TEAM = {By.QUEUE: "clusterQueue", By.NAMESPACE: "namespace"}


@dataclass(frozen=True, slots=True)
class Scope:
    """What is shown: everything, or what belongs to one namespace.

    Without `unrestricted`, the quotas of ClusterQueues are left out, and workloads of other namespaces show as sizes
    without names.
    """

    namespace: str | None = None
    unrestricted: bool = True


EVERYTHING = Scope()


# ------------------------------------------------------------------ endpoints


def queues(connection: Connection, now: float, scope: Scope = EVERYTHING) -> Json:
    if scope.namespace is None:
        return {
            "freshness": freshness(connection, now),
            "items": [_queue(o, now, scope) for o in read.queues(connection)],
        }
    mine = read.local_queues(connection, namespace=scope.namespace)
    overviews = read.queues(connection, {q.cluster_queue for q in mine}, namespace=scope.namespace)
    return {
        "freshness": freshness(connection, now),
        "items": [_queue(o, now, scope, [q for q in mine if q.cluster_queue == o.queue.name]) for o in overviews],
    }


def queue(connection: Connection, name: str, now: float) -> Json | None:
    """One ClusterQueue with its LocalQueues; None where there is none."""
    for found in read.queues(connection, [name]):
        mine = read.local_queues(connection, cluster_queue=name)
        return {"freshness": freshness(connection, now), **_queue(found, now, EVERYTHING, mine)}
    return None


def pending(
    connection: Connection, name: str, now: float, *, limit: int, offset: int, scope: Scope = EVERYTHING
) -> Json | None:
    """A page of what waits in a ClusterQueue, in order; None where there is none."""
    if not read.has_queue(connection, name):
        return None
    found = read.pending(connection, name, namespace=scope.namespace, limit=limit, offset=offset)
    total = read.count_pending(connection, name, namespace=scope.namespace)
    return {"freshness": freshness(connection, now), **_page(total, offset, [_waiting(p, now) for p in found])}


def explain(connection: Connection, namespace: str, name: str, now: float, scope: Scope = EVERYTHING) -> Json | None:
    """A workload by its own or its Job's name: where it stands and why, who is ahead, and how it came there.

    For one that is gone, what is remembered of it; None for one that was never known.
    """
    live = read.workload(connection, namespace, name)
    if live is not None:
        history = read.decisions(connection, read.DecisionFilter(workload=live.uid), limit=200)
    else:
        history = read.decisions(connection, read.DecisionFilter(namespace=namespace, name=name), limit=200)
        history = [r for r in history if r.decision.workload == history[0].decision.workload]
        if not history:
            return None
    answer: Json = {"freshness": freshness(connection, now), "namespace": namespace}
    if live is None:
        last = history[0].decision
        answer |= {"name": last.name, "uid": last.workload, "state": "gone", "reason": _reason_of(last)}
    else:
        answer |= _workload(live, now)
        answer["position"], answer["ahead"] = _place(connection, live, now, scope)
        answer["podSets"] = [_pod_set(pod_set) for pod_set in live.pod_sets]
        answer["closest"] = _closest(connection, live, scope)
    causes = _known_causes(connection, history, scope)
    answer["timeline"] = [_event(r, causes) for r in reversed(history)]
    answer["displaced"] = _displaced(connection, answer["uid"], scope)
    return answer


def workloads(
    connection: Connection,
    now: float,
    *,
    beginning: str = "",
    cluster_queue: str | None = None,
    state: WorkloadState | None = None,
    limit: int,
    offset: int = 0,
    scope: Scope = EVERYTHING,
) -> Json:
    """Live workloads, the newest first, by the beginning of their own or their Job's name."""
    found, total = read.workloads(
        connection,
        namespace=scope.namespace,
        cluster_queue=cluster_queue,
        state=state,
        beginning=beginning,
        limit=limit,
        offset=offset,
    )
    return {"freshness": freshness(connection, now), **_page(total, offset, [_workload(row, now) for row in found])}


def usage_between(
    connection: Connection, since: float, until: float, now: float, *, by: By, scope: Scope = EVERYTHING
) -> Json:
    totals = usage(connection, since, until, by=by, now=now, namespace=scope.namespace)
    return {
        "freshness": freshness(connection, now),
        "from": timestamp(since),
        "to": timestamp(min(until, now)),
        "items": [held(total, by) for total in totals],
    }


def held(total: UsageTotal, by: By) -> Json:
    """Resource-hours: thousandths of cpu count as cores."""
    return {
        TEAM[by]: total.key,
        "flavor": total.flavor,
        "resource": total.resource,
        "hours": round(total.amount_seconds / 3600 / (1000 if unit(total.resource) == "milli" else 1), 6),
        "workloads": total.workloads,
    }


def decisions(connection: Connection, wanted: read.DecisionFilter, now: float, *, limit: int) -> Json:
    found = read.decisions(connection, wanted, limit=limit)
    return {
        "freshness": freshness(connection, now),
        "next": found[-1].id if len(found) == limit else None,
        "items": [
            {
                "id": r.id,
                "namespace": r.decision.namespace,
                "name": r.decision.name,
                "uid": r.decision.workload,
                **_event(r, {}),
            }
            for r in found
        ],
    }


# ------------------------------------------------------------------ parts


def freshness(connection: Connection, now: float) -> Json:
    """How old this is; `droppedEntries` above 0 means that history has gaps."""
    fresh = read.freshness(connection)
    if fresh is None:
        return {"asOf": None, "ageSeconds": None, "droppedEntries": 0}
    return {
        "asOf": timestamp(fresh.written_at),
        "ageSeconds": waited(fresh.written_at, now),
        "droppedEntries": fresh.dropped,
    }


def timestamp(at: float) -> str:
    """RFC 3339 in UTC, to the millisecond where it has any."""
    moment = datetime.fromtimestamp(at, UTC)
    precision = "milliseconds" if moment.microsecond else "seconds"
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def overview(found: read.QueueOverview, now: float) -> Json:
    """One ClusterQueue as everybody sees it who may see all."""
    return _queue(found, now, EVERYTHING)


def waited(since: float, now: float) -> float:
    """Seconds, to a tenth; clocks may differ."""
    return round(max(0.0, now - since), 1)


def _page(total: int, offset: int, items: list[Json]) -> Json:
    end = offset + len(items)
    return {"total": total, "offset": offset, "next": end if end < total else None, "items": items}


def _queue(
    found: read.QueueOverview,
    now: float,
    scope: Scope,
    local_queues: Sequence[LocalQueueRow] | None = None,
) -> Json:
    row = found.queue
    answer: Json = {
        "name": row.name,
        "cohort": row.cohort or None,
        "strategy": row.strategy,
        "stopPolicy": row.stop_policy,
        "active": row.active,
        "reason": row.reason,
        "message": row.message,
        "counts": {state.value: found.counts[state] for state in WorkloadState},
        "pendingByReason": {code or "PendingEvaluation": n for code, n in found.pending_by_reason.items()},
        "longestWaitSeconds": None if found.oldest_pending is None else waited(found.oldest_pending, now),
    }
    if scope.unrestricted:
        answer["quotas"] = [_quota(quota) for quota in row.quotas]
    if local_queues is not None:
        answer["localQueues"] = [
            {"namespace": q.namespace, "name": q.name, "active": q.active, "reason": q.reason, "message": q.message}
            for q in local_queues
        ]
    return answer


def _quota(quota: QuotaRow) -> Json:
    return {
        "flavor": quota.flavor,
        "resource": quota.resource,
        "unit": unit(quota.resource),
        "nominal": quota.nominal,
        "borrowingLimit": quota.borrowing_limit,
        "lendingLimit": quota.lending_limit,
        "reserved": quota.reserved,
        "admitted": quota.admitted,
        "borrowed": quota.borrowed,
        "idleToLend": idle_to_lend(quota),
    }


def _workload(row: WorkloadRow, now: float) -> Json:
    owner = row.owners[0] if row.owners else None
    return {
        "namespace": row.namespace,
        "name": row.name,
        "uid": row.uid,
        "owner": None if owner is None else {"kind": owner.kind, "apiVersion": owner.api_version, "name": owner.name},
        "localQueue": row.local_queue,
        "clusterQueue": row.cluster_queue or None,
        "priority": row.priority,
        "state": row.state.value,
        "evicted": row.evicted,
        "createdAt": timestamp(row.created_at),
        "queuedAt": timestamp(row.queued_at),
        "stateSince": timestamp(row.state_since),
        "stateSeconds": waited(row.state_since, now),
        "pods": row.pods,
        "requests": _requests(row.requests),
        "flavors": dict(row.flavors),
        "reason": {
            "code": row.code or None,
            "message": row.message,
            "remedy": row.remedy,
            "shortages": [{**s, "unit": unit(str(s.get("resource", "")))} for s in row.shortages],
            "facts": dict(row.facts),
        },
    }


def _waiting(place: read.Pending, now: float) -> Json:
    return {
        "positionInClusterQueue": place.in_cluster_queue,
        "positionInLocalQueue": place.in_local_queue,
        **_workload(place.workload, now),
    }


def _place(connection: Connection, row: WorkloadRow, now: float, scope: Scope) -> tuple[Json | None, list[Json]]:
    place = read.place(connection, row)
    if place is None:
        return None, []
    listed = min(place.in_cluster_queue, LISTED_AHEAD)
    ahead = read.pending(connection, row.cluster_queue, limit=listed) if listed else []
    position = {"inClusterQueue": place.in_cluster_queue, "inLocalQueue": place.in_local_queue}
    return position, [_ahead(p, now, scope) for p in ahead]


def _pod_set(row: PodSetRow) -> Json:
    return {
        "name": row.name,
        "count": row.count,
        "requests": _requests(row.requests),
        "closeness": row.closeness or None,
        "level": row.level or None,
        "flavors": dict(row.flavors),
        "levels": list(row.levels),
        "domains": [{"values": list(values), "pods": pods} for values, pods in row.domains],
    }


def _closest(connection: Connection, row: WorkloadRow, scope: Scope) -> list[Json]:
    if row.state is not WorkloadState.PENDING:
        return []
    flavors = read.flavors_of(connection, row.cluster_queue)
    return domains.closest(connection, row.pod_sets, flavors, unrestricted=scope.unrestricted)


def _displaced(connection: Connection, uid: str, scope: Scope) -> list[Json]:
    """Who was evicted for it, the latest first: names for those who may see them."""
    found = read.decisions(connection, read.DecisionFilter(cause=uid, kind=Kind.PREEMPTED), limit=LISTED_DISPLACED)
    answer = []
    for each in (recorded.decision for recorded in found):
        named = scope.unrestricted or each.namespace == scope.namespace
        answer.append(
            {
                "at": timestamp(each.at),
                "namespace": each.namespace if named else None,
                "name": each.name if named else None,
                "clusterQueue": each.cluster_queue if named else None,
                "code": each.code or None,
            }
        )
    return answer


def _ahead(place: read.Pending, now: float, scope: Scope) -> Json:
    """Its size for everyone, its name for those who may see it."""
    row = place.workload
    named = scope.unrestricted or row.namespace == scope.namespace
    return {
        "positionInClusterQueue": place.in_cluster_queue,
        "namespace": row.namespace if named else None,
        "name": row.name if named else None,
        "priority": row.priority,
        "pods": row.pods,
        "requests": _requests(row.requests),
        "waitingSeconds": waited(row.state_since, now),
        "code": row.code or None,
    }


def _event(recorded: read.Recorded, causes: Mapping[str, tuple[str, str]]) -> Json:
    decision = recorded.decision
    cause = causes.get(decision.cause)
    return {
        "at": timestamp(decision.at),
        "kind": decision.kind.value,
        "clusterQueue": decision.cluster_queue or None,
        "localQueue": decision.local_queue or None,
        **_reason_of(decision),
        "cause": None
        if not decision.cause
        else {"uid": decision.cause, "namespace": cause[0] if cause else None, "name": cause[1] if cause else None},
    }


def _reason_of(decision: Any) -> Json:
    return {
        "code": decision.code or None,
        "message": decision.message,
        "remedy": decision.remedy,
        "facts": dict(decision.facts),
    }


def _known_causes(connection: Connection, history: Iterable[read.Recorded], scope: Scope) -> dict[str, tuple[str, str]]:
    uids = {r.decision.cause for r in history if r.decision.cause}
    found = read.names(connection, uids) if uids else {}
    return {uid: named for uid, named in found.items() if scope.unrestricted or named[0] == scope.namespace}


def _requests(requests: Mapping[str, int]) -> list[Json]:
    return [{"resource": name, "unit": unit(name), "amount": requests[name]} for name in sorted(requests)]
