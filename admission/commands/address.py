"""Chooses the addresses of `muster dev`: the ones it had before, if they are free, else any free ones.

They are kept in a file of the state directory, so that webhook configurations of an earlier run still point here. It
only looks whether a port is free: whoever listens on it may still find it taken.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec


def chosen(folder: Path, host: str, wanted: Mapping[str, int]) -> dict[str, int]:
    """A port for each name; 0 asks for any, and then the one of the last time is tried first."""
    file = folder / "ports.json"
    before: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError, msgspec.ValidationError):
        before = msgspec.json.decode(file.read_bytes(), type=dict[str, Annotated[int, msgspec.Meta(ge=0, le=65535)]])
    ports = {}
    with contextlib.ExitStack() as held:
        for name, port in wanted.items():
            candidates = [port] if port else [before.get(name, 0), 0]
            ports[name] = next(found for each in candidates if (found := _tried(held, host, each, fixed=bool(port))))
    file.write_bytes(msgspec.json.encode(ports))
    return ports


def _tried(held: contextlib.ExitStack, host: str, port: int, *, fixed: bool) -> int:
    """The port, held until all are chosen so that none is given twice; 0 when it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError:
        if fixed:
            raise
        return 0
    return int(bound.getsockname()[1])
