"""Asks the inspection API where the API server forwards to it, with the rights of the one who asks.

That is the aggregated API alone: a Service's proxy drops the caller's credentials, without which inspection lets nobody
in. What it has to add is never necessary: where it is not installed, or not for this user, there is no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from admission.api import names

if TYPE_CHECKING:
    from admission.kube.client import Client

_ROOT: Final = f"/apis/{names.INSPECTION_GROUP}/v1"
#: Nobody waits long for what is only an addition.
_SECONDS: Final = 10.0


async def ask(client: Client, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any] | None:
    """The answer below the inspection API's root; None where it gives none."""
    from admission.kube.errors import ApiError

    try:
        answer: dict[str, Any] = msgspec.json.decode(
            await client.raw("GET", f"{_ROOT}/{path}", query=query, timeout=_SECONDS)
        )
    except ApiError:
        return None
    return answer
