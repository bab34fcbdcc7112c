"""Builds the peer, its minimal controller and its runner from its Go module, once, and finds its CRDs.

The programs land in the same cache folder as the test control plane's, keyed by go.mod and go.sum beside this module.
Run as `python -m benchmarks.peer.build`; prints the folder. It never changes what it builds: the peer is as published.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

from tests.controlplane.build import Program, build, cache_folder, find_go, say

HERE = Path(__file__).parent
MODULE = "sigs.k8s.io/kueue"
VERSION = "0.17.0"

#: `module` is this folder as it stands; a path below another folder joined with it stays what it is.
PROGRAMS = (
    Program("kueue", str(HERE.resolve()), f"{MODULE}/cmd/kueue"),
    Program("minimalkueue", str(HERE.resolve()), f"{MODULE}/test/performance/scheduler/minimalkueue"),
    Program("runner", str(HERE.resolve()), f"{MODULE}/test/performance/scheduler/runner"),
)


def key() -> str:
    digest = hashlib.sha256()
    for source in ("go.mod", "go.sum"):
        digest.update((HERE / source).read_bytes())
    return f"{VERSION}-{digest.hexdigest()[:12]}"


def programs_folder() -> Path:
    """The folder with the three programs; builds what is missing. One process builds, others wait for it."""
    target = cache_folder() / "peer" / key()
    target.mkdir(parents=True, exist_ok=True)
    with (target / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [program for program in PROGRAMS if not (target / program.name).exists()]
        if missing:
            go = find_go()
            say(f"peer: {len(missing)} programs to build, once, with {go}; some 4 minutes on two cores")
            for program in missing:
                build(program, go, target)
    return target


def module_folder() -> Path:
    """Where Go keeps the peer's source: its CRDs and its scenarios are read there."""
    found = subprocess.run(
        [find_go(), "list", "-m", "-f", "{{.Dir}}", MODULE],
        cwd=HERE,
        env={**os.environ, "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(found.stdout.strip())


def crds() -> Path:
    return module_folder() / "config" / "components" / "crd" / "bases"


if __name__ == "__main__":
    print(programs_folder())
