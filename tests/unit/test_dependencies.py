"""What the code imports is declared, so that no other package's change can take it away."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = ("admission", "queues", "migrations")
#: Their names as packages: what is declared is that of the distribution.
OURS = {"admission", "queues"}


def imported(folder: str) -> Iterator[str]:
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import():
                    yield from (each.name.partition(".")[0] for each in node.names)
                case ast.ImportFrom(module=str(module), level=0):
                    yield module.partition(".")[0]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {normal(re.split(r"[^\w.-]", each, maxsplit=1)[0]) for each in project["dependencies"]}


@pytest.mark.parametrize("folder", SHIPPED)
def test_what_is_imported_is_declared(folder: str) -> None:
    distributions = packages_distributions()
    foreign = set(imported(folder)) - OURS - sys.stdlib_module_names
    assert foreign
    undeclared = {name for name in foreign if not declared() & {normal(each) for each in distributions.get(name, ())}}
    assert undeclared == set()


@pytest.mark.parametrize("name", sorted(declared()))
def test_the_readme_says_what_each_is_for(name: str) -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Dependencies")[2]
    named = {each for row in re.findall(r"^\| ([^|]+) \|", table, flags=re.MULTILINE) for each in row.split(", ")}
    assert name in named
