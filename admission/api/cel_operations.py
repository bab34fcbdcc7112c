"""What the operators and functions of a device selector's expression do with values.

Values are Python's own, with quantities, versions and optional values beside them. What CEL gives no answer to is
`Unanswered`; nothing here may convert silently, wrap a number or grow a text without bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from admission.api.cel_syntax import CelError
from admission.api.cel_values import Amount, Version, amount, pattern, version

_LONGEST_TEXT: Final = 10_000
#: Whether something is in a list is one step, however long that is.
_LONGEST_LIST: Final = 1_000
_LARGEST: Final = 2**63

Value = Any
#: Device attributes or capacities by domain and name.
ByDomain = Mapping[str, Mapping[str, Value]]


class Unanswered(Exception):  # noqa: N818  # the expression has no answer for this device
    """The expression cannot be evaluated for this device; the words say why."""


@dataclass(frozen=True, slots=True)
class Device:
    """What an expression may look at."""

    driver: str
    attributes: ByDomain
    capacity: ByDomain
    allows_multiple: bool = False


@dataclass(frozen=True, slots=True)
class Maybe:
    """An optional value; `there` is whether it has one."""

    there: bool
    value: Value = None


def boolean(value: Value) -> bool:
    if not isinstance(value, bool):
        raise Unanswered("something that is neither true nor false decides")
    return value


def _entry(of: Value, key: Value) -> Maybe:
    """What `of` has by this name or key."""
    if isinstance(of, Maybe):
        return _entry(of.value, key) if of.there else of
    if isinstance(of, Device):
        parts = {
            "driver": of.driver,
            "attributes": of.attributes,
            "capacity": of.capacity,
            "allowMultipleAllocations": of.allows_multiple,
        }
        return Maybe(key in parts, parts.get(key))
    if isinstance(of, Mapping):
        # Domains that a device has nothing of are empty, not missing.
        value = of[key] if isinstance(of, _Domains) or key in of else None
        return Maybe(value is not None, value)
    if isinstance(of, list) and type(key) is int:
        return Maybe(0 <= key < len(of), of[key] if 0 <= key < len(of) else None)
    raise Unanswered(f"something is asked for its {key}, and has no such thing")


class _Domains(dict[str, Mapping[str, Value]]):
    """By domain; every domain is there."""

    def __missing__(self, domain: str) -> Mapping[str, Value]:
        return {}


def by_domain(values: Mapping[str, Value], driver: str) -> ByDomain:
    """Values by their qualified names; a name without domain is of the driver's."""
    found = _Domains()
    for qualified, value in values.items():
        domain, _, name = qualified.rpartition("/")
        inner = found.setdefault(domain or driver, {})
        assert isinstance(inner, dict)  # noqa: S101
        inner[name] = value
    return found


def field(of: Value, name: str, *, is_optional: bool) -> Value:
    found = _entry(of, name)
    if is_optional or isinstance(of, Maybe):
        return found
    if not found.there:
        raise Unanswered(f"there is no {name}")
    return found.value


def index(of: Value, key: Value, *, is_optional: bool) -> Value:
    found = _entry(of, key)
    if is_optional or isinstance(of, Maybe):
        return found
    if not found.there:
        raise Unanswered(f"there is no {key!r}")
    return found.value


def has(of: Value, name: str) -> bool:
    return _entry(of, name).there


