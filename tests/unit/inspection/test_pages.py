"""The pages: whole, safe, without anything from elsewhere, and to each what they may see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from flask import Flask

from queues.inspection.access import Authorizer
from queues.inspection.app import create_app
from queues.inspection.drawings import bar, chart, life, parts, pips, short_names
from queues.inspection.pages import is_old
from queues.inspection.words import amount, duration, hours, ordinal, percent
from queues.journal.database import open_database
from tests.unit.inspection.conftest import NOW, ON_SQLITE, Client, Cluster


class Text(HTMLParser):
    """What a person reads, and every attribute."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in {"meta", "br", "link", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="module")
def app(told: str) -> Iterator[Flask]:
    """One for all of them: templates are compiled once."""
    engine = open_database(told)
    yield create_app(engine, Authorizer(Cluster()), clock=lambda: NOW)
    engine.dispose()


PAGES = (
    "/",
    "/cohorts",
    "/queues/cq",
    "/workloads",
    "/workloads/team-a/job-train",
    "/workloads/team-a/runs",
    "/workloads/team-a/done",
    "/topology",
    "/usage",
)


@ON_SQLITE
@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("prefix", ["", "/apis/inspection.muster.dev/v1/page"])
def test_every_page_is_whole_and_stays_where_it_is(client: Client, path: str, prefix: str) -> None:
    answer = client("admin").get(prefix + (path if path != "/" or not prefix else ""))
    assert answer.status_code == 200, answer.text
    page = Text(answer.text)
    assert page.open == []
    for name, value in page.attributes:
        assert name not in {"style", "srcset", "onclick", "onload"}
        if name in {"src", "href", "action"} and value and not value.startswith("#"):
            assert f"{value}/".startswith(f"{prefix}/"), "links stay below the address that was asked"
    assert "http://" not in answer.text
    assert "https://" not in answer.text
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))


@ON_SQLITE
def test_the_overview_says_what_people_ask(client: Client) -> None:
    page = Text(client("viewer").get("/").text)
    for words in ("cq", "Cohort research", "20 of 16", "4 borrowed", "2 Waiting for quota", "1 Larger than its limit",
                  "8 min 20 s", "Stopped: stopped by <b>hand</b>"):  # fmt: skip
        assert words in page.text, (words, page.text)


@ON_SQLITE
def test_a_queue_shows_what_waits_in_order(client: Client) -> None:
    text = Text(client("viewer").get("/queues/cq").text).text
    assert text.index("secret") < text.index("train") < text.index("later")
    assert "may borrow up to 8" in text
    assert "1.5 of 64" in text


@ON_SQLITE
def test_a_workload_says_why_it_waits_and_what_would_help(client: Client) -> None:
    text = Text(client("viewer").get("/workloads/team-a/train").text).text
    for words in (
        "Why it waits: waiting for quota",
        "free 3",
        "8",
        "free for it now",
        "2nd in cq",
        "secret",
        "Preempted",
        "needs 8 of nvidia.com/gpu, 5 are free",
    ):
        assert words in text, (words, text)


@ON_SQLITE
def test_what_a_team_sees_is_its_own(client: Client) -> None:
    team = client("team")
    overview = Text(team.get("/?namespace=team-a").text).text
    assert "of namespace team-a" in overview
    assert "not shown" in overview
    assert "stopped" not in overview
    for path in (
        "/queues/cq?namespace=team-a",
        "/workloads?namespace=team-a",
        "/workloads/team-a/train",
        "/usage?namespace=team-a",
    ):
        answer = team.get(path)
        assert answer.status_code == 200, path
        assert "secret" not in answer.text, path
        assert "team-b" not in answer.text, path
        assert "Cohorts" not in answer.text, "there are no links to what they may not see"


@ON_SQLITE
@pytest.mark.parametrize(
    "path",
    ["/", "/cohorts", "/topology", "/queues/cq", "/workloads", "/usage", "/usage.csv", "/?namespace=team-b",
     "/queues/cq?namespace=team-b", "/workloads/team-b/secret", "/usage.csv?namespace=team-b",
     "/workloads?namespace=team-b"],
)  # fmt: skip
def test_what_belongs_to_others_is_refused(client: Client, path: str) -> None:
    answer = client("team").get(path)
    assert answer.status_code == 403
    assert "secret" not in answer.text


