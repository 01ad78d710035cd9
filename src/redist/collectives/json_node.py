"""Reading JSON: values that know the path to them, so that every failure states where it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar, cast

from redist.errors import ParseError, RedistError

__all__ = ["Json", "Node", "read_root"]

_T = TypeVar("_T")
Json = Any


def read_root(text: str, name: str, schema: int) -> Node:
    """The outermost value, `name` in messages. Raises ParseError with the place: for malformed JSON the line
    and column; and for another schema version than this."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        line = text.split("\n")[error.lineno - 1]
        raise ParseError(f"malformed JSON, line {error.lineno}: {error.msg}", line, error.colno - 1) from None
    root = Node(value, name)
    stated = root.field("schema")
    if stated.value is True or stated.value != schema:
        raise stated.fail(f"schema version {stated.value!r} is not supported; this version reads schema {schema}")
    return root


class Node:
    """A JSON value with the path to it; every failure is a ParseError that states both."""

    def __init__(self, value: Json, path: str) -> None:
        self.value = value
        self.path = path

    def fail(self, message: str) -> ParseError:
        shown = json.dumps(self.value)
        return ParseError(f"{self.path}: {message}", shown if len(shown) <= 200 else f"{shown[:197]}...", 0)

    def field(self, key: str) -> Node:
        members = self._members()
        if key not in members:
            raise self.fail(f"the field '{key}' is missing")
        return Node(members[key], f"{self.path}.{key}")

    def optional(self, key: str) -> Node | None:
        return self.field(key) if key in self._members() else None

    def items(self) -> list[Node]:
        found = cast("list[Json]", self.of(list, "a list"))
        return [Node(item, f"{self.path}[{n}]") for n, item in enumerate(found)]

    def entries(self) -> list[tuple[str, Node]]:
        return [(key, Node(item, f"{self.path}.{key}")) for key, item in self._members().items()]

    def _members(self) -> dict[str, Json]:
        return cast("dict[str, Json]", self.of(dict, "an object"))

    def of(self, kind: type[_T], what: str) -> _T:
        value: Any = self.value
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.fail(f"expected {what}")
        return value

    def integer(self) -> int:
        return self.of(int, "an integer")

    def text(self) -> str:
        return self.of(str, "a string")

    def number(self) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            raise self.fail("expected a number")
        return float(self.value)

    def integers(self) -> tuple[int, ...]:
        return tuple(item.integer() for item in self.items())

    def parsed(self, read: Callable[[str], _T]) -> _T:
        text = self.text()
        try:
            return read(text)
        except RedistError as error:
            raise ParseError(
                f"{self.path}: {getattr(error, 'message', error)}", str(self.value), getattr(error, "column", 0)
            ) from None
