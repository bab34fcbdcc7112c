"""What an API server makes of a merge patch."""

from __future__ import annotations

import copy
from typing import Any


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386. Neither is changed, nor is the patch a part of what comes out."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
