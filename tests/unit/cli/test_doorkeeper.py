"""Who may see the metrics: what is no token is turned away without asking the API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from admission.commands.metrics import Doorkeeper


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer  ", "Basic dXNlcjpwYXNz", "Bearer \udc80", "Bearer tok\x7fen"]
)
def test_what_is_no_token_is_not_reviewed(authorization: str) -> None:
    nobody_to_ask: Any = None
    assert asyncio.run(Doorkeeper(nobody_to_ask).status(authorization)) == 401