@ON_SQLITE
def test_refusals_are_pages_too(client: Client) -> None:
    refused = client("team").get("/")
    assert "list clusterqueues" in Text(refused.text).text
    assert 'name="namespace"' in refused.text, "the way to what they may see"
    assert "There is no ClusterQueue" in Text(client("admin").get("/queues/none").text).text
    unknown = client("stranger").get("/")
    assert (unknown.status_code, unknown.headers["WWW-Authenticate"]) == (401, 'Bearer realm="muster"')
    assert "text/html" in unknown.content_type


@ON_SQLITE
def test_assets_may_be_kept_and_nothing_else(client: Client) -> None:
    page = client("admin").get("/").text
    found = re.findall(r'(?:src|href)="(/assets/[^"]+)"', page)
    assert {name.rpartition("?")[0] for name in found} == {
        "/assets/muster.css",
        "/assets/muster.js",
        "/assets/muster.svg",
    }
    for path in found:
        answer = client("admin").get(path.replace("&amp;", "&"))
        assert answer.status_code == 200
        assert "max-age" in answer.headers["Cache-Control"]
    assert client("admin").get("/assets/pages.py").status_code == 404
    assert client("admin").get("/").headers["Cache-Control"] == "no-store"


@ON_SQLITE
def test_markup_in_messages_and_parameters_stays_text(client: Client) -> None:
    assert "<b>hand</b>" not in client("viewer").get("/").text
    hostile = {"namespace": "<script>alert(1)</script>", "name": "<script>alert(1)</script>"}
    for path in ("/", "/workloads", "/usage"):
        assert "<script>alert" not in client("admin").get(path, query_string=hostile).text


@ON_SQLITE
def test_an_old_read_model_is_said_to_be_old(client: Client) -> None:
    assert "Is the controller running?" in Text(client("viewer").get("/").text).text
    assert not is_old({"ageSeconds": 3.0})
    assert is_old({"ageSeconds": None})


