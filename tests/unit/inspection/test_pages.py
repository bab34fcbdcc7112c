"""The page of the queues: whole, safe, without anything from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from queues.inspection.pages import amount, bar, duration, is_old
from tests.unit.inspection.conftest import ON_SQLITE, Client


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
        if tag not in {"meta", "br", "rect", "link"}:
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


@ON_SQLITE
def test_it_says_what_people_ask(client: Client) -> None:
    page = Text(client("viewer").get("/").text)
    assert page.open == []
    for words in ("cq", "research", "20 of 16", "(4 borrowed)", "1.5 of 64", "2 WaitingForQuota", "1 ExceedsMaxQuota",
                  "8 min 20 s", "Stopped: stopped by <b>hand</b>"):  # fmt: skip
        assert words in page.text, (words, page.text)


@ON_SQLITE
def test_a_namespace_has_its_own_page(client: Client) -> None:
    page = Text(client("team").get("/?namespace=team-a").text)
    assert "of namespace team-a" in page.text
    assert "not shown" in page.text
    assert "stopped" not in page.text


@ON_SQLITE
def test_nothing_is_loaded_from_elsewhere(client: Client) -> None:
    answer = client("viewer").get("/")
    page = Text(answer.text)
    assert not [value for name, value in page.attributes if name in {"src", "href", "action", "srcset", "style"}]
    assert "http://" not in answer.text
    assert "https://" not in answer.text
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    nonce = re.search(r"script-src 'nonce-([^']+)'", policy)
    assert nonce
    assert f'<script nonce="{nonce[1]}">' in answer.text
    assert nonce[1] not in client("viewer").get("/").text, "a nonce is used once"


@ON_SQLITE
def test_markup_in_messages_and_parameters_stays_text(client: Client) -> None:
    assert "<b>hand</b>" not in client("viewer").get("/").text
    hostile = client("admin").get("/", query_string={"namespace": "<script>alert(1)</script>"})
    assert "<script>alert" not in hostile.text


@ON_SQLITE
def test_an_old_read_model_is_said_to_be_old(client: Client) -> None:
    assert "is the controller running?" in Text(client("viewer").get("/").text).text
    assert not is_old({"ageSeconds": 3.0})
    assert is_old({"ageSeconds": None})


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
