"""The JSON endpoints: reads the parameters, asks for the right, and hands on to `answers`.

`docs/inspection.md` and `openapi` describe them; a test keeps all three together. It must never make an answer itself.
"""

from __future__ import annotations

from flask import Blueprint, jsonify, request
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response

from queues.inspection import answers, cohorts, consumption, parameters, topology
from queues.inspection.openapi import document
from queues.inspection.source import ALL_QUEUES, Source, one_queue, workloads_of
from queues.journal import read
from queues.journal.entries import Kind, WorkloadState

PAGE, LONGEST_PAGE = 100, 1_000


def endpoints(source: Source, name: str) -> Blueprint:
    """`name` is the blueprint's, which differs for each place where the endpoints are served."""
    blueprint = Blueprint(name, __name__)
    _of_queues(blueprint, source)
    _of_workloads(blueprint, source)
    _of_resources(blueprint, source)

    @blueprint.get("/openapi.json")
    def openapi() -> Response:
        return jsonify(document(request.path.removesuffix("/openapi.json")))

    return blueprint


def _of_queues(blueprint: Blueprint, source: Source) -> None:
    @blueprint.get("/queues")
    def queues() -> Response:
        parameters.known(request.args, {"namespace"})
        scope = source.scope(ALL_QUEUES, parameters.text(request.args, "namespace"))
        with source.engine.connect() as connection:
            return jsonify(answers.queues(connection, source.clock(), scope))

    @blueprint.get("/queues/<queue>")
    def one(queue: str) -> Response:
        parameters.known(request.args, ())
        source.require(one_queue(queue))
        with source.engine.connect() as connection:
            found = answers.queue(connection, queue, source.clock())
        return _found(found, f"there is no ClusterQueue {queue!r}")

    @blueprint.get("/queues/<queue>/pending")
    def pending(queue: str) -> Response:
        parameters.known(request.args, {"limit", "offset", "namespace"})
        limit = parameters.integer(request.args, "limit", default=PAGE, low=1, high=LONGEST_PAGE)
        offset = parameters.offset(request.args)
        scope = source.scope(one_queue(queue), parameters.text(request.args, "namespace"))
        with source.engine.connect() as connection:
            found = answers.pending(connection, queue, source.clock(), limit=limit, offset=offset, scope=scope)
        return _found(found, f"there is no ClusterQueue {queue!r}")

    @blueprint.get("/cohorts")
    def all_cohorts() -> Response:
        parameters.known(request.args, ())
        source.require(ALL_QUEUES)
        with source.engine.connect() as connection:
            return jsonify(cohorts.tree(connection, source.clock()))


def _of_workloads(blueprint: Blueprint, source: Source) -> None:
    @blueprint.get("/workloads/<namespace>/<workload>")
    def explain(namespace: str, workload: str) -> Response:
        parameters.known(request.args, ())
        source.require(workloads_of(namespace))
        scope = answers.Scope(namespace, unrestricted=source.allows(ALL_QUEUES))
        with source.engine.connect() as connection:
            found = answers.explain(connection, namespace, workload, source.clock(), scope)
        return _found(found, f"no workload or Job {workload!r} is known in namespace {namespace!r}")

    @blueprint.get("/workloads")
    def workloads() -> Response:
        query = request.args
        parameters.known(query, {"namespace", "queue", "state", "name", "limit", "offset"})
        limit = parameters.integer(query, "limit", default=PAGE, low=1, high=LONGEST_PAGE)
        offset = parameters.offset(query)
        scope = source.scope(ALL_QUEUES, parameters.text(query, "namespace"))
        with source.engine.connect() as connection:
            found = answers.workloads(
                connection,
                source.clock(),
                beginning=parameters.text(query, "name") or "",
                cluster_queue=parameters.text(query, "queue"),
                state=parameters.choice(query, "state", WorkloadState, None),
                limit=limit,
                offset=offset,
                scope=scope,
            )
        return jsonify(found)

    @blueprint.get("/decisions")
    def decisions() -> Response:
        query = request.args
        parameters.known(query, {"namespace", "name", "uid", "queue", "kind", "since", "until", "before", "limit"})
        limit = parameters.integer(query, "limit", default=PAGE, low=1, high=LONGEST_PAGE)
        before = parameters.integer(query, "before", default=0, low=1, high=parameters.LARGEST)
        wanted = read.DecisionFilter(
            workload=parameters.text(query, "uid") or "",
            namespace=parameters.text(query, "namespace") or "",
            name=parameters.text(query, "name") or "",
            cluster_queue=parameters.text(query, "queue") or "",
            kind=parameters.choice(query, "kind", Kind, None),
            since=parameters.moment(query, "since"),
            until=parameters.moment(query, "until"),
            before=before or None,
        )
        source.scope(ALL_QUEUES, wanted.namespace or None)
        with source.engine.connect() as connection:
            return jsonify(answers.decisions(connection, wanted, source.clock(), limit=limit))


def _of_resources(blueprint: Blueprint, source: Source) -> None:
    @blueprint.get("/topology")
    def of_flavor() -> Response:
        parameters.known(request.args, topology.PARAMETERS)
        source.require(ALL_QUEUES)
        return _found(topology.asked_for(source, request.args), "there is no such flavor or domain")

    @blueprint.get("/usage")
    def usage() -> Response:
        parameters.known(request.args, consumption.PARAMETERS)
        return jsonify(consumption.asked_for(source, request.args))

    @blueprint.get("/usage.csv")
    def usage_csv() -> Response:
        parameters.known(request.args, consumption.PARAMETERS)
        return consumption.download(consumption.asked_for(source, request.args))


def _found(answer: answers.Json | None, otherwise: str) -> Response:
    if answer is None:
        raise NotFound(otherwise)
    return jsonify(answer)
