"""Client, informers and leader lease: the only package that imports `kubernetes`.

The official client's packages import all of it, the blocking half and the asyncio half, as soon as anything of it is
used, and no process here needs both. So its packages stand empty until one of their modules is asked for by name, which
saves each process 15 MiB. It must never change what any of these modules does.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from typing import Final

_PACKAGES: Final = ("kubernetes", "kubernetes.aio")


def _stand_empty(name: str) -> None:
    spec = None if name in sys.modules else find_spec(name)
    if spec is not None:
        sys.modules[name] = module_from_spec(spec)


for _package in _PACKAGES:
    _stand_empty(_package)
