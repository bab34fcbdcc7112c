"""Puts the inspection server together: every path, who may use it, and how a refusal or a failure looks.

`/healthz` is open; for everything else the caller has to be known before the path is even looked at. It must never
answer from anything but the journal's database.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from http import HTTPStatus

from flask import Blueprint, Flask, Response, g, jsonify, request
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from werkzeug.wrappers import Response as AnyResponse

from queues.inspection import discovery, pages, rest, visibility
from queues.inspection.access import Authorizer, ReviewError, UnauthenticatedError
from queues.inspection.openapi import document
from queues.inspection.parameters import ParameterError, is_name
from queues.inspection.problems import ForbiddenError, as_status, problem
from queues.inspection.source import Source

log = logging.getLogger("muster.inspection")

#: The same endpoints through the API server: `kubectl get --raw`, or a browser through `kubectl proxy`.
AGGREGATED = f"/apis/{discovery.INSPECTION}"
PAGES = {"pages": "/", "aggregated_pages": f"{AGGREGATED}/page"}


def create_app(engine: Engine, authorizer: Authorizer, *, clock: Callable[[], float] = time.time) -> Flask:
    """`engine` reads the journal's database (`queues.journal.database.open_database`)."""
    app = Flask("muster.inspection", root_path=__file__.rpartition("/")[0], static_folder=None)
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.url_map.redirect_defaults = False
    source = Source(engine, authorizer, clock)

    @app.get("/healthz")
    def healthz() -> str:
        return "ok"

    @app.get("/openapi.json")
    def description() -> AnyResponse:
        return jsonify(document("/api/v1"))

    @app.before_request
    def _who() -> None:
        if request.path != "/healthz":
            g.user = authorizer.authenticate(request.environ)
            if any(not is_name(value) for value in (request.view_args or {}).values()):
                raise NotFound

    for name, prefix in (("direct", "/api/v1"), ("aggregated", AGGREGATED)):
        app.register_blueprint(rest.endpoints(source, name), url_prefix=prefix)
    for name, prefix in PAGES.items():
        app.register_blueprint(pages.pages(source, name), url_prefix=prefix)
    app.register_blueprint(visibility.endpoints(source))
    app.register_blueprint(discovery.endpoints(source))
    _answer_failures(app, source)

    @app.after_request
    def _headers(response: Response) -> Response:
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    return app


def _is_page() -> bool:
    """Whether a person is looking: at a page, or in a browser for one that is not there."""
    if request.blueprint is None:
        named = set(request.accept_mimetypes.values())  # programs take anything
        return "text/html" in named and not request.path.startswith(("/api", "/openapi"))
    return request.blueprint in PAGES and not request.path.endswith(".csv")


def _answer_failures(app: Flask | Blueprint, source: Source) -> None:
    def answer(code: int, message: str, *, parameter: str | None = None, reason: str = "") -> AnyResponse:
        if _is_page():
            return finished(pages.problem(source, code, HTTPStatus(code).phrase, message), code)
        body = (
            as_status(code, message, reason)
            if request.path.startswith(("/apis", "/openapi/"))
            else problem(code, message, parameter)
        )
        response = jsonify(body)
        response.status_code = code
        return finished(response, code)

    def finished(response: AnyResponse, code: int) -> AnyResponse:
        if code == 401:
            response.headers["WWW-Authenticate"] = 'Bearer realm="muster"'
        if code == 503:
            response.headers["Retry-After"] = "5"
        return response

    @app.errorhandler(UnauthenticatedError)
    def _unauthenticated(_: UnauthenticatedError) -> AnyResponse:
        return answer(401, "the caller is not known: send a bearer token, or come through the API server")

    @app.errorhandler(ForbiddenError)
    def _forbidden(error: ForbiddenError) -> AnyResponse:
        return answer(403, str(error))

    @app.errorhandler(ParameterError)
    def _parameter(error: ParameterError) -> AnyResponse:
        return answer(400, str(error), parameter=error.parameter)

    @app.errorhandler(ReviewError)
    def _unreviewed(error: ReviewError) -> AnyResponse:
        log.warning("the API server could not be asked about a caller: %s", error)
        return answer(503, "the API server could not be asked who the caller is and what they may see")

    @app.errorhandler(SQLAlchemyError)
    def _database(error: SQLAlchemyError) -> AnyResponse:
        log.error("the journal's database cannot be read: %s", error)
        return answer(503, "the journal's database cannot be read; has it been made with `muster migrate`?")

    @app.errorhandler(HTTPException)
    def _http(error: HTTPException) -> AnyResponse:
        is_path = isinstance(error, NotFound) and error.description == NotFound.description
        message = "there is no such path" if is_path else str(error.description)
        response = answer(error.code or 500, message)
        if isinstance(error, MethodNotAllowed):
            response.headers["Allow"] = ", ".join(sorted(error.valid_methods or ()))
        return response

    @app.errorhandler(Exception)
    def _bug(error: Exception) -> AnyResponse:
        log.error("a request failed: %s %s", request.method, request.path, exc_info=error)
        return answer(500, "an unexpected failure; the server's log has it")
