"""Decides which mappings of device classes to resources of quota cannot be used.

Works from the settings alone, with Kueue's bounds; each sentence begins with the field's path and ends with what to do.
Selectors of sources are read here once, so that none is found to be broken when the first claim comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from admission.api.cel import compiled
from admission.api.cel_syntax import CelError
from admission.settings.configuration import DeviceClassMapping, DeviceClassSource, DeviceSource

if TYPE_CHECKING:
    from admission.settings.configuration import Settings

COUNTERS_GATE: Final = "KueueDRAIntegrationPartitionableDevices"
CAPACITY_GATE: Final = "KueueDRAIntegrationConsumableCapacity"

_MOST_MAPPINGS: Final = 16
_MOST_CLASSES: Final = 8
_LONGEST_NAME: Final = 253
_LONGEST_DRIVER: Final = 63
_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED: Final = re.compile(
    r"^(?:(?=[^/]{1,253}/)[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)


def problems(settings: Settings) -> Iterator[str]:
    """What cannot be used of `resources.deviceClassMappings`."""
    mappings = settings.resources.device_class_mappings
    if len(mappings) > _MOST_MAPPINGS:
        yield f"resources.deviceClassMappings: {len(mappings)} are too many; at most {_MOST_MAPPINGS}"
    if mappings and not settings.gate("KueueDRAIntegration"):
        yield "resources.deviceClassMappings: needs the feature gate KueueDRAIntegration; switch it on or remove it"
    resources: set[str] = set()
    for index, mapping in enumerate(mappings):
        path = f"resources.deviceClassMappings[{index}]"
        if not _is_qualified_name(mapping.name):
            yield f"{path}.name: {mapping.name!r} is not a resource name"
        elif mapping.name in resources:
            yield f"{path}.name: {mapping.name!r} is there twice; merge the two"
        resources.add(mapping.name)
        yield from _class_problems(path, mapping, mappings[:index])
        yield from _sources_problems(f"{path}.sources", mapping, settings)


def _class_problems(path: str, mapping: DeviceClassMapping, before: tuple[DeviceClassMapping, ...]) -> Iterator[str]:
    names = mapping.device_class_names
    if not 1 <= len(names) <= _MOST_CLASSES:
        yield f"{path}.deviceClassNames: name 1 to {_MOST_CLASSES} device classes, not {len(names)}"
    for place, name in enumerate(names):
        where = f"{path}.deviceClassNames[{place}]"
        if not _is_qualified_name(name):
            yield f"{where}: {name!r} is not the name of a device class"
        elif name in names[:place]:
            yield f"{where}: {name!r} is there twice; remove one"
        for other in before:
            if name in other.device_class_names and not _may_share(mapping, other):
                yield (
                    f"{where}: {name!r} counts as {other.name} already; name it once, "
                    "or give both mappings sources of different counters"
                )


def _may_share(one: DeviceClassMapping, other: DeviceClassMapping) -> bool:
    """Whether a device may count as both: by counters of different names."""
    mine, theirs = _counters(one), _counters(other)
    return bool(mine) and bool(theirs) and mine.isdisjoint(theirs)


def _counters(mapping: DeviceClassMapping) -> set[str]:
    return {source.counter.name for source in mapping.sources if source.counter is not None}


def _sources_problems(path: str, mapping: DeviceClassMapping, settings: Settings) -> Iterator[str]:
    kinds = set()
    for place, source in enumerate(mapping.sources):
        here = f"{path}[{place}]"
        if (source.counter is None) == (source.capacity is None):
            yield f"{here}: write one of counter and capacity"
            continue
        kind, gate, found = _kind_of(source)
        kinds.add(kind)
        if not settings.gate(gate):
            yield f"{here}.{kind}: needs the feature gate {gate}; switch it on or remove this"
        yield from _source_problems(f"{here}.{kind}", found, is_counter=kind == "counter")
    if len(kinds) > 1:
        yield f"{path}: counters and capacity cannot be mixed; make two mappings"


def _kind_of(source: DeviceClassSource) -> tuple[str, str, DeviceSource]:
    if source.counter is not None:
        return "counter", COUNTERS_GATE, source.counter
    assert source.capacity is not None  # noqa: S101
    return "capacity", CAPACITY_GATE, source.capacity


def _source_problems(path: str, source: DeviceSource, *, is_counter: bool) -> Iterator[str]:
    if is_counter and not _LABEL.fullmatch(source.name):
        yield f"{path}.name: {source.name!r} is not the name of a counter"
    if not is_counter and not _is_qualified_name(source.name):
        yield f"{path}.name: {source.name!r} is not the name of a capacity"
    if len(source.driver) > _LONGEST_DRIVER or not _SUBDOMAIN.fullmatch(source.driver):
        yield f"{path}.driver: {source.driver!r} is not the name of a driver"
    try:
        compiled(source.device_selector.cel.expression)
    except CelError as error:
        yield f"{path}.deviceSelector.cel.expression: {error}; write it in other words"


def _is_qualified_name(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _QUALIFIED.fullmatch(name) is not None
