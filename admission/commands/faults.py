"""How a command ends that cannot do what it was asked: one sentence for a person, and a status that scripts can tell.

Made from what went wrong outside (settings, credentials, the API server). It never hides a bug: those stay tracebacks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

#: What the statuses mean, as docs/cli.md says it. 130 is an interrupt, as everywhere.
REFUSED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
NOT_ALLOWED: Final = 4
UNREACHABLE: Final = 5
IN_THE_WAY: Final = 6

#: What the API server says of a kind that it does not serve.
_NO_SUCH_KIND: Final = ("the server could not find the requested resource", "page not found")


class Fault(Exception):  # noqa: N818  # it is not necessarily an error of ours
    """Ends the program with one of the statuses above."""

    def __init__(self, message: str, status: int = REFUSED) -> None:
        super().__init__(message)
        self.status = status


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Turn what the outside world refuses into a `Fault`."""
    from admission.kube.access import AccessError
    from admission.kube.errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable
    from admission.settings import SettingsError

    try:
        yield
    except (SettingsError, AccessError) as error:
        raise Fault(str(error), USAGE) from error
    except NotFound as error:
        if any(text in error.message for text in _NO_SUCH_KIND):
            message = (
                "this cluster does not serve what was asked for; are Muster's CRDs installed "
                "(`kubectl apply -k webhook-config`), and is this the right --context?"
            )
            raise Fault(message, NOT_FOUND) from error
        raise Fault(error.message, NOT_FOUND) from error
    except Unauthorized as error:
        message = f"the API server does not know you ({error.message}); log in again, or name another --context"
        raise Fault(message, NOT_ALLOWED) from error
    except Forbidden as error:
        raise Fault(f"the API server does not let you: {error.message}", NOT_ALLOWED) from error
    except Unreachable as error:
        message = f"no answer: {error.message}; is the cluster of this context up, and does this machine reach it?"
        raise Fault(message, UNREACHABLE) from error
    except ApiError as error:
        raise Fault(f"the API server says: {error}") from error