@ON_SQLITE
def test_a_list_goes_on_where_the_page_ended(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queues.inspection.pages.PAGE", 2)
    first = client("viewer").get("/queues/cq").text
    assert "1 to 2 of 3" in Text(first).text
    (further,) = re.findall(r'rel="next" href="([^"]+)"', first)
    assert "later" in Text(client("viewer").get(further).text).text


@pytest.mark.parametrize(
    ("value", "resource", "want"),
    [
        (8, "nvidia.com/gpu", "8"),
        (1500, "cpu", "1.5"),
        (64_000, "cpu", "64"),
        (1 << 34, "memory", "16Gi"),
        (1_000_000, "memory", "976.6Ki"),
        (2**63 - 1, "cpu", "unlimited"),
        (0, "memory", "0"),
    ],
)
def test_amounts_as_people_write_them(value: int, resource: str, want: str) -> None:
    assert amount(value, resource) == want


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (None, ""),
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (500, "8 min 20 s"),
        (7260, "2 h 1 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations(seconds: float | None, want: str) -> None:
    assert duration(seconds) == want


@pytest.mark.parametrize(
    ("nominal", "reserved", "want"),
    [
        (16, 8, {"own": 50, "borrowed": 0, "nominal": 100}),
        (16, 20, {"own": 80, "borrowed": 20, "nominal": 80}),
        (0, 4, {"own": 0, "borrowed": 100, "nominal": 0}),
        (0, 0, {"own": 0, "borrowed": 0, "nominal": 0}),
    ],
)
def test_bars(nominal: int, reserved: int, want: dict[str, float]) -> None:
    assert bar({"nominal": nominal, "reserved": reserved}) == want


@pytest.mark.parametrize(
    ("said", "want"),
    [
        (percent(0.0), "0 %"),
        (percent(0.001), "<1 %"),
        (percent(0.999), "99 %"),
        (percent(1.0), "100 %"),
        (percent(None), "none"),
        (ordinal(0), "1st"),
        (ordinal(10), "11th"),
        (ordinal(21), "22nd"),
        (hours(1234.5), "1,234"),
        (hours(2.345), "2.35"),
    ],
)
def test_numbers_as_people_say_them(said: str, want: str) -> None:
    assert said == want


def test_parts_fill_the_width() -> None:
    found = parts([("a", 3), ("none", 0), ("b", 1)])
    assert [(part.name, part.x, part.width) for part in found] == [("a", 0, 75), ("b", 75, 25)]


def test_a_life_in_phases() -> None:
    def event(kind: str, at: str) -> dict[str, str]:
        return {"kind": kind, "at": f"2026-01-01T{at}:00Z"}

    told = [event("created", "00:00"), event("held", "00:01"), event("admitted", "00:30"), event("preempted", "01:00"),
            event("released", "01:10"), event("requeued", "01:10")]  # fmt: skip
    now = 1_767_225_600.0 + 2 * 3600
    assert [(part.name, part.count) for part in life(told, now)] == [
        ("waits", 1800), ("runs", 1800), ("ends", 600), ("waits", 3000),
    ]  # fmt: skip
    ended = [*told[:3], event("finished", "00:45")]
    assert [(part.name, part.count) for part in life(ended, now)] == [("waits", 1800), ("runs", 900)]
    assert life([], now) == []


def test_a_chart_stacks_teams_and_says_the_scale() -> None:
    steps = [("t0", "t1"), ("t1", "t2")]
    items = [
        {"from": "t0", "clusterQueue": "a", "hours": 30.0},
        {"from": "t0", "clusterQueue": "b", "hours": 50.0},
        {"from": "t1", "clusterQueue": "a", "hours": 10.0},
    ]
    drawn = chart(steps, items, "clusterQueue")
    assert drawn.teams == (("b", 50.0), ("a", 40.0))
    assert [value for value, _ in drawn.lines] == [0, 20, 40, 60, 80]
    first, second = drawn.columns
    assert first.bars == ((0, 37.5, 62.5), (1, 0.0, 37.5))
    assert second.bars == ((1, 87.5, 12.5),)
    assert chart([], [], "clusterQueue").columns == ()


def test_more_teams_than_colours_share_the_last() -> None:
    items = [{"from": "t0", "namespace": f"team-{n}", "hours": 20.0 - n} for n in range(12)]
    (column,) = chart([("t0", "t1")], items, "namespace").columns
    assert [series for series, _, _ in column.bars] == list(range(9))
    assert sum(height for _, _, height in column.bars) == pytest.approx(100 * column.total / 200, abs=0.1)


def test_hosts_drawn_small() -> None:
    assert pips({"capacity": 4, "used": 1}) == [True, False, False, False]
    assert pips({"capacity": 192_000, "used": 1}) == []
    assert short_names(["gpu-b1-07", "gpu-b1-12"]) == {"gpu-b1-07": "07", "gpu-b1-12": "12"}
    assert short_names(["n1", "n10"]) == {"n1": "n1", "n10": "n10"}
    assert short_names(["alone"]) == {"alone": "alone"}


@pytest.mark.parametrize(
    ("path", "accept", "page"),
    [
        pytest.param("/nothing", "text/html,application/xhtml+xml,*/*;q=0.8", True, id="a browser is shown a page"),
        pytest.param("/nothing", "*/*", False, id="a program is told"),
        pytest.param("/api/v1/nothing", "text/html", False, id="and so is whoever asks the API"),
        pytest.param("/apis/nothing", "text/html", False, id="or through the API server"),
    ],
)
def test_a_path_that_is_not_there(client: Client, path: str, accept: str, page: bool) -> None:
    answer = client("admin").get(path, headers={"Accept": accept})
    assert answer.status_code == 404
    assert answer.content_type.startswith("text/html" if page else "application/json")
    assert ("<h1" in answer.text) == page
