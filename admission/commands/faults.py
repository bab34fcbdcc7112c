"""How a command ends that cannot do what it was asked: one sentence for a person, and a status.

Made from what went wrong outside (settings, credentials, the API server). It never hides a bug: those stay tracebacks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class Fault(Exception):  # noqa: N818  # it is not necessarily an error of ours
    """Ends the program. Status 2: the user can mend it; 1: the cluster does not let us."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Turn what the outside world refuses into a `Fault`."""
    from admission.kube.access import AccessError
    from admission.kube.errors import ApiError, NotFound
    from admission.settings import SettingsError

    try:
        yield
    except (SettingsError, AccessError) as error:
        raise Fault(str(error), 2) from error
    except NotFound as error:
        raise Fault(error.message) from error
    except ApiError as error:
        raise Fault(f"the API server says: {error}") from error
