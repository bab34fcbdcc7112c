"""The pages over a remembered cluster, and a Chromium that looks at them; skipped where there is none."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright
from werkzeug.serving import make_server

from queues.inspection import pages
from queues.inspection.access import Access, Aggregation, Authorizer, User
from queues.inspection.app import create_app
from queues.journal import migrate
from queues.journal.database import open_database
from queues.journal.entries import Entry
from queues.journal.writer import Journal, Timing
from tests.browser import seed

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
#: Milliseconds that anything on a page may take.
PATIENCE = 5_000

#: Widths of a phone, a tablet and a desk.
WIDTHS = (390, 768, 1280)


def chromium() -> str | None:
    """As MUSTER_CHROMIUM says, or from the path."""
    named = os.environ.get("MUSTER_CHROMIUM")
    return named or next((found for name in CHROMIUMS if (found := shutil.which(name))), None)


class Rights:
    """`ada` sees everything, `sam` namespace team-safety."""

    def review_token(self, token: str) -> User | None:
        return {"ada": User("ada", ("system:masters",)), "sam": User("sam")}.get(token)

    def review_access(self, user: User, access: Access) -> bool:
        return user.name == "sam" and (access.resource, access.namespace) == ("workloads", "team-safety")

    def aggregation(self) -> Aggregation | None:
        return None


@dataclass
class Site:
    """Where the pages are served, and the journal that they are read from."""

    address: str
    url: str

    def tell(self, *entries: Entry) -> None:
        journal = Journal(self.url, timing=Timing(gather=0), clock=lambda: seed.NOW - 2, batch_size=100_000)
        journal.put(*entries)
        journal.start()
        assert journal.close(30)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    url = f"sqlite:///{tmp_path_factory.mktemp('pages')}/journal.sqlite3"
    migrate.upgrade(url)
    engine = open_database(url)
    # Who looks at a page that refreshes itself should not have to wait for it.
    pages.REFRESH_SECONDS, before = 1, pages.REFRESH_SECONDS
    server = make_server(
        "127.0.0.1", 0, create_app(engine, Authorizer(Rights()), clock=lambda: seed.NOW), threaded=True
    )
    made = Site(f"http://127.0.0.1:{server.server_port}", url)
    made.tell(*seed.everything())
    thread = threading.Thread(target=server.serve_forever, name="pages", daemon=True)
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    engine.dispose()
    pages.REFRESH_SECONDS = before


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        pytest.skip(
            f"there is no Chromium: MUSTER_CHROMIUM is not set, and none of {', '.join(CHROMIUMS)} is installed"
        )
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@dataclass
class Visit:
    """A window of one caller. What goes wrong unseen is kept: console messages, and requests to elsewhere."""

    page: Page
    site: Site
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self._asked)

    def go(self, path: str) -> Page:
        self.page.goto(self.site.address + path)
        return self.page

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.faults.append(message.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self.site.address):
            self.faults.append(f"asked elsewhere: {request.url}")


Visiting = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visiting]:
    """`visit("sam", width=390)`: nothing may have gone wrong on any page by the end."""
    made: list[Visit] = []

    def of(caller: str = "ada", width: int = 1280, **more: Any) -> Visit:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, extra_http_headers={"Authorization": f"Bearer {caller}"}, **more
        )
        context.set_default_timeout(PATIENCE)
        made.append(Visit(context.new_page(), site))
        return made[-1]

    yield of
    for each in made:
        each.page.context.close()
    assert [fault for each in made for fault in each.faults] == []


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig")
