"""An API server in trouble: a proxy before the real one that refuses, hangs, cuts, closes watches or tells them late.

Only who is given its kubeconfig goes through it; tests ask the real API server. What it does is what `fault` says of
each request, and everything that was forwarded was carried out.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

from admission import tls
from tests.cluster.account import kubeconfig_of_muster
from tests.controlplane.cluster import ControlPlane

_PASSED_ON = ("Authorization", "Content-Type", "Accept")


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    is_watch: bool

    def is_of(self, plural: str) -> bool:
        return f"/{plural}" in self.path


@dataclass(frozen=True)
class Answer:
    """Instead of the API server's."""

    status: int
    retry_after: int | None = None


class Hang:
    """No answer, until all is well again; then the connection breaks."""


class Cut:
    """The connection breaks at once."""


class Swallow:
    """It is carried out, and the answer is lost."""


class Page:
    """A page for people, as some proxy may send it: it is no answer, but has the status of one."""


class Expired:
    """A watch that opens and says that its version is too old."""


Fault = Answer | Hang | Cut | Swallow | Page | Expired | None


def nothing(_: Asked) -> Fault:
    return None


class Faulty:
    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.fault: Callable[[Asked], Fault] = nothing
        #: Seconds by which watches are late.
        self.behind = 0.0
        self.injected = 0
        #: How often watches were closed, by their path.
        self.closed: Counter[str] = Counter()
        #: By how many seconds what was passed on last by a watch was late.
        self.late_by = 0.0
        self._watches: dict[int, web.BaseRequest] = {}
        self._well = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._ended = asyncio.Event()
        folder.mkdir(exist_ok=True)
        held = tls.issue(("127.0.0.1",), datetime.now(UTC))
        tls.write_files(folder, held)
        self._folder = folder
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._thread.start()
        assert self._started.wait(60)
        authority = base64.b64encode(held.authorities).decode()
        config = yaml.safe_load(Path(kubeconfig_of_muster(plane)).read_text())
        config["clusters"][0]["cluster"] = {"server": self.server, "certificate-authority-data": authority}
        self.kubeconfig = str(folder / "kubeconfig")
        Path(self.kubeconfig).write_text(yaml.safe_dump(config))

    # ---- for tests

    @contextlib.contextmanager
    def trouble(
        self, fault: Callable[[Asked], Fault], *, closing: Callable[[str], bool] | None = None
    ) -> Iterator[None]:
        """This fault for as long as the block lasts; `closing` says of a path whether its open watches are closed."""
        self.fault = fault
        if closing is not None:
            self.close_watches(closing)
        try:
            yield
        finally:
            self.fault = nothing
            self._loop.call_soon_threadsafe(self._be_well)

    def close_watches(self, closing: Callable[[str], bool] = lambda _: True) -> None:
        def close() -> None:
            for request in list(self._watches.values()):
                if closing(request.path) and request.transport is not None:
                    request.transport.abort()
                    self.closed[request.path] += 1

        self._loop.call_soon_threadsafe(close)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)

    # ---- inside

    def _be_well(self) -> None:
        well, self._well = self._well, asyncio.Event()
        well.set()

    async def _serve(self) -> None:
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / tls.CERTIFICATE_FILE, self._folder / tls.KEY_FILE)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = runner.addresses[0][1]
        self.server = f"https://127.0.0.1:{port}"
        behind = ssl.create_default_context(cafile=self.plane.ca)
        connector = aiohttp.TCPConnector(ssl=behind, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            self._started.set()
            await self._ended.wait()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        is_watch = request.query.get("watch") == "true"
        fault = self.fault(Asked(request.method, request.path, is_watch))
        self.injected += fault is not None
        instead = await self._instead(fault, request, is_watch=is_watch)
        if instead is not None:
            return instead
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        headers["Accept-Encoding"] = "identity"
        url = self.plane.server + request.path_qs
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.request(
            request.method, url, data=await request.read() or None, headers=headers, timeout=timeout
        ) as answer:
            if is_watch and answer.status == 200:
                return await self._watched(request, answer)
            body = await answer.read()
            if isinstance(fault, Swallow):
                return _broken(request)
            kept = {name: answer.headers[name] for name in ("Content-Type", "Retry-After") if name in answer.headers}
            return web.Response(status=answer.status, body=body, headers=kept)

    async def _instead(self, fault: Fault, request: web.Request, *, is_watch: bool) -> web.StreamResponse | None:
        match fault:
            case Answer(status, retry_after):
                headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
                body = {"kind": "Status", "status": "Failure", "code": status, "reason": "", "message": "injected"}
                return web.json_response(body, status=status, headers=headers)
            case Hang():
                await self._well.wait()
                return _broken(request)
            case Cut():
                return _broken(request)
            case Page():
                return web.Response(text="<html>please log in</html>", content_type="text/html")
            case Expired() if is_watch:
                body = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
                return web.json_response({"type": "ERROR", "object": body})
        return None

    async def _watched(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        self._watches[id(request)] = request
        try:
            await response.prepare(request)
            async for chunk in self._late(answer):
                await response.write(chunk)
        except (ConnectionError, aiohttp.ClientError):
            pass
        finally:
            del self._watches[id(request)]
        return response

    async def _late(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """Each chunk as late as it is to be, in order."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, float, bytes]] = asyncio.Queue()

        async def read() -> None:
            with contextlib.suppress(aiohttp.ClientError):
                async for chunk in answer.content.iter_any():
                    now = loop.time()
                    waiting.put_nowait((now, now + self.behind, chunk))
            waiting.put_nowait((loop.time(), loop.time(), b""))

        reading = asyncio.ensure_future(read())
        try:
            while True:
                came, due, chunk = await waiting.get()
                if not chunk:
                    return
                await asyncio.sleep(max(0.0, due - loop.time()))
                self.late_by = loop.time() - came
                yield chunk
        finally:
            reading.cancel()


def _broken(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@contextlib.contextmanager
def faulty(plane: ControlPlane, folder: Path) -> Iterator[Faulty]:
    made = Faulty(plane, folder)
    try:
        yield made
    finally:
        made.stop()


def sample(metrics: str, name: str, /, **labels: str) -> float:
    """The value of a series in the text of metrics; 0 where there is none."""
    wanted = {f"{key}={json.dumps(value)}" for key, value in labels.items()}
    for line in metrics.splitlines():
        if line.startswith(name) and wanted <= set(line.partition("{")[2].partition("}")[0].split(",")):
            return float(line.rpartition(" ")[2])
    return 0.0
