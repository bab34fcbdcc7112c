"""The page of the queues: use of quota as bars, what is borrowed, what waits and why, and the longest wait.

It shows what `answers.queues` says and loads nothing from anywhere but its own address. A small script of its own puts
fresh content in place; without scripts the page reloads itself. It must never show what the caller may not see.
"""

from __future__ import annotations

import secrets
from typing import Any

from flask import Blueprint, make_response, render_template, request
from werkzeug.wrappers import Response

from queues.inspection import answers, parameters
from queues.inspection.source import ALL_QUEUES, Source

REFRESH_SECONDS = 5
#: A read model that no one wrote for this long is shown as old.
OLD_SECONDS = 60

BYTES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
BYTE_RESOURCES = ("memory", "ephemeral-storage", "storage", "hugepages-")


def pages(source: Source, name: str) -> Blueprint:
    blueprint = Blueprint(name, __name__, template_folder="templates")

    @blueprint.get("/")
    @blueprint.get("")
    def queues() -> Response:
        parameters.known(request.args, {"namespace"})
        namespace = parameters.text(request.args, "namespace")
        scope = source.scope(ALL_QUEUES, namespace)
        now = source.clock()
        with source.engine.connect() as connection:
            answer = answers.queues(connection, now, scope)
        nonce = secrets.token_urlsafe(16)
        page = render_template(
            "queues.html",
            queues=answer["items"],
            freshness=answer["freshness"],
            is_old=is_old(answer["freshness"]),
            namespace=namespace,
            nonce=nonce,
            refresh=REFRESH_SECONDS,
            amount=amount,
            duration=duration,
            bar=bar,
        )
        response = make_response(page)
        response.headers["Content-Security-Policy"] = (
            f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    return blueprint


def is_old(freshness: dict[str, Any]) -> bool:
    age = freshness["ageSeconds"]
    return age is None or age > OLD_SECONDS


def amount(value: int, resource: str) -> str:
    """As people write it: cores, bytes with a prefix, plain counts."""
    if value >= parameters.LARGEST:
        return "unlimited"
    if resource == "cpu":
        return f"{value / 1000:g}"
    if not resource.startswith(BYTE_RESOURCES):
        return str(value)
    scaled, step = float(value), 0
    while scaled >= 1024 and step < len(BYTES) - 1:
        scaled, step = scaled / 1024, step + 1
    return f"{scaled:.4g}{BYTES[step]}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    whole = int(seconds)
    for size, unit, smaller, smaller_unit in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{whole} s"


def bar(quota: dict[str, Any]) -> dict[str, float]:
    """Widths in hundredths of the whole bar: held within nominal, borrowed, and where nominal ends."""
    nominal, reserved = quota["nominal"], quota["reserved"]
    whole = max(nominal, reserved, 1)
    return {
        "own": round(100 * min(reserved, nominal) / whole, 2),
        "borrowed": round(100 * max(reserved - nominal, 0) / whole, 2),
        "nominal": round(100 * nominal / whole, 2),
    }
