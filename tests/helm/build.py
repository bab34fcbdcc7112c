"""Finds helm, or builds it from its Go module, once, into the cache folder of the test control plane.

Building takes minutes, so a test only asks for what is there: on the PATH, or in the cache; with MUSTER_HELM=1, or run
as `python -m tests.helm.build`, it is built.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

from tests.controlplane.build import Program, build, cache_folder, find_go, say

HERE = Path(__file__).parent
PROGRAM = Program("helm", str(HERE.resolve()), "helm.sh/helm/v3/cmd/helm")


def folder() -> Path:
    digest = hashlib.sha256()
    for source in ("go.mod", "go.sum"):
        digest.update((HERE / source).read_bytes())
    return cache_folder() / "helm" / digest.hexdigest()[:12]


def find() -> str | None:
    """The command; None where there is none and nobody has asked for it to be built."""
    built = folder() / PROGRAM.name
    if built.exists():
        return str(built)
    if os.environ.get("MUSTER_HELM"):
        return make()
    return shutil.which(PROGRAM.name)


def make() -> str:
    """Builds it where it is not there yet. One process builds, others wait for it."""
    target = folder()
    target.mkdir(parents=True, exist_ok=True)
    with (target / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / PROGRAM.name).exists():
            say("helm: to be built, once; some 4 minutes on two cores")
            build(PROGRAM, find_go(), target)
    return str(target / PROGRAM.name)


if __name__ == "__main__":
    print(make())