def unary(operator: str, value: Value) -> Value:
    if operator == "!":
        return not boolean(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unanswered("something that is no number is negated")
    return _bounded(-value)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def binary(operator: str, left: Value, right: Value) -> Value:
    match operator:
        case "==":
            return _equal(left, right)
        case "!=":
            return not _equal(left, right)
        case "in":
            if isinstance(right, list):
                return any(_equal(left, item) for item in right)
            if isinstance(right, Mapping):
                return left in right
            raise Unanswered("something is looked for in what is no list")
        case "<" | "<=" | ">" | ">=":
            return _ordered(operator, left, right)
        case _:
            return _arithmetic(operator, left, right)


def _equal(left: Value, right: Value) -> bool:
    if _is_number(left) and _is_number(right):
        return bool(left == right)
    return type(left) is type(right) and bool(left == right)


def _ordered(operator: str, left: Value, right: Value) -> bool:
    alike = (_is_number(left) and _is_number(right)) or (type(left) is type(right) and isinstance(left, str | bool))
    if not alike:
        raise Unanswered(f"things of different kinds, or without an order, are compared by {operator}")
    match operator:
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case _:
            return bool(left >= right)


def _arithmetic(operator: str, left: Value, right: Value) -> Value:
    if operator == "+" and type(left) is type(right) and isinstance(left, str | list):
        joined = left + right
        if len(joined) > (_LONGEST_TEXT if isinstance(joined, str) else _LONGEST_LIST):
            raise Unanswered("a text or list gets too long")
        return joined
    if not (_is_number(left) and type(left) is type(right)):
        raise Unanswered(f"{operator} is used on things that are no numbers of one kind")
    if operator in {"/", "%"} and right == 0:
        raise Unanswered("something is divided by zero")
    match operator:
        case "+" | "-" | "*":
            return _bounded({"+": left + right, "-": left - right, "*": left * right}[operator])
        case "/" if isinstance(left, int):
            return _bounded(abs(left) // abs(right) * (1 if (left < 0) is (right < 0) else -1))
        case "/":
            return left / right
        case _:
            return _remainder(left, right)


def _remainder(left: Value, right: Value) -> Value:
    if not isinstance(left, int):
        raise Unanswered("% is used on fractions")
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


def _bounded(value: Value) -> Value:
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise Unanswered("a number gets too large")
    return value


# ------------------------------------------------------------------ functions


def called(function: Callable[..., Value], name: str, values: list[Value]) -> Value:
    try:
        return function(*values)
    except CelError as error:
        raise Unanswered(f"it {error}") from error
    except (TypeError, AttributeError, ValueError, OverflowError) as error:
        raise Unanswered(f"{name}() does not take that") from error


def _typed(kind: Any, value: Value) -> Any:
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise TypeError(value)
    return value


def _text(value: Value) -> str:
    return str(_typed(str, value))


def _quantity(value: Value) -> Amount:
    found = amount(_text(value))
    if found is None:
        raise ValueError(value)
    return found


def _semver(value: Value) -> Version:
    found = version(_text(value))
    if found is None:
        raise ValueError(value)
    return found


def _comparable(left: Value, right: Value) -> tuple[Value, Value]:
    if type(left) is not type(right) or not isinstance(left, Amount | Version):
        raise TypeError(left)
    return left, right


def _compare(left: Value, right: Value) -> int:
    first, second = _comparable(left, right)
    return 0 if first == second else -1 if first < second else 1


def _integer(value: Value) -> int:
    if isinstance(value, str):
        value = int(value)
    return int(_bounded(int(_typed(int | float, value))))


def _as_integer(value: Value) -> int:
    whole = _typed(Amount, value).value
    if whole.denominator != 1:
        raise ValueError(value)
    return int(_bounded(whole.numerator))


def _string(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(_typed(str | int | float, value))


def _summed(left: Value, right: Value, sign: int) -> Amount:
    other = Amount(_typed(Amount, right).value) if isinstance(right, Amount) else _quantity(str(_typed(int, right)))
    return Amount(_typed(Amount, left).value + sign * other.value)


def _value_of(value: Value) -> Value:
    maybe = _typed(Maybe, value)
    if not maybe.there:
        raise ValueError(value)
    return maybe.value


def _or_value(value: Value, other: Value) -> Value:
    maybe = _typed(Maybe, value)
    return maybe.value if maybe.there else other


FUNCTIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "quantity": _quantity,
    "isQuantity": lambda value: amount(_text(value)) is not None,
    "semver": _semver,
    "isSemver": lambda value: version(_text(value)) is not None,
    "size": lambda value: len(_typed(str | list | Mapping, value)),
    "int": _integer,
    "double": lambda value: float(_typed(str | int | float, value)),
    "string": _string,
}

METHODS: Final[Mapping[str, Callable[..., Value]]] = {
    "size": lambda value: len(_typed(str | list | Mapping, value)),
    "startsWith": lambda value, start: _text(value).startswith(_text(start)),
    "endsWith": lambda value, end: _text(value).endswith(_text(end)),
    "contains": lambda value, part: _text(part) in _text(value),
    "matches": lambda value, text: pattern(_text(text)).search(_text(value)) is not None,
    "lowerAscii": lambda value: _text(value).lower(),
    "upperAscii": lambda value: _text(value).upper(),
    "trim": lambda value: _text(value).strip(),
    "compareTo": _compare,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "isInteger": lambda value: _typed(Amount, value).value.denominator == 1,
    "asInteger": _as_integer,
    "asApproximateFloat": lambda value: float(_typed(Amount, value).value),
    "sign": lambda value: (_typed(Amount, value).value > 0) - (_typed(Amount, value).value < 0),
    "add": lambda left, right: _summed(left, right, 1),
    "sub": lambda left, right: _summed(left, right, -1),
    "major": lambda value: _typed(Version, value).numbers[0],
    "minor": lambda value: _typed(Version, value).numbers[1],
    "patch": lambda value: _typed(Version, value).numbers[2],
    "hasValue": lambda value: _typed(Maybe, value).there,
    "value": _value_of,
    "orValue": _or_value,
}
