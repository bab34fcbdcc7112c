"""`muster dev`: Muster from this machine on any cluster that can reach it, to try it out and for outside test suites.

It installs the CRDs, runs the process tree with certificates of its own, points the API server here by URL, and says
that it is ready once a call made through the API server has been answered. What it needs to go on after a stop or a
kill is in one folder; it leaves the cluster's objects alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from admission.commands import logs
from admission.commands.address import chosen
from admission.commands.faults import Fault, told
from admission.commands.health import address as host_and_port
from admission.commands.narrowing import narrowed, passed_on
from admission.commands.run import child_options
from admission.commands.surroundings import CERTIFICATES, IDENTITY, PUBLISHED_ELSEWHERE, state_folder
from admission.commands.tree import Tree, until_told
from admission.settings import Settings, dump, load, warnings

if TYPE_CHECKING:
    from admission.commands.devcerts import Kept
    from admission.kube.client import Client
    from admission.webhook.configuration import ByUrl

logger = logging.getLogger(__name__)

_PID_FILE: Final = "muster.pid"
_UPKEEP_SECONDS: Final = 30.0
_SEEN_SECONDS: Final = 1.0
_ROTATION_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where this instance is: its folder, and the address under which the API server finds it."""

    folder: Path
    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"


def run(  # noqa: PLR0913  # one for each option
    kubeconfig: str | None,
    config: str | None,
    *,
    listen: str,
    folder: str | None,
    work_as: str | None,
    ready_file: str | None,
    verbose: bool,
    only: str | None = None,
    without: Sequence[str] = (),
) -> None:
    """Until SIGTERM or SIGINT. `kubeconfig` is that of who installs, `work_as` that of the processes, if another."""
    logs.configure("dev", verbose=verbose)
    with told():
        settings = narrowed(load(config), only)
    for warning in warnings(settings):
        logger.warning("%s", warning)
    state = _folder(folder, settings)
    with _alone(state):
        place, effective = _placed(settings, listen, state)
        path = state / "settings.yaml"
        # The journal's URL may have a password.
        path.touch(mode=0o600)
        path.write_text(dump(effective), encoding="utf-8")
        os.environ[IDENTITY] = _identity(state)
        os.environ[PUBLISHED_ELSEWHERE] = "yes"
        options = child_options(work_as or kubeconfig, str(path), verbose=verbose)
        tree = Tree(effective, options, passed_on(None, without))
        session = Session(effective, place, tree, Path(ready_file) if ready_file else None)
        with told():
            asyncio.run(until_told(lambda stop: session.run(stop, kubeconfig)))


class Session:
    """One run of `muster dev`."""

    def __init__(self, settings: Settings, place: Place, tree: Tree, ready_file: Path | None) -> None:
        self._settings = settings
        self._place = place
        self._tree = tree
        self._ready_file = ready_file
        self._rotation = asyncio.Event()

    async def run(self, stop: asyncio.Event, kubeconfig: str | None) -> None:
        """Install, serve and look after it until `stop`; an error of the installation ends it too."""
        self._forget_readiness()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._rotation.set)
        working = asyncio.ensure_future(self._work(kubeconfig))
        ended = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({working, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._forget_readiness()
            ended.cancel()
            working.cancel()
            try:
                with contextlib.suppress(asyncio.CancelledError):
                    await working
            finally:
                await self._tree.stop()

    async def _work(self, kubeconfig: str | None) -> None:
        # Where this folder was used before, the CRDs are there: the children need not wait for them.
        again = (self._place.folder / CERTIFICATES).exists()
        if again:
            await self._tree.start()
        from admission.commands import install
        from admission.commands.devcerts import Kept
        from admission.kube.client import connect

        async with await connect(kubeconfig, component="dev") as client:
            certificates = Kept(self._place.folder, Path(self._settings.webhook.cert_dir), self._place.host)
            converts = self._settings.muster.serve_v1beta1
            await install.crds(client, self._reached(certificates) if converts else None)
            await install.namespace(client, self._settings.namespace)
            if not again:
                await self._tree.start()
            await self._publish(client, certificates)
            await self._tree.wait_ready()
            await answered_through(client)
            if converts:
                await install.converting(client)
            self._tell_ready()
            await asyncio.gather(self._tree.start_inspection(), self._look_after(client, certificates))

    def _tell_ready(self) -> None:
        click.echo("muster is ready")
        click.echo(f"webhook {self._place.url}")
        inspection = self._settings.muster.inspection
        if inspection.enabled:
            click.echo(f"inspection https://{inspection.bind_address}:{inspection.bind_port}")
        if self._ready_file is not None:
            self._ready_file.touch()

    async def _look_after(self, client: Client, certificates: Kept) -> None:
        """Replace certificates when they are due or a rotation is asked for, and put back what others changed."""
        from admission.kube.errors import ApiError
        from admission.tls import Need

        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_UPKEEP_SECONDS):
                    await self._rotation.wait()
            needs = [Need.AUTHORITY, Need.SERVING] if self._rotation.is_set() else [certificates.due()]
            self._rotation.clear()
            try:
                for need in needs:
                    certificates.take(need)
                    await self._publish(client, certificates)
                    if need is Need.AUTHORITY:
                        # Every API server has to have seen the new bundle before it meets what it signed.
                        await asyncio.sleep(_SEEN_SECONDS)
                    certificates.serve()
                if needs != [Need.NOTHING]:
                    logger.info("certificates replaced", extra={"what": [need.value for need in needs]})
            except ApiError as error:
                logger.warning("the cluster cannot be looked after, trying again", extra={"error": str(error)})

    async def _publish(self, client: Client, certificates: Kept) -> None:
        from admission.commands import install

        await install.callers(client, self._settings, self._reached(certificates))

    def _reached(self, certificates: Kept) -> ByUrl:
        from admission.webhook.configuration import ByUrl

        return ByUrl(self._place.url, certificates.trusted)

    def _forget_readiness(self) -> None:
        if self._ready_file is not None:
            self._ready_file.unlink(missing_ok=True)


async def answered_through(client: Client) -> None:
    """Until the API server has had both webhooks answer: a good object comes back changed, a bad one is refused."""
    from admission.kube.errors import ApiError
    from admission.kube.resources import RESOURCE_FLAVORS

    taint = {"key": "muster.dev/probe", "value": "x", "effect": "NoSchedule"}
    good = {
        "apiVersion": RESOURCE_FLAVORS.api_version,
        "kind": RESOURCE_FLAVORS.kind,
        "metadata": {"name": f"muster-probe-{uuid.uuid4().hex[:8]}"},
    }
    bad = {**good, "spec": {"nodeTaints": [taint, taint]}}
    pause = 0.02
    while True:
        with contextlib.suppress(ApiError):
            made = await client.create(RESOURCE_FLAVORS, good, dry_run=True)
            if made.metadata.finalizers:
                try:
                    await client.create(RESOURCE_FLAVORS, bad, dry_run=True)
                except ApiError as refusal:
                    if "nodeTaints" in refusal.message:
                        return
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.5)


