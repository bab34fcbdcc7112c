"""Two sizes: every run of the tests tries the same examples in seconds; a soak tries new ones for long.

`MUSTER_PROPERTIES=soak` chooses the soak, `MUSTER_EXAMPLES` how many examples it tries of each test.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
_MANY = int(os.environ.get("MUSTER_EXAMPLES", "5000"))

settings.register_profile("quick", max_examples=75, deadline=None, derandomize=True, suppress_health_check=_SLOW)
settings.register_profile("soak", max_examples=_MANY, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("MUSTER_PROPERTIES", "quick"))
