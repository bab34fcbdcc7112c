"""What the documentation tells people to write is understood, what they are to type exists, and its site builds."""

from __future__ import annotations

import html.parser
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import jsonschema_rs
import pytest
import yaml

from admission.api.crds import crd
from admission.api.kueue import KINDS
from admission.cli import cli
from admission.settings import Integrations, parse
from admission.settings.problems import FRAMEWORKS
from admission.webhook import kinds
from tests.unit.webhook.asking import FakeCaches, ask, settings

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
EVERY_KIND = settings(integrations=Integrations(frameworks=FRAMEWORKS))
QUEUES = FakeCaches(local_queues=frozenset({("vision", "default"), ("", "default")}))


class Block(NamedTuple):
    """A fenced or indented piece of a page, and the line where it begins."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    inside: list[str] | None = None
    language, began = "", 0
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if (fence := re.match(r"\s*```(\S*)\s*$", line)) is not None:
            if inside is None:
                inside, language, began = [], fence[1], number
            else:
                yield Block(page, began, language, textwrap.dedent("\n".join(inside)))
                inside = None
        elif inside is not None:
            inside.append(line)
        elif line.startswith("    ") and re.match(r"\s+(?:muster|kubectl|helm) ", line):
            yield Block(page, number, "", line.strip())


BLOCKS = [block for page in PAGES for block in blocks(page)]
MANIFESTS = [
    pytest.param(document, id=f"{block} {document['kind']}")
    for block in BLOCKS
    if block.language == "yaml"
    for document in yaml.safe_load_all(block.text)
    if isinstance(document, dict) and {"apiVersion", "kind"} <= document.keys()
]
COMMANDS = [
    pytest.param(line.strip(), id=f"{block} {line.strip()[:40]}")
    for block in BLOCKS
    if block.language in {"", "sh", "bash", "console"}
    for line in block.text.splitlines()
    if re.match(r"\s*(?:\S*bin/)?muster \S", line) or " muster log-level " in line
]


def strict(schema: Any) -> Any:
    """A CRD's schema, as one that refuses what the API server would drop, and that knows quantities."""
    match schema:
        case {"x-kubernetes-int-or-string": True}:
            return {"anyOf": [{"type": "number"}, {"type": "string", "pattern": schema.get("pattern", "")}]}
        case dict():
            made = {key: strict(value) for key, value in schema.items() if not key.startswith("x-")}
            if "properties" in made and isinstance(made["properties"], dict) and made.get("type") == "object":
                made.setdefault("additionalProperties", False)
            return made
        case list():
            return [strict(each) for each in schema]
        case _:
            return schema


SCHEMAS = {
    kind.__name__: strict(crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    | {"properties": strict(crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"])}
    for kind in KINDS
}
for _schema in SCHEMAS.values():
    _schema["properties"]["metadata"] = {"type": "object"}


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_manifests_are_understood(manifest: dict[str, Any]) -> None:
    version, kind = manifest["apiVersion"], manifest["kind"]
    if kind == "Configuration":
        parse(yaml.safe_dump(manifest))
        return
    if version == "kueue.x-k8s.io/v1beta2":
        jsonschema_rs.validate(SCHEMAS[kind], manifest)
    if any(
        f"{each.gvk.group}/{each.gvk.version}".lstrip("/") == version and each.gvk.kind == kind for each in kinds.KINDS
    ):
        for verb in ("mutate", "validate"):
            answer = ask(verb, manifest, caches=QUEUES, with_settings=EVERY_KIND)
            assert answer.allowed, answer.message


def test_there_is_something_to_check() -> None:
    assert len(MANIFESTS) > 20
    assert len(COMMANDS) >= 10
    assert {each.values[0]["kind"] for each in MANIFESTS} >= {
        "ClusterQueue",
        "Cohort",
        "LocalQueue",
        "Topology",
        "Job",
        "Pod",
        "JobSet",
        "PyTorchJob",
        "MPIJob",
        "TrainJob",
        "RayJob",
        "RayService",
        "AppWrapper",
        "SparkApplication",
    }


def test_a_wrong_manifest_would_be_found() -> None:
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "spec": {"clusterQueu": "x"}}
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(SCHEMAS["LocalQueue"], queue)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_exist_with_their_options(line: str) -> None:
    words = shlex.split(
        line[line.index("muster ") :] if " muster log-level" not in line else line.split(" -- ")[1], True
    )
    command: click.Command = cli
    known = {option for parameter in cli.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words[1:]:
        if isinstance(command, click.Group) and not word.startswith("-"):
            found = command.get_command(click.Context(command), word)
            assert found is not None, word
            command = found
            known |= {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        elif word.startswith("-") and not word.lstrip("-").isdigit():
            assert word.split("=")[0] in known | {"--help", "-h", "--"}, word


def test_messages_in_troubleshooting_are_messages_of_the_code() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "admission").rglob("*.py"))
    text = (DOCS / "operations" / "troubleshooting.md").read_text()
    for message in (
        "needs the scheduling gate",
        "is immutable",
        "was not renewed in time",
        "these kinds are not listed yet",
    ):
        assert f"`{message}`" in text
        assert message in sources.replace('" \n', "").replace('"\n', ""), message


def test_every_label_and_annotation_that_people_may_write_is_described() -> None:
    source = (ROOT / "admission" / "api" / "names.py").read_text()
    sections = re.split(r"(?m)^# -{10,} ", source)
    text = (DOCS / "labels.md").read_text()
    named: set[str] = set()
    for section in sections:
        if re.match("on jobs and pods|Muster's own|topology, on|pods and pod groups", section):
            named |= set(re.findall(r'"([\w.-]+\.(?:io|dev)/[\w-]*)"', section))
    assert len(named) > 25
    assert {name for name in named if name not in text} == set()


# ------------------------------------------------------------------ the site


class Addresses(html.parser.HTMLParser):
    """Everything that a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in {"script", "img", "iframe", "source", "audio", "video"} and values.get("src"):
            self.loaded.add(str(values["src"]))
        if tag == "link" and values.get("rel") not in {"canonical", "next", "prev"} and values.get("href"):
            self.loaded.add(str(values["href"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: a link or an anchor that leads nowhere is an error."""
    folder = Path(tmp_path_factory.mktemp("site"))
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_in_the_site_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(list(DOCS.rglob("*.md")))
    for page in pages:
        addresses = Addresses()
        addresses.feed(page.read_text(encoding="utf-8"))
        assert not {each for each in addresses.loaded if re.match(r"(https?:)?//", each)}, page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style.name


def test_drawings_are_part_of_the_pages(site: Path) -> None:
    text = (site / "concepts.html").read_text(encoding="utf-8")
    assert text.count("<svg role=") == 3
    assert text.count("<title id=") == 3
