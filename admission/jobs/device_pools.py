"""What the devices of one driver that a claim may get would cost: by their counters or their capacity.

Made from the driver's ResourceSlices, of which only whole pools count. Many devices are equal in all that a selector
looks at, so each kind is judged once; the answers are kept as long as the slices stay. A charge is the largest that any
device which may be allocated would have: it must never be less than what the scheduler takes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from admission.api import devices
from admission.api.cel import Selector, compiled
from admission.api.cel_operations import Device, Unanswered, Value, by_domain
from admission.api.cel_syntax import CelError
from admission.api.cel_values import amount, version
from admission.api.quantities import QuantityError, parse

#: Of so many questions the answers are kept.
_REMEMBERED = 1_024


@dataclass(frozen=True, slots=True)
class NoCharge:
    """Why nothing can be charged; other devices or another claim would help."""

    message: str


@dataclass(frozen=True, slots=True)
class Question:
    """Devices that all selectors mean, and the counter or capacity `name` of them that counts.

    `asked` is the amount that the claim names itself, where devices can be shared by capacity.
    """

    selectors: tuple[str, ...]
    name: str
    is_counter: bool
    asked: str | int | float | None = None


@dataclass(slots=True)
class Pools:
    """The devices of a driver."""

    found: tuple[tuple[Device, devices.Device], ...]
    _answers: dict[Question, tuple[int, int | NoCharge] | NoCharge] = field(default_factory=dict)

    @classmethod
    def of(cls, slices: Iterable[devices.ResourceSlice]) -> Pools:
        return cls(
            tuple((_readable(spec.driver, device), device) for spec in _whole(slices) for device in spec.devices)
        )

    def charge(self, question: Question, count: int) -> int | NoCharge:
        """For `count` devices. Cost: the devices, at the first question of its kind."""
        answer = self._answers.get(question)
        if answer is None:
            if len(self._answers) >= _REMEMBERED:  # whoever writes claims asks what they like
                self._answers.clear()
            answer = self._answers[question] = self._answer(question)
        if isinstance(answer, NoCharge):
            return answer
        matching, each = answer
        if matching < count:
            return NoCharge(f"{count} devices are asked for and {matching} match")
        return each if isinstance(each, NoCharge) else each * count

    def _answer(self, question: Question) -> tuple[int, int | NoCharge] | NoCharge:
        try:
            selectors = tuple(compiled(text) for text in question.selectors)
        except CelError as error:
            return NoCharge(f"a selector {error}")
        try:
            matching = self._matching(selectors)
        except Unanswered as error:
            return NoCharge(f"a selector has no answer for a device: {error}")
        try:
            each = _counter(matching, question) if question.is_counter else _capacity(matching, question)
        except QuantityError as error:
            return NoCharge(f"a device has an amount that is {error}")
        return len(matching), each

    def _matching(self, selectors: tuple[Selector, ...]) -> list[devices.Device]:
        known: dict[Hashable, bool] = {}
        reads = _reads(selectors)
        matching = []
        for readable, device in self.found:
            kind = None if reads is None else (readable.driver, readable.allows_multiple, *_read(readable, reads))
            answer = known.get(kind) if kind is not None else None
            if answer is None:
                answer = all(selector.matches(readable) for selector in selectors)
                if kind is not None:
                    known[kind] = answer
            if answer:
                matching.append(device)
        return matching


def _reads(selectors: Iterable[Selector]) -> tuple[tuple[str, str, str], ...] | None:
    """All that the selectors look at; None where that cannot be told."""
    found: set[tuple[str, str, str]] = set()
    for selector in selectors:
        if selector.reads is None:
            return None
        found |= selector.reads
    return tuple(sorted(found))


def _read(device: Device, reads: Iterable[tuple[str, str, str]]) -> Iterator[Value]:
    for part, domain, name in reads:
        values = device.attributes if part == "attributes" else device.capacity
        yield values[domain].get(name)


def _whole(slices: Iterable[devices.ResourceSlice]) -> Iterator[devices.ResourceSliceSpec]:
    """The slices of pools that are told completely, in their newest generation."""
    pools: dict[str, list[devices.ResourceSliceSpec]] = {}
    for each in slices:
        members = pools.setdefault(each.spec.pool.name, [])
        if members and each.spec.pool.generation > members[0].pool.generation:
            members.clear()
        if not members or each.spec.pool.generation == members[0].pool.generation:
            members.append(each.spec)
    for members in pools.values():
        if len(members) == members[0].pool.resource_slice_count:
            yield from members


def _readable(driver: str, device: devices.Device) -> Device:
    return Device(
        driver=driver,
        attributes=by_domain({name: _attribute(each) for name, each in device.attributes.items()}, driver),
        capacity=by_domain({name: amount(str(each.value)) for name, each in device.capacity.items()}, driver),
        allows_multiple=device.allow_multiple_allocations,
    )


def _attribute(attribute: devices.DeviceAttribute) -> Value:
    if attribute.version is not None:
        return version(attribute.version)
    return next((each for each in (attribute.string, attribute.boolean, attribute.integer) if each is not None), None)


# ------------------------------------------------------------------ what one device costs


def _counter(matching: Iterable[devices.Device], question: Question) -> int | NoCharge:
    largest = max(
        (
            parse(consumption.counters[question.name].value)
            for device in matching
            for consumption in device.consumes_counters
            if question.name in consumption.counters
        ),
        default=None,
    )
    return NoCharge(f'no device that matches has the counter "{question.name}"') if largest is None else _units(largest)


def _capacity(matching: Iterable[devices.Device], question: Question) -> int | NoCharge:
    has_it = False
    charges = []
    for device in matching:
        found = device.capacity.get(question.name)
        if found is None:
            continue
        has_it = True
        charge = _share(found, question.asked)
        if charge is not None:
            charges.append(charge)
    if not has_it:
        return NoCharge(f'no device that matches has the capacity "{question.name}"')
    if not charges:
        return NoCharge(f'no device that matches can give {question.asked} of its capacity "{question.name}"')
    return _units(max(charges))


def _share(capacity: devices.DeviceCapacity, asked: str | float | None) -> Fraction | None:
    """What the device gives for what is asked: as its policy rounds that up; None for more than it may give."""
    policy = capacity.request_policy
    if asked is not None:
        base = parse(asked)
    elif policy is not None and policy.default is not None:
        base = parse(policy.default)
    else:
        base = parse(capacity.value)
    if policy is None:
        return base
    if policy.valid_values:
        return min((value for text in policy.valid_values if (value := parse(text)) >= base), default=None)
    if policy.valid_range is not None:
        return _in_range(base, policy.valid_range)
    return base


def _in_range(base: Fraction, limits: devices.CapacityRange) -> Fraction | None:
    least = None if limits.min is None else parse(limits.min)
    value = base if least is None else max(base, least)
    if least is not None and limits.step is not None and (step := parse(limits.step)) > 0:
        value = least + -((least - value) // step) * step
    if limits.max is not None and value > parse(limits.max):
        return None
    return value


def _units(value: Fraction) -> int:
    """Whole units, rounded up; what is negative counts as nothing."""
    return max(0, -(-value.numerator // value.denominator))
