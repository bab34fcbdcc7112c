"""Turns a settings file into `Settings`, or says which field is wrong and what to do about it.

Works from the file's text and from the namespace that the process runs in. A setting that would do nothing is an error
or a warning, never passed over in silence.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import yaml

from admission.settings import durations, gpu_shares
from admission.settings.configuration import (
    V1BETA1,
    V1BETA2,
    Settings,
    WaitForPodsReady,
)
from admission.settings.durations import Seconds
from admission.settings.problems import STRATEGY_LISTS, problems

DEFAULT_NAMESPACE: Final = "kueue-system"
_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class SettingsError(Exception):
    """A settings file that cannot be used; each problem names its field and what to do."""

    def __init__(self, source: str, problems: list[str]) -> None:
        self.source = source
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{source}: {problem}" for problem in problems))


def load(path: str | os.PathLike[str] | None = None) -> Settings:
    """Read the settings file at `path`; None gives the defaults."""
    if path is None:
        return parse("", "settings")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(str(path), [f"cannot be read: {error}; name a file with --config"]) from error
    return parse(text, str(path))


def parse(text: str, source: str = "settings") -> Settings:
    """Settings from YAML (or JSON)."""
    try:
        document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # both are safe
    except yaml.YAMLError as error:
        raise SettingsError(source, [f"is not YAML: {error}"]) from error
    if document is None:
        document = {"apiVersion": V1BETA2, "kind": "Configuration"}
    if not isinstance(document, dict):
        raise SettingsError(source, ["is not a mapping; write a Configuration with apiVersion and kind"])
    raw = _without_nulls(document)
    _check_kind(raw, source)
    if raw["apiVersion"] == V1BETA1 and (found := _from_v1beta1(raw)):
        raise SettingsError(source, found)
    try:
        settings = msgspec.convert(raw, Settings, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise SettingsError(source, [_explained(str(error))]) from error
    settings = _completed(settings)
    if found := list(problems(settings)):
        raise SettingsError(source, found)
    return settings


def dump(settings: Settings) -> str:
    """YAML that `parse` reads back as the same settings."""
    priced = gpu_shares.prices(settings.muster.gpu_shares)
    own = tuple(each for each in settings.resources.transformations if each.input not in priced)
    resources = msgspec.structs.replace(settings.resources, transformations=own)
    raw = msgspec.to_builtins(msgspec.structs.replace(settings, resources=resources), enc_hook=_encode)
    if settings.wait_for_pods_ready is None:
        raw.setdefault("featureGates", {})["DisableWaitForPodsReady"] = True
    return yaml.safe_dump({"apiVersion": V1BETA2, "kind": "Configuration", **raw}, sort_keys=True)


# ------------------------------------------------------------------ reading


def _without_nulls(value: Any) -> Any:
    """A field that is null is a field that is absent, as for every Kubernetes object."""
    match value:
        case dict():
            return {str(key): _without_nulls(item) for key, item in value.items() if item is not None}
        case list():
            return [_without_nulls(item) for item in value]
        case _:
            return value


def _check_kind(raw: dict[str, Any], source: str) -> None:
    if raw.get("apiVersion") not in {V1BETA1, V1BETA2}:
        raise SettingsError(source, [f"apiVersion: {raw.get('apiVersion')!r} is not supported; write {V1BETA2}"])
    if raw.get("kind") != "Configuration":
        raise SettingsError(source, [f"kind: {raw.get('kind')!r} is not supported; write Configuration"])


def _from_v1beta1(raw: dict[str, Any]) -> list[str]:
    """Rewrite an older document in place; what has no place in v1beta2 is a problem."""
    found = []
    raw["apiVersion"] = V1BETA2
    ready = raw.get("waitForPodsReady")
    if ready is None or (isinstance(ready, dict) and not ready.pop("enable", False)):
        raw.pop("waitForPodsReady", None)
        raw.setdefault("featureGates", {})["DisableWaitForPodsReady"] = True
    sharing = raw.get("fairSharing")
    if isinstance(sharing, dict):
        if sharing.pop("enable", False):
            sharing.setdefault("preemptionStrategies", [strategy.value for strategy in STRATEGY_LISTS[2]])
        else:
            del raw["fairSharing"]
    integrations = raw.get("integrations")
    if isinstance(integrations, dict) and "podOptions" in integrations:
        found.append("integrations.podOptions: is gone in v1beta2; use managedJobsNamespaceSelector")
    if raw.pop("queueVisibility", None):
        found.append("queueVisibility: is gone; remove it and ask the visibility API for pending workloads")
    return found


def _decode(kind: type, value: object) -> object:
    if kind is Seconds and isinstance(value, str):
        return durations.parse(value)
    raise ValueError(f"Expected a duration like 30s, 5m or 1h30m, got {value!r}")


def _encode(value: object) -> object:
    if isinstance(value, Seconds):
        return durations.render(value)
    raise TypeError(f"{type(value).__name__} has no place in a settings file")


def _explained(message: str) -> str:
    """The decoder's message with the field's path first; for an unknown field, the nearest known name."""
    text, _, place = message.partition(" - at `")
    path = place.rstrip("`").removeprefix("$").removeprefix(".")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", text)
    if unknown is None:
        return f"{path or 'the document'}: {text}"
    name = unknown[1]
    known = _names_at(path)
    near = difflib.get_close_matches(name, known, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
    return f"{path + '.' if path else ''}{name}: unknown field; {remedy}"


def _names_at(path: str) -> list[str]:
    """The field names that the section at `path` knows."""
    kind: Any = Settings
    for step in re.sub(r"\[[^]]*\]", "", path).split(".") if path else []:
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        kind = next(_sections(fields.get(step)), Settings)
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _sections(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for part in get_args(kind):
        yield from _sections(part)


def _completed(settings: Settings) -> Settings:
    """Put in what depends on the surroundings or on another field."""
    namespace = settings.namespace
    if not namespace:
        try:
            namespace = _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
        except OSError:
            namespace = DEFAULT_NAMESPACE
    ready = settings.wait_for_pods_ready
    if settings.gate("DisableWaitForPodsReady"):
        ready = None
    elif ready is None:
        ready = WaitForPodsReady()
    resources = settings.resources
    if priced := gpu_shares.transformations(settings.muster.gpu_shares):
        resources = msgspec.structs.replace(resources, transformations=(*resources.transformations, *priced))
    return msgspec.structs.replace(settings, namespace=namespace, wait_for_pods_ready=ready, resources=resources)
