"""Programs: what `trace` makes of a JAX function, as plain immutable data.

A program is in single-assignment form. Its values are numbers into one table of types, nested blocks
included, so that a loop's body and what surrounds it are one graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redist.errors import LayoutError
from redist.types.dtypes import dtype_name, itemsize

__all__ = ["TAG", "Block", "Literal", "Op", "Operand", "Program", "Source", "ValueType"]

TAG = "partir_tag"
"""The identity that names a value."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """Global shape and dtype of a value. `dtype` is a NumPy dtype, or one of JAX's extended dtypes (PRNG
    keys), of which an element is `key_shape` words of 4 bytes."""

    shape: tuple[int, ...]
    dtype: Any
    key_shape: tuple[int, ...] | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def stored(self) -> tuple[tuple[int, ...], str]:
        """(shape, dtype name) of the array that holds the value."""
        if self.key_shape is not None:
            return (*self.shape, *self.key_shape), "u32"
        return self.shape, dtype_name(self.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        if self.key_shape is not None:
            return 4 * math.prod(self.key_shape)
        return itemsize(dtype_name(self.dtype))

    def __str__(self) -> str:
        return self.with_shape(self.shape)

    def with_shape(self, shape: Sequence[int]) -> str:
        """`f32[256,8]`, of another shape."""
        try:
            name = str(self.dtype) if self.key_shape is not None else dtype_name(self.dtype)
        except LayoutError:
            name = str(self.dtype)
        return f"{name}[{','.join(map(str, shape))}]"


@dataclass(frozen=True, slots=True)
class Literal:
    """A scalar written into an operation."""

    value: Any
    type: ValueType

    def __str__(self) -> str:
        return str(np.asarray(self.value)[()])


Operand = int | Literal
"""A value by number, or a literal."""


class Source:
    """Where in the user's code an operation comes from. The line is looked up when it is first read."""

    __slots__ = ("_info", "_text")

    def __init__(self, info: Any = None, text: str | None = None) -> None:
        self._info = info
        self._text = text

    def __str__(self) -> str:
        if self._text is None:
            self._text = _summary(self._info)
        return self._text

    def __reduce__(self) -> tuple[Any, ...]:
        return Source, (None, str(self))


def _summary(info: Any) -> str:
    """`file.py:12 (function)`, without column."""
    if info is None:
        return "unknown"
    from jax._src import source_info_util  # pyright: ignore[reportPrivateUsage]

    frame = source_info_util.user_frame(info.traceback)
    if frame is None:
        return "unknown"
    return f"{frame.file_name}:{frame.start_line} ({frame.function_name})"


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One operation: a JAX primitive on operands. `blocks` are the bodies of control flow: (body,) of a
    scan, (condition, body) of a while, the branches of a cond."""

    name: str
    primitive: Any
    params: Mapping[str, Any]
    operands: tuple[Operand, ...]
    results: tuple[int, ...]
    source: Source = field(default_factory=Source, repr=False)
    blocks: tuple[Block, ...] = ()
    effects: bool = False

    @property
    def trips(self) -> int:
        """How often the blocks run for one run of the operation, where that is known; else 1."""
        return int(self.params["length"]) if self.name == "scan" else 1


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Operations in order, from inputs to outputs. Inside a nested block only its own inputs and values,
    and the program's constants, are used."""

    inputs: tuple[int, ...]
    ops: tuple[Op, ...]
    outputs: tuple[Operand, ...]

    def walk(self) -> Iterator[Op]:
        """Every operation, those of nested blocks after the one that holds them."""
        for op in self.ops:
            yield op
            for block in op.blocks:
                yield from block.walk()


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A traced function. `input_names[n]` is the name of `block.inputs[n]`, `output_names` likewise of
    outputs; `constants` are arrays that the function closes over; `tags` the values of each tagged name."""

    name: str
    types: tuple[ValueType, ...]
    block: Block
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    constants: Mapping[int, Any]
    tags: Mapping[str, tuple[int, ...]]

    def type_of(self, operand: Operand) -> ValueType:
        """Type of a value or literal."""
        return operand.type if isinstance(operand, Literal) else self.types[operand]

    def as_text(self) -> str:
        """The program before any tactic, one operation a line."""
        from redist.partir_core.text import program_text

        return program_text(self)

    def __str__(self) -> str:
        return self.as_text()
