"""Builds `kubectl kueue`, the peer's plugin of kubectl, from its Go module, once.

The program lands in the same cache folder as the test control plane's, keyed by go.mod and go.sum beside this module,
and shares Go's build cache with them. It takes some three minutes on two cores where nothing of it was ever built, so
tests use it where it is there, or where MUSTER_PEER=1 asks for it. Run as `python -m tests.kueuectl.build`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

from tests.controlplane.build import Program, build, cache_folder, find_go, say

HERE = Path(__file__).parent
VERSION = "0.17.0"
PROGRAM = Program("kubectl-kueue", str(HERE.resolve()), "sigs.k8s.io/kueue/cmd/kueuectl")


def folder() -> Path:
    digest = hashlib.sha256()
    for source in ("go.mod", "go.sum"):
        digest.update((HERE / source).read_bytes())
    return cache_folder() / "kueuectl" / f"{VERSION}-{digest.hexdigest()[:12]}"


def is_wanted() -> bool:
    """Whether a test may use it."""
    return (folder() / PROGRAM.name).exists() or os.environ.get("MUSTER_PEER") == "1"


def built() -> Path:
    """The folder with the program; builds it where it is missing. One process builds, others wait for it."""
    target = folder()
    target.mkdir(parents=True, exist_ok=True)
    with (target / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / PROGRAM.name).exists():
            go = find_go()
            say(f"peer: {PROGRAM.name} to build, once, with {go}; some 3 minutes on two cores")
            build(PROGRAM, go, target)
    return target


if __name__ == "__main__":
    print(built())
