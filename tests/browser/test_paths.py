"""The paths people take through the pages, in a real browser: by mouse, by keyboard, on a phone."""

from __future__ import annotations

import csv

from msgspec.structs import replace
from playwright.sync_api import Page, expect

from queues.journal.entries import WorkloadState
from tests.browser import seed
from tests.browser.conftest import WIDTHS, Site, Visiting, read

PAGES = (
    "/",
    "/cohorts",
    "/queues/pretraining",
    "/workloads",
    "/workloads/team-llm/moe-ablation-12",
    "/workloads/team-llm/llama-405b-warmup",
    "/workloads/team-llm/llama-70b-run-7",
    "/topology",
    "/topology?flavor=h100&at=block-2/rack-4",
    "/usage",
)


def test_from_the_overview_to_why_a_job_waits(visit: Visiting) -> None:
    page = visit().go("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    page.get_by_role("rowheader", name="pretraining").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("pretraining")
    page.get_by_role("link", name="moe-ablation-12", exact=True).click()
    why = page.get_by_role("region", name="Why it waits: waiting for quota")
    expect(why).to_contain_text(["128", "needs"][0])
    expect(why).to_contain_text("The smallest change that would help")
    expect(why).to_contain_text("64 GPUs given back")
    expect(page.get_by_role("heading", name="2nd in pretraining")).to_be_visible()
    page.get_by_role("region", name="What happened").get_by_role("link", name="job-red-team-1").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("red-team-1")


def test_a_placement_that_failed_names_the_closest_domains(visit: Visiting) -> None:
    page = visit().go("/workloads/team-llm/llama-405b-warmup")
    closest = page.locator(".closest li")
    expect(closest.first).to_contain_text("block-2 / rack-4")
    expect(closest.first).to_contain_text("8 of 16 pods fit")
    closest.first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("rack-4 rack")


def test_what_runs_says_where_and_who_went_for_it(visit: Visiting) -> None:
    page = visit().go("/workloads/team-llm/llama-70b-run-7")
    expect(page.get_by_role("region", name="Running for")).to_contain_text("gpu-b1-r1-01")
    page.get_by_role("region", name="Displaced for it").get_by_role("link", name="job-vision-probe").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Ended")


def test_a_job_is_found_by_the_beginning_of_its_name(visit: Visiting) -> None:
    page = visit().go("/")
    page.keyboard.press("/")
    page.keyboard.type("red-team")
    page.keyboard.press("Enter")
    expect(page.get_by_text("8 workloads")).to_be_visible()
    page.get_by_role("link", name="red-team-3").click()
    expect(page.get_by_role("region", name="Why it waits")).to_be_visible()


def test_the_map_of_hosts_by_mouse(visit: Visiting) -> None:
    page = visit().go("/topology")
    expect(page.get_by_role("region", name="rack rack-4").last).to_contain_text("18 of 96")
    page.get_by_label("gpu-b1-r1-03: 8 of 8 GPUs in use").click()
    page.get_by_role("link", name="job-llama-70b-run-7").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("llama-70b-run-7")


def test_the_map_of_hosts_by_keyboard(visit: Visiting) -> None:
    page = visit().go("/topology")
    first = page.locator("[data-grid] summary").first
    first.focus()
    for key, want in (("ArrowRight", "02"), ("End", "12"), ("Home", "01"), ("ArrowDown", "06"), ("ArrowUp", "01")):
        page.keyboard.press(key)
        expect(page.locator(":focus .label")).to_have_text(want)
    page.keyboard.press("Enter")
    expect(page.locator("details.host[open] .card")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("details.host[open]")).to_have_count(0)
    stops = page.locator('[data-grid] summary[tabindex="0"]')
    expect(stops).to_have_count(page.locator("[data-grid]").count())


def test_the_skip_link_leads_past_the_navigation(visit: Visiting) -> None:
    page = visit().go("/")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to content")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_usage_as_a_chart_and_as_csv(visit: Visiting) -> None:
    page = visit().go("/usage")
    shown = page.get_by_role("figure").get_by_text("GPU-hours").first.inner_text()
    page.get_by_role("link", name="by namespace").click()
    expect(page.get_by_role("row", name="serving")).to_be_visible()
    with page.expect_download() as waited:
        page.get_by_role("link", name="Download as CSV").click()
    assert waited.value.suggested_filename == "usage-2026-12-16-to-2027-01-15.csv"
    rows = list(csv.DictReader(read(waited.value.path()).splitlines()))
    assert {row["team"] for row in rows} >= {"team-llm", "serving", "recsys"}
    total = sum(float(row["hours"]) for row in rows if row["resource"] == seed.GPU)
    assert f"{total:,.0f} GPU-hours" == shown


def test_the_cohorts_open_and_close(visit: Visiting) -> None:
    page = visit().go("/cohorts")
    leaf = page.get_by_role("link", name="pretraining")
    expect(leaf).to_be_visible()
    page.locator("summary", has_text="research").press("Enter")
    expect(leaf).to_be_hidden()


def test_a_page_that_is_looked_at_goes_on_living(visit: Visiting, site: Site) -> None:
    page = visit().go("/queues/sandbox")
    link = page.get_by_role("link", name="mystery")
    link.focus()
    mystery = next(row for row in seed.workloads() if getattr(row, "uid", "") == "mystery")
    site.tell(replace(mystery, uid="newcomer", name="job-newcomer", owners=(), queued_at=seed.NOW - 1))
    expect(page.get_by_role("link", name="job-newcomer")).to_be_visible()
    expect(link).to_be_focused()
    page.get_by_role("button", name="Live").click()
    expect(page.get_by_role("button", name="Paused")).to_be_visible()
    site.tell(replace(mystery, uid="newcomer", name="job-newcomer", state=WorkloadState.ADMITTED))


def test_a_team_sees_its_own(visit: Visiting) -> None:
    visiting = visit("sam")
    page = visiting.go("/?namespace=team-safety")
    expect(page.get_by_role("navigation", name="Pages")).not_to_contain_text("Topology")
    page.get_by_role("rowheader", name="alignment").get_by_role("link").click()
    expect(page.get_by_role("link", name="red-team-1")).to_be_visible()
    assert "team-llm" not in page.content()


def test_who_may_see_nothing_is_shown_the_way(visit: Visiting) -> None:
    visiting = visit("sam")
    page = visiting.go("/")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Forbidden")
    page.get_by_label("Namespace").fill("team-safety")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues of namespace team-safety")
    visiting.faults = [fault for fault in visiting.faults if "403" not in fault]


def test_every_page_fits_every_window(visit: Visiting) -> None:
    visiting = visit()
    for path in PAGES:
        page = visiting.go(path)
        assert problems(page) == [], path
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)


