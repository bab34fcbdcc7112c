"""Answers the probes of the kubelet: alive as long as this process runs, ready when it is asked and the answer is yes.

A few lines of HTTP, so that the supervising process loads no server. Only the two probe paths are answered, without
authentication, and they give nothing away but the names of the parts that are not ready.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final

#: What is not ready; nothing is good news.
Question = Callable[[], Awaitable[list[str]]]

_SECONDS: Final = 5.0


async def serve(host: str, port: int, questions: Mapping[str, Question]) -> asyncio.Server:
    """Answer each path of `questions`; 200 when nothing is missing, 503 with what is."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                status, text = await _answer(request, questions)
                body = text.encode()
                head = (
                    f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + (b"" if request.startswith(b"HEAD ") else body))
                await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, host or None, port, limit=16_384)


async def _answer(request: bytes, questions: Mapping[str, Question]) -> tuple[HTTPStatus, str]:
    method, _, rest = request.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    path = rest.split(" ")[0].partition("?")[0].rstrip("/")
    question = questions.get(path)
    if question is None:
        return HTTPStatus.NOT_FOUND, "not found\n"
    if method not in {"GET", "HEAD"}:
        return HTTPStatus.METHOD_NOT_ALLOWED, "GET only\n"
    missing = await question()
    if missing:
        return HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{name}: not ready\n" for name in missing)
    return HTTPStatus.OK, "ok\n"


def address(text: str) -> tuple[str, int] | None:
    """Host and port of a bind address like `:8081`; None when turned off ("0" or empty). ValueError for others."""
    if text in {"", "0"}:
        return None
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
