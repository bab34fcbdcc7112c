"""Probes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from admission.commands import health


@dataclass(frozen=True)
class Case:
    id: str
    request: bytes
    want: bytes


async def fine() -> list[str]:
    return []


async def broken() -> list[str]:
    return ["webhook", "controller"]


CASES = [
    Case("alive", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"200 OK"),
    Case("a query does not matter", b"GET /healthz?verbose HTTP/1.1\r\n\r\n", b"200 OK"),
    Case("not ready names what is missing", b"GET /readyz HTTP/1.1\r\n\r\n", b"503 Service Unavailable"),
    Case("no other path", b"GET /metrics HTTP/1.1\r\n\r\n", b"404 Not Found"),
    Case("no other method", b"POST /healthz HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
    Case("no sense", b"\xff\r\n\r\n", b"404 Not Found"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_probes_are_answered(case: Case) -> None:
    async def work() -> bytes:
        server = await health.serve("127.0.0.1", 0, {"/healthz": fine, "/readyz": broken})
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(case.request)
            answer = await asyncio.wait_for(reader.read(), 5)
            writer.close()
            return answer

    answer = asyncio.run(work())
    assert answer.split(b"\r\n")[0] == b"HTTP/1.1 " + case.want
    if b"503" in case.want:
        assert answer.endswith(b"webhook: not ready\ncontroller: not ready\n")


@pytest.mark.parametrize(
    ("text", "want"),
    [(":8081", ("", 8081)), ("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:80", ("::1", 80)), ("0", None), ("", None)],
)
def test_addresses_are_read(text: str, want: tuple[str, int] | None) -> None:
    assert health.address(text) == want
