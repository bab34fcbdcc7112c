"""Makes the CRDs from the API types and the annotations that stand on their fields.

`python -m admission.api.crds` writes them to `webhook-config/crds`, `--check` says whether what stands there is stale.
One version is served; another (v1beta1, with its conversion) is an overlay over these files and must not change them.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from admission.api import names
from admission.api.kueue import KINDS
from admission.api.meta import ObjectMeta
from admission.api.schema import QUANTITY_PATTERN, Cel, Column, Definition, Schema
from admission.resources import webhook_config

_HEADER = "# Made from admission/api by `python -m admission.api.crds`: change the types, not this file.\n"
_SCALARS = {str: "string", int: "integer", bool: "boolean"}


def main(arguments: list[str]) -> int:
    """Write the files (with `--overlay` those of v1beta1), or with `--check` compare them; 1 when they are stale."""
    folder, wanted = webhook_config() / "crds", files()
    if overlay := "--overlay" in arguments:
        from admission.api import v1beta1_crds

        folder, wanted = webhook_config() / v1beta1_crds.FOLDER, v1beta1_crds.files()
    if "--check" in arguments:
        differences = list(stale(folder, wanted))
        sys.stdout.writelines(differences)
        if differences:
            sys.stderr.write(f"they are stale: run `python -m admission.api.crds{' --overlay' if overlay else ''}`\n")
        return int(bool(differences))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in wanted.items():
        (folder / name).write_text(text)
    return 0


def stale(folder: Path, wanted: Mapping[str, str] | None = None) -> Iterator[str]:
    """The lines in which the folder differs from what the types make: `wanted`, or else the CRDs."""
    wanted = files() if wanted is None else wanted
    there = {path.name: path.read_text() for path in folder.glob("*.yaml")} if folder.is_dir() else {}
    for name in sorted(wanted.keys() | there.keys()):
        yield from difflib.unified_diff(
            there.get(name, "").splitlines(keepends=True),
            wanted.get(name, "").splitlines(keepends=True),
            fromfile=f"{folder.name}/{name}",
            tofile=f"{name} made from the types",
        )


def files() -> dict[str, str]:
    """Name and text of every file: a CRD for each kind, and the kustomization that lists them."""
    made = {f"{names.GROUP}_{kind.DEFINITION.plural}.yaml": to_yaml(crd(kind)) for kind in KINDS}
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(made),
    }
    return {**made, "kustomization.yaml": to_yaml(kustomization)}


def crd(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind, as a manifest."""
    definition: Definition = kind.DEFINITION  # type: ignore[attr-defined]  # every kind has one
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{definition.plural}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": kind.__name__,
                "listKind": f"{kind.__name__}List",
                "plural": definition.plural,
                "singular": kind.__name__.lower(),
                **({"shortNames": list(definition.short_names)} if definition.short_names else {}),
            },
            "scope": "Namespaced" if definition.namespaced else "Cluster",
            "versions": [version(kind, names.VERSION, storage=True)],
        },
    }


def version(kind: type[msgspec.Struct], name: str, *, storage: bool) -> dict[str, Any]:
    """What a CRD says of one version that is served."""
    definition: Definition = kind.DEFINITION  # type: ignore[attr-defined]  # every kind has one
    selectable = [{"jsonPath": path} for path in definition.selectable]
    columns = [_column(column) for column in definition.columns]
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema_of(kind)},
        **({"subresources": {"status": {}}} if definition.has_status else {}),
        **({"selectableFields": selectable} if selectable else {}),
        **({"additionalPrinterColumns": columns} if columns else {}),
    }


def schema_of(annotation: Any) -> dict[str, Any]:
    """The structural schema of a type, with what its annotations and its class ask for."""
    base, rules = _unwrapped(annotation)
    schema = _plain(base, rules)
    schema |= _bounds(rules)
    if rules.atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    if rules.one_of:
        schema["oneOf"] = [{"required": [name]} for name in rules.one_of]
    if rules.cel:
        schema["x-kubernetes-validations"] = [_validation(cel) for cel in rules.cel]
    return schema


def _unwrapped(annotation: Any) -> tuple[Any, Schema]:
    """The bare type and its rules; those further out win over those further in. `None` only means optional."""
    found: list[Schema] = []
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *extras = get_args(annotation)
            found[:0] = [extra for extra in extras if isinstance(extra, Schema)]
        elif get_origin(annotation) in {Union, types.UnionType} and type(None) in get_args(annotation):
            annotation = Union[tuple(arm for arm in get_args(annotation) if arm is not type(None))]  # noqa: UP007
        else:
            break
    if isinstance(annotation, type) and isinstance(own := getattr(annotation, "SCHEMA", None), Schema):
        found.insert(0, own)
    rules: dict[str, Any] = {}
    for schema in found:
        for field in dataclasses.fields(Schema):
            value = getattr(schema, field.name)
            if value != field.default:
                rules[field.name] = rules.get("cel", ()) + value if field.name == "cel" else value
    return annotation, Schema(**rules)


def _plain(base: Any, rules: Schema) -> dict[str, Any]:
    if rules.quantity:
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": True,
        }
    if rules.opaque:
        return {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "x-kubernetes-map-type": "atomic",
        }
    if base in _SCALARS:
        return {"type": _SCALARS[base]}
    origin = get_origin(base)
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(get_args(base)[1])}
    if origin is tuple:
        return {"type": "array", "items": schema_of(get_args(base)[0])}
    if isinstance(base, type) and issubclass(base, msgspec.Struct):
        return {"type": "object"} if base is ObjectMeta else _object(base)
    raise TypeError(f"no schema for {base!r}")


def _object(struct: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(struct, include_extras=True)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for field in msgspec.structs.fields(struct):
        properties[field.encode_name] = schema_of(hints[field.name])
        if _unwrapped(hints[field.name])[1].required:
            required.append(field.encode_name)
    return {
        "type": "object",
        **({"description": inspect.cleandoc(struct.__doc__)} if struct.__doc__ else {}),
        **({"required": required} if required else {}),
        "properties": properties,
    }


def _bounds(rules: Schema) -> dict[str, Any]:
    said = {
        "description": rules.description,
        "default": rules.default,
        "enum": list(rules.enum) or None,
        "pattern": rules.pattern,
        "format": rules.format,
        "minimum": rules.minimum,
        "maximum": rules.maximum,
        "minLength": rules.min_length,
        "maxLength": rules.max_length,
        "minItems": rules.min_items,
        "maxItems": rules.max_items,
        "maxProperties": rules.max_properties,
        "x-kubernetes-list-type": rules.list_type,
        "x-kubernetes-list-map-keys": list(rules.list_keys) or None,
    }
    return {key: value for key, value in said.items() if value is not None}


def _validation(cel: Cel) -> dict[str, str]:
    return {"rule": cel.rule, "message": cel.message, **({"fieldPath": cel.field} if cel.field else {})}


def _column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "jsonPath": column.path,
        "type": column.type,
        **({"priority": 1} if column.wide else {}),
    }


class _Dumper(yaml.SafeDumper):
    """Without anchors: they would make the files hard to read."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is yaml's
        return True


def to_yaml(*documents: Any) -> str:
    """A generated file."""
    return _HEADER + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
