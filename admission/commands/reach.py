"""Which cluster a person's command talks to, as whom, and in which namespace: kubectl's flags, with their meaning.

Made from the command line. It only opens the connection; what may be seen there the API server decides.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from admission.kube.client import Client

_SECONDS: Final = 30.0
#: Stands for "no limit" where the transport wants a number.
_FOR_EVER: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Reach:
    """`namespace` None is the context's own; `seconds` is how long one request may take."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()
    seconds: float = _SECONDS

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        from admission.kube.client import connect

        opened = await connect(self.kubeconfig, context=self.context, timeout=self.seconds, component="cli")
        async with opened as client:
            if self.as_user is not None:
                client.impersonate(self.as_user, self.as_groups)
            if self.namespace is not None:
                client.namespace = self.namespace
            yield client


def seconds(text: str | None) -> float:
    """Of `--request-timeout`: a duration, or a bare number of seconds; 0 is no limit. ValueError for anything else."""
    if text is None:
        return _SECONDS
    if text.isascii() and text.isdecimal():
        found = float(text)
    else:
        from admission.settings import durations

        found = durations.parse(text)
    if found < 0:
        raise ValueError(f"{text!r} is less than nothing")
    return found or _FOR_EVER
