"""Tells whether a device is one that a selector means, by the selector's CEL expression.

Works from the expression's tree and one device: driver, attributes, capacity. An expression that asks for what the
device has not, or that takes too many steps, is an error and never a yes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, assert_never

from admission.api import cel_operations as operations
from admission.api import cel_syntax as syntax
from admission.api.cel_operations import Device, Unanswered, Value
from admission.api.cel_syntax import CelError
from admission.api.cel_values import effort

_MOST_STEPS: Final = 10_000
#: Looking at so many characters of a text is a step.
_CHARACTERS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled expression. `reads` are the (part, domain, name) it may look at, None where that cannot be told."""

    expression: str
    tree: syntax.Node
    reads: frozenset[tuple[str, str, str]] | None

    def matches(self, device: Device) -> bool:
        """Whether it means this device. Raises Unanswered."""
        try:
            answer = _Evaluation().value(self.tree, {"device": device})
        except RecursionError:
            raise Unanswered("it is nested too deeply") from None
        if not isinstance(answer, bool):
            raise Unanswered("it is neither true nor false")
        return answer


@lru_cache(maxsize=1024)
def compiled(expression: str) -> Selector:
    """Raises CelError for what cannot be read or is not understood here."""
    tree = syntax.parsed(expression)
    for node in _nodes(tree):
        if isinstance(node, syntax.Call):
            known = operations.FUNCTIONS if node.target is None else operations.METHODS
            if node.function not in known:
                raise CelError(f"calls {node.function}(), which is not understood here")
    return Selector(expression, tree, _reads(tree))


def _nodes(node: syntax.Node) -> Iterator[syntax.Node]:
    yield node
    match node:
        case syntax.Literal() | syntax.Name():
            return
        case syntax.Field(of) | syntax.Unary(_, of):
            parts: tuple[syntax.Node, ...] = (of,)
        case syntax.Has(field):
            parts = (field,)
        case syntax.Index(of, key):
            parts = (of, key)
        case syntax.Call(_, target, arguments):
            parts = arguments if target is None else (target, *arguments)
        case syntax.ListOf(items):
            parts = items
        case syntax.Binary(_, left, right):
            parts = (left, right)
        case syntax.Conditional(condition, yes, no):
            parts = (condition, yes, no)
        case syntax.Bind(_, value, body):
            parts = (value, body)
        case syntax.Over(_, of, _, body):
            parts = (of, body)
        case _:
            assert_never(node)
    for part in parts:
        yield from _nodes(part)


def _reads(tree: syntax.Node) -> frozenset[tuple[str, str, str]] | None:
    """Where all that is read stands as device.attributes["domain"].name, these; devices equal in them are alike."""
    found, seen, names = set(), 0, 0
    for node in _nodes(tree):
        if isinstance(node, syntax.Name) and node.name == "device":
            names += 1
        match node:
            case syntax.Field(
                syntax.Index(syntax.Field(syntax.Name("device"), part), syntax.Literal(str() as domain)), name
            ):
                found.add((part, domain, name))
                seen += 1
            case syntax.Field(syntax.Name("device"), "driver" | "allowMultipleAllocations"):
                seen += 1
    return frozenset(found) if seen == names else None


# ------------------------------------------------------------------ evaluation


class _Evaluation:
    """One evaluation, with its steps counted."""

    def __init__(self) -> None:
        self._steps = 0

    def value(self, node: syntax.Node, names: Mapping[str, Value]) -> Value:  # noqa: C901, PLR0911, PLR0912
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise Unanswered("it takes too many steps")
        match node:
            case syntax.Literal(value):
                return value
            case syntax.Name(name):
                if name not in names:
                    raise Unanswered(f"there is no {name}")
                return names[name]
            case syntax.Field(of, name, is_optional):
                return operations.field(self.value(of, names), name, is_optional=is_optional)
            case syntax.Index(of, key, is_optional):
                return operations.index(self.value(of, names), self.value(key, names), is_optional=is_optional)
            case syntax.Has(field):
                return operations.has(self.value(field.of, names), field.name)
            case syntax.ListOf(items):
                return [self.value(item, names) for item in items]
            case syntax.Unary(operator, of):
                return operations.unary(operator, self.value(of, names))
            case syntax.Binary("&&" | "||" as operator, left, right):
                return self._logical(left, right, names, decisive=operator == "||")
            case syntax.Binary(operator, left, right):
                return operations.binary(operator, self.value(left, names), self.value(right, names))
            case syntax.Conditional(condition, yes, no):
                chosen = yes if operations.boolean(self.value(condition, names)) else no
                return self.value(chosen, names)
            case syntax.Bind(name, value, body):
                return self.value(body, {**names, name: self.value(value, names)})
            case syntax.Over(macro, of, name, body):
                return self._over(macro, self.value(of, names), lambda item: self.value(body, {**names, name: item}))
            case syntax.Call(function, target, arguments):
                values = [self.value(argument, names) for argument in arguments]
                if target is None:
                    return operations.called(operations.FUNCTIONS[function], function, values)
                return self._method(function, [self.value(target, names), *values])
            case _:
                assert_never(node)

    def _method(self, function: str, values: list[Value]) -> Value:
        if function == "matches" and len(values) > 1:
            self._steps += effort(values[0], values[1]) // _CHARACTERS
            if self._steps > _MOST_STEPS:
                raise Unanswered("it takes too many steps")
        return operations.called(operations.METHODS[function], function, values)

    def _logical(self, left: syntax.Node, right: syntax.Node, names: Mapping[str, Value], *, decisive: bool) -> bool:
        """One side may have no answer, as long as the other one decides."""
        without: Unanswered | None = None
        for side in (left, right):
            try:
                if operations.boolean(self.value(side, names)) is decisive:
                    return decisive
            except Unanswered as error:
                if self._steps > _MOST_STEPS:
                    raise
                without = error
        if without is not None:
            raise without
        return not decisive

    def _over(self, macro: str, of: Value, body: Callable[[Value], Value]) -> Value:
        if not isinstance(of, list | Mapping):
            raise Unanswered(f"{macro} goes over something that is no list")
        items = list(of)
        match macro:
            case "map":
                return [body(item) for item in items]
            case "filter":
                return [item for item in items if operations.boolean(body(item))]
            case "exists_one":
                return sum(operations.boolean(body(item)) for item in items) == 1
            case _:
                decisive, without = macro == "exists", None
                for item in items:
                    try:
                        if operations.boolean(body(item)) is decisive:
                            return decisive
                    except Unanswered as error:
                        if self._steps > _MOST_STEPS:
                            raise
                        without = error
                if without is not None:
                    raise without
                return not decisive
