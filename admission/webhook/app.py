"""The Flask application: a review in, an answer out, for every kind that has a path.

It decides nothing itself: the envelope is read by `review`, the object judged by its kind's handler. Whatever comes
in, the answer is a review or an error that says what was wrong with the request; a fault of Muster's own refuses the
object and is logged, since what nobody has judged must not pass.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from admission import telemetry
from admission.api import names, v1beta1
from admission.settings import Settings
from admission.webhook import conversion, kinds, review
from admission.webhook.context import Caches, Context, Rules
from admission.webhook.handling import Kind, mutated, validated

logger = logging.getLogger(__name__)

#: The API server takes requests of 3 MiB, and an update's review carries the object twice.
LARGEST_BODY: Final = 16 * 1024 * 1024
_JSON: Final = "application/json"


def create_app(settings: Settings, caches: Caches) -> Flask:
    """The application; `caches` are read, never waited for."""
    app = Flask("muster-webhook", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_BODY
    rules = Rules.of(settings)
    is_traced = bool(settings.muster.tracing.endpoint)

    def judge_with(judge: Callable[[Kind[Any], Context], review.Response], kind: Kind[Any]) -> Callable[[], Response]:
        def answer() -> Response:
            began = time.time()
            asked = _asked()
            stamp = partial(_stamp, began) if is_traced else dict
            return _answered(asked, _judged(judge, kind, Context(rules, caches, asked, stamp)))

        return answer

    def convert() -> Response:
        return Response(conversion.answer(_body()), mimetype=_JSON)

    def let_through() -> Response:
        return _answered(_asked(), review.allowed())

    for kind in kinds.answered(rules):
        for verb, judge in (("mutate", mutated), ("validate", validated)):
            path = kinds.path(verb, kind.gvk)
            app.add_url_rule(path, path, judge_with(judge, kind), methods=["POST"])
    for gvk in kinds.let_through(rules):
        for verb in ("mutate", "validate"):
            path = kinds.path(verb, gvk)
            app.add_url_rule(path, path, let_through, methods=["POST"])
    # Always: a CRD that still points here after a change of the settings must not be left without an answer.
    app.add_url_rule(v1beta1.CONVERSION_PATH, v1beta1.CONVERSION_PATH, convert, methods=["POST"])
    app.register_error_handler(review.NotAReview, _not_a_review)
    app.register_error_handler(HTTPException, _refused)
    return app


def _stamp(began: float) -> dict[str, str]:
    return {names.REVIEWED: telemetry.stamp(began)}


def _asked() -> review.Request:
    return review.read(_body())


def _body() -> bytes:
    if request.mimetype != _JSON:
        raise review.NotAReview(f"the content type is {request.mimetype[:100] or 'not given'}, not {_JSON}")
    try:
        return request.get_data(cache=False)
    except RequestEntityTooLarge:
        raise
    except (HTTPException, OSError) as error:
        raise review.NotAReview(f"the body did not arrive: {error}") from error


def _judged(
    judge: Callable[[Kind[Any], Context], review.Response], kind: Kind[Any], context: Context
) -> review.Response:
    asked = context.request
    try:
        response = judge(kind, context)
    except Exception:  # whatever it is, the object was not judged, and the API server needs an answer
        logger.exception(
            "a review failed",
            extra={"kind": kind.gvk.kind, "namespace": asked.namespace, "object": asked.name, "uid": asked.uid},
        )
        return review.denied(f"Muster failed to judge this {kind.gvk.kind}, so it is refused; see the webhook's log")
    if not response.allowed:
        logger.info(
            "refused",
            extra={
                "kind": kind.gvk.kind,
                "namespace": asked.namespace,
                "object": asked.name,
                "user": asked.user_info.username,
                "why": response.message[:500],
            },
        )
    return response


def _answered(asked: review.Request, response: review.Response) -> Response:
    return Response(review.write(asked.uid, response), mimetype=_JSON)


def _not_a_review(error: review.NotAReview) -> tuple[dict[str, str], int]:
    return {"error": str(error)}, 400


def _refused(error: HTTPException) -> tuple[dict[str, str], int]:
    return {"error": f"{error.name}: {error.description}"}, error.code or 400