def test_light_and_dark_differ(visit: Visiting) -> None:
    page = visit().go("/")
    papers = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        papers.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert papers[0] != papers[1]


def problems(page: Page) -> list[str]:
    """What somebody who does not see the page would miss."""
    found: list[str] = page.evaluate(
        """() => {
          const found = [];
          const tell = (what, element) => found.push(`${what}: ${element.outerHTML.slice(0, 120)}`);
          if (document.querySelectorAll("h1").length !== 1) found.push("not one heading of the page");
          let level = 1;
          for (const heading of document.querySelectorAll("main :is(h1, h2, h3, h4)")) {
            const next = Number(heading.nodeName[1]);
            if (next > level + 1) tell("a level of headings is left out", heading);
            level = next;
          }
          for (const drawn of document.querySelectorAll("svg:not([aria-hidden=true])")) {
            if (!drawn.getAttribute("aria-label")) tell("a drawing without words", drawn);
          }
          for (const field of document.querySelectorAll("input:not([type=hidden]), select")) {
            if (!field.labels.length) tell("a field without a label", field);
          }
          for (const one of document.querySelectorAll("a, button, summary")) {
            if (!(one.getAttribute("aria-label") || one.textContent).trim()) tell("nothing to say", one);
          }
          for (const cell of document.querySelectorAll("th")) if (!cell.scope) tell("a header of nothing", cell);
          for (const one of document.querySelectorAll("[aria-labelledby]")) {
            if (!document.getElementById(one.getAttribute("aria-labelledby"))) tell("named after nothing", one);
          }
          return found;
        }"""
    )
    return found


def test_without_scripts_everything_is_there(visit: Visiting) -> None:
    page = visit(java_script_enabled=False).go("/topology")
    assert page.locator("[data-grid] summary").count() == 96
    assert page.locator("#live").is_hidden()
