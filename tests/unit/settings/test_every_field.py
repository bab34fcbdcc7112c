"""No field of the settings is passed over in silence: each is read somewhere, or refused or warned of by its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import yaml

import admission
from admission.api import meta
from admission.settings import Settings, SettingsError, gates, parse, warnings

ROOT = Path(admission.__file__).parent
DOCUMENT = ROOT.parent / "docs" / "configuration.md"

#: What is refused whatever it says, with an example; the refusal names the field.
REFUSED: dict[str, Any] = {
    "pprofBindAddress": ":6060",
    "tls.curvePreferences": [23],
    "integrations.externalFrameworks": ["Job.v1.example.com"],
    "multiKueue": {"gcInterval": "1m"},
}

#: What is taken and has no effect of its own; it is warned of.
WARNED: dict[str, Any] = {"controller.groupKindConcurrency": {"Job.batch": 5}}

#: What says which document it is; `admission.settings.loading` checks it before anything is read.
KIND = {"apiVersion", "kind"}


def fields(kind: type[msgspec.Struct], path: str = "") -> Iterator[tuple[str, str]]:
    """Path and attribute of everything that can be set, sections unfolded."""
    for field in msgspec.structs.fields(kind):
        here = f"{path}.{field.encode_name}" if path else field.encode_name
        inner = list(_sections(field.type))
        if not inner or here in REFUSED or here in WARNED:
            yield here, field.name
        for section in inner if here not in REFUSED else ():
            yield from fields(section, here)


def _sections(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and not issubclass(kind, meta.LabelSelector):
        yield kind
    for part in get_args(kind):
        yield from _sections(part)


@cache
def attributes_read() -> frozenset[str]:
    """Every attribute that any module reads, but for the module that declares the settings."""
    found: set[str] = set()
    for file in ROOT.rglob("*.py"):
        if file.name != "configuration.py" or file.parent.name != "settings":
            tree = ast.parse(file.read_text(encoding="utf-8"))
            found |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    # What the settings derive for others counts as read where they are.
    declared = ast.parse((ROOT / "settings" / "configuration.py").read_text(encoding="utf-8"))
    for node in ast.walk(declared):
        if isinstance(node, ast.FunctionDef):
            found |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return frozenset(found)


EVERY = sorted(set(fields(Settings)))


def document(path: str, value: Any) -> str:
    raw: Any = value
    for name in reversed(path.split(".")):
        raw = {name: raw}
    return yaml.safe_dump({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **raw})


def test_all_sections_are_walked() -> None:
    paths = {path for path, _ in EVERY}
    assert {"webhook.port", "muster.gpuShares.presets", "resources.transformations.multiplyBy"} <= paths
    assert len(paths) > 90


@pytest.mark.parametrize(("path", "attribute"), [each for each in EVERY if each[0] not in KIND], ids=lambda each: each)
def test_each_field_is_honoured_or_refused_by_name(path: str, attribute: str) -> None:
    if path in REFUSED:
        with pytest.raises(SettingsError) as refused:
            parse(document(path, REFUSED[path]))
        assert any(problem.startswith(f"{path}: ") for problem in refused.value.problems), refused.value.problems
        assert any("; " in problem or "remove" in problem for problem in refused.value.problems), "it says what to do"
    elif path in WARNED:
        assert any(warning.startswith(path) for warning in warnings(parse(document(path, WARNED[path]))))
    else:
        assert attribute in attributes_read(), f"{path} is read by nothing"


@pytest.mark.parametrize("path", [path for path, _ in EVERY if path not in KIND], ids=str)
def test_each_field_is_documented(path: str) -> None:
    """By its name, or with all of its section."""
    text = DOCUMENT.read_text(encoding="utf-8")
    names = path.removeprefix("muster.").split(".")
    sections = {f"`{'.'.join(names[:length])}.*`" for length in range(1, len(names))}
    sections |= {f"`{'.'.join(names[:length])}`" for length in range(1, len(names))}
    assert names[-1] in text or any(section in text for section in sections)


@pytest.mark.parametrize("gate", sorted(gates.SWITCHED))
def test_each_gate_that_can_be_switched_is_read(gate: str) -> None:
    """By its name, somewhere beside the table of gates."""
    quoted = f'"{gate}"'
    files = (file for file in ROOT.rglob("*.py") if file.name != "gates.py")
    assert any(quoted in file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize("gate", sorted(gates.FIXED))
def test_each_gate_that_is_fixed_is_refused_with_the_other_value(gate: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse(document(f"featureGates.{gate}", not gates.FIXED[gate]))
    assert refused.value.problems[0].startswith(f"featureGates.{gate}: ")
    parse(document(f"featureGates.{gate}", gates.FIXED[gate]))
