"""Whether the core that is tested was compiled: then nothing of it can be replaced, subclassed or copied by a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from queues.core import cycle

IS_COMPILED = Path(cycle.__file__).suffix != ".py"

needs_interpreted_core = pytest.mark.skipif(IS_COMPILED, reason="looks into the core by replacing parts of it")
