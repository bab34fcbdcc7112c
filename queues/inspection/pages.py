"""The pages: overview, cohorts, a queue, a workload and why it waits, the topology, and use over time.

They show what the answers of the JSON endpoints say, to the same callers, and load nothing from anywhere but their own
address. A small script puts fresh content in place; without scripts pages reload themselves. They must never show what
the caller may not see.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flask import Blueprint, make_response, render_template, request, url_for
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response

from queues.inspection import answers, cohorts, consumption, drawings, parameters, topology, words
from queues.inspection.access import ReviewError
from queues.inspection.quantities import by_resource, is_device
from queues.inspection.source import ALL_QUEUES, Source, one_queue, workloads_of
from queues.journal import read
from queues.journal.entries import WorkloadState

Json = dict[str, Any]

REFRESH_SECONDS = 5
#: A read model that no one wrote for this long is shown as old.
OLD_SECONDS = 60
#: Rows of a page of a list, and of what happened lately.
PAGE, LATELY = 50, 8
#: Resources with a figure of their own on the overview.
SHOWN = 2
#: Hosts that are drawn one by one at once; where there are more, a domain has to be chosen.
MOST_HOSTS = 2_000
MONTH = 30 * consumption.DAY

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
ASSETS = Path(__file__).parent / "assets"
TYPES = {"muster.css": "text/css", "muster.js": "text/javascript", "muster.svg": "image/svg+xml"}
#: Changes with the files, so that they may be kept.
VERSION = hashlib.sha256(b"".join((ASSETS / name).read_bytes() for name in sorted(TYPES))).hexdigest()[:12]


def pages(source: Source, name: str) -> Blueprint:
    blueprint = Blueprint(name, __name__, template_folder="templates")
    _of_queues(blueprint, source)
    _of_workloads(blueprint, source)
    _of_resources(blueprint, source)

    @blueprint.get("/assets/<file>")
    def asset(file: str) -> Response:
        if file not in TYPES:
            raise NotFound("there is no such file")
        response = make_response((ASSETS / file).read_bytes())
        response.headers["Content-Type"] = f"{TYPES[file]}; charset=utf-8"
        response.headers["Cache-Control"] = "private, max-age=86400"
        return response

    return blueprint


def _of_queues(blueprint: Blueprint, source: Source) -> None:
    @blueprint.get("/")
    @blueprint.get("")
    def overview() -> Response:
        parameters.known(request.args, {"namespace"})
        namespace = parameters.text(request.args, "namespace")
        scope = source.scope(ALL_QUEUES, namespace)
        with source.engine.connect() as connection:
            answer = answers.queues(connection, source.clock(), scope)
            lately = _lately(connection, source, scope)
        items = answer["items"]
        totals = by_resource(quota for queue in items for quota in queue.get("quotas", ()))
        resources = [total for total in totals if is_device(total["resource"])] or totals
        return _page(
            source,
            "overview.html",
            namespace,
            freshness=answer["freshness"],
            groups=_by_cohort(items),
            resources=resources[:SHOWN],
            devices=[total["resource"] for total in resources if is_device(total["resource"])],
            reasons=_reasons(items),
            counts={state.value: sum(queue["counts"][state.value] for queue in items) for state in WorkloadState},
            longest=max(
                (queue for queue in items if queue["longestWaitSeconds"] is not None),
                key=lambda queue: queue["longestWaitSeconds"],
                default=None,
            ),
            lately=lately,
        )

    @blueprint.get("/cohorts")
    def tree() -> Response:
        parameters.known(request.args, ())
        source.require(ALL_QUEUES)
        with source.engine.connect() as connection:
            answer = cohorts.tree(connection, source.clock())
        return _page(source, "cohorts.html", None, **answer)

    @blueprint.get("/queues/<queue>")
    def one(queue: str) -> Response:
        parameters.known(request.args, {"namespace", "offset"})
        namespace = parameters.text(request.args, "namespace")
        offset = parameters.offset(request.args)
        scope = source.scope(one_queue(queue), namespace)
        now = source.clock()
        with source.engine.connect() as connection:
            found = (
                answers.queue(connection, queue, now)
                if scope.unrestricted
                else next((o for o in answers.queues(connection, now, scope)["items"] if o["name"] == queue), None)
            )
            waiting = answers.pending(connection, queue, now, limit=PAGE, offset=offset, scope=scope)
            if found is None or waiting is None:
                raise NotFound(f"there is no ClusterQueue {queue!r}")
            sees_all = source.allows(ALL_QUEUES)
            running = (
                answers.workloads(
                    connection, now, cluster_queue=queue, state=WorkloadState.ADMITTED, limit=PAGE, scope=scope
                )
                if sees_all or not scope.unrestricted
                else None
            )
            lately = _lately(connection, source, scope, queue) if sees_all else []
        return _page(
            source,
            "queue.html",
            namespace,
            freshness=waiting["freshness"],
            queue=found,
            waiting=waiting,
            running=running,
            lately=lately,
            reasons=_reasons([found]),
        )


def _of_workloads(blueprint: Blueprint, source: Source) -> None:
    @blueprint.get("/workloads")
    def workloads() -> Response:
        query = request.args
        parameters.known(query, {"namespace", "queue", "state", "name", "offset"})
        given = {name: value for name, value in query.items() if value}
        namespace = parameters.text(given, "namespace")
        scope = source.scope(ALL_QUEUES, namespace)
        asked: Json = {
            "beginning": parameters.text(given, "name") or "",
            "cluster_queue": parameters.text(given, "queue"),
            "state": parameters.choice(given, "state", WorkloadState, None),
        }
        offset = parameters.offset(given)
        with source.engine.connect() as connection:
            answer = answers.workloads(connection, source.clock(), **asked, limit=PAGE, offset=offset, scope=scope)
        return _page(source, "workloads.html", namespace, **answer, asked=given)

    @blueprint.get("/workloads/<of>/<workload>")
    def explain(of: str, workload: str) -> Response:
        parameters.known(request.args, {"namespace"})
        source.require(workloads_of(of))
        scope = answers.Scope(of, unrestricted=source.allows(ALL_QUEUES))
        with source.engine.connect() as connection:
            found = answers.explain(connection, of, workload, source.clock(), scope)
        if found is None:
            raise NotFound(f"no workload or Job {workload!r} is known in namespace {of!r}")
        return _page(
            source,
            "workload.html",
            parameters.text(request.args, "namespace") or (None if scope.unrestricted else of),
            freshness=found["freshness"],
            workload=found,
            life=drawings.life(found["timeline"], source.clock()),
        )


def _of_resources(blueprint: Blueprint, source: Source) -> None:
    @blueprint.get("/topology")
    def of_flavor() -> Response:
        parameters.known(request.args, topology.PARAMETERS)
        source.require(ALL_QUEUES)
        answer = topology.asked_for(source, request.args)
        if answer is None:
            raise NotFound("there is no such flavor or domain")
        all_hosts = topology.hosts(answer) <= MOST_HOSTS
        return _page(source, "topology.html", None, **answer, all_hosts=all_hosts, holes=topology.holes(answer))

    @blueprint.get("/usage")
    def usage() -> Response:
        query = request.args
        parameters.known(query, consumption.PARAMETERS | {"resource"})
        given = {name: value for name, value in query.items() if value}
        now = source.clock()
        asked = consumption.question(given, now, last=MONTH)
        scope = source.scope(ALL_QUEUES, asked.namespace)
        step = asked.step or consumption.fitting_step(asked.since, asked.until)
        since, until, by = asked.since, asked.until, asked.by
        with source.engine.connect() as connection:
            answer = consumption.over_time(connection, since, until, now, step=step, by=by, scope=scope)
        items = answer.pop("items")
        resources = sorted({item["resource"] for item in items}, key=lambda name: (not is_device(name), name))
        resource = parameters.text(given, "resource") or next(iter(resources), None)
        shown = [item for item in items if item["resource"] == resource]
        return _page(
            source,
            "usage.html",
            asked.namespace,
            **answer,
            by=by.value,
            resources=resources,
            resource=resource,
            chart=drawings.chart(consumption.steps(answer), shown, answers.TEAM[by]),
            rows=consumption.summed(shown, by),
            given=given,
            csv={"namespace": asked.namespace, "from": answers.timestamp(since), "to": given.get("to")},
            stamp=answers.timestamp,
            answer_from=answer["from"],
            span=until - since,
        )

    @blueprint.get("/usage.csv")
    def usage_csv() -> Response:
        parameters.known(request.args, consumption.PARAMETERS)
        return consumption.download(consumption.asked_for(source, request.args))


def problem(source: Source, code: int, title: str, message: str) -> Response:
    """A page for what could not be answered; says the same as the JSON endpoints."""
    response = _page(source, "problem.html", request.args.get("namespace"), code=code, title=title, message=message)
    response.status_code = code
    return response


# ------------------------------------------------------------------ parts


def _page(source: Source, template: str, namespace: str | None, **values: Any) -> Response:
    now = source.clock()
    freshness = values.setdefault("freshness", None)
    # There is none where there is no such path.
    of = request.blueprint or "pages"

    def link(endpoint: str, **parts: Any) -> str:
        """Within the pages; a namespace that was chosen stays so."""
        kept = {"namespace": namespace} if namespace and endpoint not in {"asset", "tree", "of_flavor"} else {}
        return url_for(f"{of}.{endpoint}", **{**kept, **{k: v for k, v in parts.items() if v not in {None, ""}}})

    page = render_template(
        template,
        **values,
        namespace=namespace,
        link=link,
        everything=url_for(f"{of}.overview"),
        now=now,
        version=VERSION,
        refresh=REFRESH_SECONDS,
        is_old=freshness is not None and is_old(freshness),
        sees_all=_sees_all(source),
        words=words,
        drawings=drawings,
        is_device=is_device,
        by_resource=by_resource,
    )
    response = make_response(page)
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def _sees_all(source: Source) -> bool:
    """Whether links to what is cluster-wide are of any use."""
    try:
        return source.allows(ALL_QUEUES)
    except (ReviewError, AttributeError):  # a problem page may be for a caller who is not known yet
        return False


def is_old(freshness: Mapping[str, Any]) -> bool:
    age = freshness["ageSeconds"]
    return age is None or age > OLD_SECONDS


def _by_cohort(items: list[Json]) -> list[tuple[str | None, list[Json]]]:
    names = sorted({queue["cohort"] or "" for queue in items}, key=lambda name: (not name, name))
    return [(name or None, [queue for queue in items if (queue["cohort"] or "") == name]) for name in names]


def _reasons(items: list[Json]) -> list[drawings.Part]:
    counted: dict[str, int] = {}
    for queue in items:
        for code, count in queue["pendingByReason"].items():
            counted[code] = counted.get(code, 0) + count
    return drawings.parts(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def _lately(connection: Any, source: Source, scope: answers.Scope, queue: str = "") -> list[Json]:
    wanted = read.DecisionFilter(namespace=scope.namespace or "", cluster_queue=queue)
    found: list[Json] = answers.decisions(connection, wanted, source.clock(), limit=LATELY)["items"]
    return found