def remove(kubeconfig: str | None) -> None:
    """`muster dev --remove`."""

    async def work() -> list[str]:
        from admission.commands import install
        from admission.kube.client import connect

        async with await connect(kubeconfig, component="dev") as client:
            return await install.remove_callers(client)

    with told():
        removed = asyncio.run(work())
    for name in removed:
        click.echo(f"removed {name}")


def rotate(folder: str | None) -> None:
    """`muster dev --rotate`: asks the running instance and waits until it serves the new certificate."""
    from admission.tls import CERTIFICATE_FILE

    state = _folder(folder, None)
    certificate = state / "serving" / CERTIFICATE_FILE
    process = _running_in(state)
    if process is None:
        raise Fault(f"no muster dev runs with {state}", 2)
    try:
        before = certificate.read_bytes()
        os.kill(process, signal.SIGUSR1)
    except OSError as error:
        raise Fault(f"the muster dev of {state} cannot be asked: {error}", 2) from error
    deadline = time.monotonic() + _ROTATION_SECONDS
    while certificate.read_bytes() == before:
        if time.monotonic() > deadline:
            raise Fault("the certificate was not replaced; see the log")
        time.sleep(0.1)
    click.echo("the certificate was replaced")


# ------------------------------------------------------------------ its folder


def _folder(named: str | None, settings: Settings | None) -> Path:
    folder = Path(named) if named else state_folder(settings or load()) / "dev"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.resolve()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Only one instance at a time works in a folder."""
    with (folder / _PID_FILE).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Fault(f"another muster dev runs with {folder}; stop it or name another --dir", 2) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _running_in(folder: Path) -> int | None:
    """The process that works in the folder. A file that nobody holds may name what is another program by now."""
    with contextlib.suppress(OSError, ValueError), (folder / _PID_FILE).open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(file.read())
    return None


def _identity(folder: Path) -> str:
    """The holder of the leader's Lease: the same after a restart, which so goes on at once."""
    file = folder / "identity"
    if not file.exists():
        file.write_text(f"dev-{uuid.uuid4()}", encoding="utf-8")
    return file.read_text(encoding="utf-8")


def _listened(listen: str) -> tuple[str, int]:
    """Host and port of `--listen`."""
    with contextlib.suppress(ValueError):
        where = host_and_port(listen)
        if where is not None and where[0] and 0 <= where[1] <= 65535:
            return where
    raise Fault(f"--listen {listen!r}: write HOST:PORT, an address that the API server can reach", 2)


def _placed(settings: Settings, listen: str, folder: Path) -> tuple[Place, Settings]:
    """Where this instance listens, and settings to that effect. What has a fixed port by default gets a free one."""
    host, port = _listened(listen)
    defaults = Settings()
    inspection, visibility = settings.muster.inspection, settings.visibility_server
    wanted = {"webhook": port}
    if inspection == defaults.muster.inspection:
        wanted["inspection"] = 0
    if visibility == defaults.visibility_server:
        wanted["visibility"] = 0
    try:
        ports = chosen(folder, host, wanted)
    except OSError as error:
        raise Fault(f"--listen {listen}: {error}", 2) from error
    replace = msgspec.structs.replace
    muster = replace(
        settings.muster,
        state_dir=str(folder),
        inspection=replace(inspection, bind_port=ports["inspection"]) if "inspection" in ports else inspection,
    )
    if "visibility" in ports:
        visibility = replace(visibility, bind_address=host, bind_port=ports["visibility"])
    metrics, health = settings.metrics, settings.health
    effective = replace(
        settings,
        webhook=replace(settings.webhook, host=host, port=ports["webhook"], cert_dir=str(folder / "serving")),
        internal_cert_management=replace(settings.internal_cert_management, enable=False),
        metrics=replace(metrics, bind_address="0") if metrics == defaults.metrics else metrics,
        health=replace(health, health_probe_bind_address="0") if health == defaults.health else health,
        visibility_server=visibility,
        muster=muster,
    )
    return Place(folder, host, ports["webhook"]), effective
