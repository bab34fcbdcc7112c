"""Reads the expressions of device selectors: the part of CEL that selecting devices takes, as a tree.

Decided from the text alone. What CEL has and this has not is refused by its name (`CelError`), and so is what is nested
deeper or longer than the API allows; it must never guess what an expression means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

_LONGEST: Final = 10 * 1024  # the API's own bound
_DEEPEST: Final = 60
_LARGEST: Final = 2**63


class CelError(ValueError):
    """The expression cannot be read, or is one that is not understood here."""


@dataclass(frozen=True, slots=True)
class Literal:
    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Field:
    of: Node
    name: str
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    of: Node
    key: Node
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A function, or with a target a method."""

    function: str
    target: Node | None
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Unary:
    operator: str
    of: Node


@dataclass(frozen=True, slots=True)
class Binary:
    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Conditional:
    condition: Node
    yes: Node
    no: Node


@dataclass(frozen=True, slots=True)
class Has:
    field: Field


@dataclass(frozen=True, slots=True)
class Bind:
    """`cel.bind(name, value, body)`."""

    name: str
    value: Node
    body: Node


@dataclass(frozen=True, slots=True)
class Over:
    """`of.exists(name, body)` and its kin."""

    macro: str
    of: Node
    name: str
    body: Node


Node = Literal | Name | Field | Index | Call | ListOf | Unary | Binary | Conditional | Has | Bind | Over

MACROS: Final = frozenset({"all", "exists", "exists_one", "filter", "map"})

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<number>0[xX][0-9a-fA-F]+|\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+)(?P<unsigned>[uU])?
  | (?P<string>[rR]?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<operator>\|\||&&|==|!=|<=|>=|[-+*/%<>!?:.,()\[\]])
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)")
_LEVELS: Final = (
    frozenset({"||"}),
    frozenset({"&&"}),
    frozenset({"==", "!=", "<", "<=", ">", ">=", "in"}),
    frozenset({"+", "-"}),
    frozenset({"*", "/", "%"}),
)


class _Token(NamedTuple):
    kind: str
    text: str


def parsed(expression: str) -> Node:
    """The tree of an expression. Cost: its length."""
    if len(expression) > _LONGEST:
        raise CelError(f"is longer than {_LONGEST} characters")
    parser = _Parser(tuple(_tokens(expression)))
    node = parser.conditional()
    parser.end()
    return node


def _tokens(expression: str) -> Iterator[_Token]:
    at = 0
    while at < len(expression):
        found = _TOKEN.match(expression, at)
        if found is None:
            raise CelError(f"has {expression[at]!r} at {at}, which is not understood here")
        at = found.end()
        kind = found.lastgroup or ""
        if kind == "unsigned":
            raise CelError("has an unsigned number, which is not understood here")
        if kind != "space":
            yield _Token(kind, found[0])


class _Parser:
    def __init__(self, tokens: tuple[_Token, ...]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    @property
    def _next(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    @property
    def _kind(self) -> str:
        return self._tokens[self._at].kind if self._at < len(self._tokens) else ""

    def _accept(self, text: str) -> bool:
        if self._kind in {"operator", "name"} and self._next == text:
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise CelError(f"lacks {text!r} before {self._next!r}" if self._next else f"lacks {text!r} at its end")

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise CelError(f"has {self._next!r} where it should end")

    def conditional(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise CelError("is nested too deeply")
        condition = self._level(0)
        if self._accept("?"):
            yes = self._level(0)
            self._expect(":")
            condition = Conditional(condition, yes, self.conditional())
        self._depth -= 1
        return condition

    def _level(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        left = self._level(level + 1)
        while self._kind in {"operator", "name"} and self._next in _LEVELS[level]:
            operator = self._next
            self._at += 1
            left = Binary(operator, left, self._level(level + 1))
        return left

    def _unary(self) -> Node:
        operators = []
        while self._kind == "operator" and self._next in {"!", "-"}:
            operators.append(self._next)
            self._at += 1
        if len(operators) > _DEEPEST:
            raise CelError("is nested too deeply")
        node = self._member(self._primary())
        for operator in reversed(operators):
            node = Unary(operator, node)
        return node

    def _member(self, node: Node) -> Node:
        while True:
            if self._accept("."):
                is_optional = self._accept("?")
                name = self._name()
                if not is_optional and self._accept("("):
                    node = self._method(node, name)
                else:
                    node = Field(node, name, is_optional)
            elif self._accept("["):
                is_optional = self._accept("?")
                key = self.conditional()
                self._expect("]")
                node = Index(node, key, is_optional)
            else:
                return node

    def _name(self) -> str:
        if self._kind != "name":
            raise CelError(f"has {self._next!r} where a name should be")
        name = self._next
        self._at += 1
        return name

    def _method(self, target: Node, name: str) -> Node:
        arguments = self._arguments()
        if target == Name("cel") and name == "bind":
            variable, value, body = self._macro(arguments, 3, "cel.bind")
            return Bind(_variable(variable), value, body)
        if name in MACROS:
            variable, body = self._macro(arguments, 2, name)
            return Over(name, target, _variable(variable), body)
        return Call(name, target, arguments)

    def _macro(self, arguments: tuple[Node, ...], count: int, name: str) -> tuple[Node, ...]:
        if len(arguments) != count:
            raise CelError(f"calls {name} with {len(arguments)} arguments, which is not understood here")
        return arguments

    def _arguments(self) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self._accept(")"):
            if found:
                self._expect(",")
            found.append(self.conditional())
        return tuple(found)

    def _primary(self) -> Node:
        kind, text = self._kind, self._next
        self._at += 1
        match kind:
            case "number":
                return Literal(_number(text))
            case "string":
                return Literal(_string(text))
            case "name":
                return self._named(text)
            case "operator" if text == "(":
                node = self.conditional()
                self._expect(")")
                return node
            case "operator" if text == "[":
                return ListOf(self._items())
            case _:
                raise CelError(f"has {text!r} where a value should be" if text else "ends too early")

    def _named(self, text: str) -> Node:
        if text in {"true", "false", "null"}:
            return Literal({"true": True, "false": False, "null": None}[text])
        if not self._accept("("):
            return Name(text)
        arguments = self._arguments()
        if text == "has":
            (field,) = self._macro(arguments, 1, "has")
            if not isinstance(field, Field):
                raise CelError("calls has with something that is no field")
            return Has(field)
        return Call(text, None, arguments)

    def _items(self) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self._accept("]"):
            if found:
                self._expect(",")
                if self._accept("]"):
                    break
            found.append(self.conditional())
        return tuple(found)


def _variable(node: Node) -> str:
    if not isinstance(node, Name):
        raise CelError("has something else where a variable should be")
    return node.name


def _number(text: str) -> int | float:
    if text[:2] in {"0x", "0X"}:
        number = int(text, 16)
    elif text.isdigit():
        number = int(text)
    else:
        return float(text)
    if number > _LARGEST:
        raise CelError(f"has a number that is too large: {text}")
    return number


def _string(text: str) -> str:
    is_raw = text[0] in "rR"
    inner = text[2:-1] if is_raw else text[1:-1]
    return inner if is_raw else _ESCAPE.sub(_unescaped, inner)


def _unescaped(found: re.Match[str]) -> str:
    text = found[1]
    if text[0] in "xuU" and len(text) > 1:
        code = int(text[1:], 16)
    elif len(text) == 3:
        code = int(text, 8)
    else:
        return _ESCAPES.get(text, text)
    if code > 0x10FFFF:
        raise CelError("has a character that does not exist")
    return chr(code)
