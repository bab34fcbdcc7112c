"""Makes the reference pages: every field of the API, every setting, every value of the chart.

Read off the CRDs that the types make, the settings' types and the chart's `values.yaml`. It must never say a sentence
of its own about a field: what is missing here is missing there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from admission.api.crds import crd
from admission.api.kueue import KINDS
from publishing.settings import Section, sections

#: A folder that holds nothing but made files.
MADE: Final = "docs/reference"

_HEADER: Final = "<!-- Made from the code by `python -m publishing`: change that, not this. -->\n\n"
#: In the pattern of every name.
_DNS: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LIMITS: Final = {
    "format": "format",
    "minimum": "at least",
    "maximum": "at most",
    "minLength": "characters at least",
    "maxLength": "characters at most",
    "minItems": "items at least",
    "maxItems": "items at most",
    "maxProperties": "entries at most",
}


def files(root: Path) -> dict[str, str]:
    pages = {
        "api.md": api(),
        "settings.md": settings(),
        "chart.md": chart((root / "webhook-config" / "helm" / "values.yaml").read_text(encoding="utf-8")),
    }
    return {f"{MADE}/{name}": _HEADER + text for name, text in pages.items()}


# ------------------------------------------------------------------ the API


def api() -> str:
    made = [crd(kind) for kind in KINDS]
    listed = "\n".join(
        f"| [{each['spec']['names']['kind']}](#{each['spec']['names']['kind'].lower()}) | "
        f"`{each['spec']['names']['plural']}`{_short(each)} | {each['spec']['scope']} |"
        for each in made
    )
    return (
        "# API\n\n"
        "The kinds of `kueue.x-k8s.io/v1beta2`, field by field. Descriptions, defaults and limits are those of the "
        "CRDs; what the webhook checks besides is in [compatibility](../compatibility.md).\n\n"
        f"| kind | resource | scope |\n|---|---|---|\n{listed}\n\n" + "\n".join(_kind(each) for each in made)
    )


def _short(made: dict[str, Any]) -> str:
    names = made["spec"]["names"].get("shortNames", ())
    return f" ({', '.join(f'`{name}`' for name in names)})" if names else ""


def _kind(made: dict[str, Any]) -> str:
    schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rows = []
    for part in ("spec", "status"):
        if part in schema["properties"]:
            rows += list(_fields(schema["properties"][part], part))
    says = schema.get("description", "")
    table = (
        "| field | type | | says |\n|---|---|---|---|\n" + "\n".join(rows)
        if rows
        else "It has neither spec nor status."
    )
    return f"## {made['spec']['names']['kind']}\n\n{says}\n\n{table}\n\n{_rules(schema)}"


def _fields(schema: dict[str, Any], path: str) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        place = f"{path}.{name}"
        inner = field["items"] if field.get("type") == "array" else field
        is_map = isinstance(inner.get("additionalProperties"), dict)
        notes = _notes(field) + (_notes(inner) if inner is not field else [])
        if name in required:
            notes.insert(0, "**required**")
        yield f"| `{place}` | {_type(field)} | {_cell('; '.join(notes))} | {_cell(field.get('description', ''))} |"
        if "properties" in inner:
            yield from _fields(inner, place + ("[]" if inner is not field else ""))
        elif is_map and "properties" in inner["additionalProperties"]:
            yield from _fields(inner["additionalProperties"], f"{place}.*")


def _type(field: dict[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if isinstance(field.get("additionalProperties"), dict):
        return f"map of {_type(field['additionalProperties'])}"
    return str(field.get("type", "anything"))


def _notes(field: dict[str, Any]) -> list[str]:
    notes = []
    if "default" in field:
        notes.append(f"default `{_plain(field['default'])}`")
    if "enum" in field:
        notes.append("one of " + ", ".join(f"`{each}`" for each in field["enum"]))
    if not field.get("x-kubernetes-int-or-string"):
        notes += [f"{words} `{field[name]}`" for name, words in _LIMITS.items() if name in field]
    if "pattern" in field and not field.get("x-kubernetes-int-or-string"):
        notes.append("a name as DNS has it" if _DNS in field["pattern"] else f"pattern `{field['pattern']}`")
    return notes


def _rules(schema: dict[str, Any]) -> str:
    """The sentences of all CEL rules, which say what may not be combined or changed."""
    found = list(dict.fromkeys(_messages(schema)))
    return "Rules:\n\n" + "\n".join(f"- {message}" for message in found) + "\n" if found else ""


def _messages(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for rule in schema.get("x-kubernetes-validations", ()):
            yield rule["message"]
        for value in schema.values():
            yield from _messages(value)


# ------------------------------------------------------------------ settings


def settings() -> str:
    return (
        "# Settings\n\n"
        "Every field of the file that `--config` names, by section. What a field is good for, and which of Kueue's "
        "fields are refused, is in [configuration](../configuration.md). Durations are written like `30s`, `5m`, "
        "`1h30m`.\n\n" + "\n".join(_section(section) for section in sections())
    )


def _section(section: Section) -> str:
    title = f"`{section.path}`" if section.path else "The file"
    rows = "\n".join(f"| `{field.path}` | {_cell(field.type)} | {_cell(field.default)} |" for field in section.fields)
    says = f"{_camel(section.says)}\n\n" if section.says else ""
    return f"## {title}\n\n{says}| field | type | default |\n|---|---|---|\n{rows}\n"


def _camel(text: str) -> str:
    """Names in backticks, as they are written in the file."""

    def changed(found: re.Match[str]) -> str:
        first, *others = found[1].split("_")
        return f"`{first}{''.join(part.title() for part in others)}`"

    return re.sub(r"`([a-z][a-z0-9]*(?:_[a-z0-9]+)+)`", changed, text)


# ------------------------------------------------------------------ the chart


def chart(values: str) -> str:
    rows = "\n".join(
        f"| `{path}` | {_cell(f'`{_plain(default)}`' if default not in ('', [], {}) else '')} | {_cell(says)} |"
        for path, default, says in _values(values)
    )
    return (
        "# Values of the Helm chart\n\n"
        "`helm install muster webhook-config/helm --namespace muster-system --create-namespace --values FILE`. "
        "A value that does not exist is refused, and so are settings that Muster does not know.\n\n"
        f"| value | default | says |\n|---|---|---|\n{rows}\n"
    )


def _values(text: str) -> Iterator[tuple[str, Any, str]]:
    """Path, default and words of everything that has a comment `# --`."""
    document = yaml.safe_load(text)
    above: list[str] = []
    says = ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- "):
            says = stripped.removeprefix("# -- ")
        elif found := re.match(r"( *)([A-Za-z]\w*):", line):
            depth = len(found[1]) // 2
            above = [*above[:depth], found[2]]
            if says:
                value = document
                for step in above:
                    value = value[step]
                yield ".".join(above), value if above != ["settings"] else "", says
            says = ""


def _plain(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case dict() | list():
            return yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False).strip()
        case _:
            return str(value)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
