"""The buffers of a compiled XLA program, from its own memory analysis: a protocol buffer read without its schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["largest_buffer"]

_LOGICAL_BUFFERS, _SIZE = 1, 2
"""Field numbers in XLA's BufferAssignmentProto and LogicalBufferProto (xla/service/hlo.proto)."""


def largest_buffer(compiled: Any) -> int:
    """Bytes of the largest value that the program keeps in memory on one device, argument and result among them."""
    text: bytes = compiled.memory_analysis().serialized_buffer_assignment_proto
    sizes = [
        value
        for field, buffer in _fields(text)
        if field == _LOGICAL_BUFFERS and isinstance(buffer, bytes)
        for inner, value in _fields(buffer)
        if inner == _SIZE and isinstance(value, int)
    ]
    return max(sizes)


def _fields(text: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value): numbers as int, all that has a length as bytes."""
    at = 0
    while at < len(text):
        tag, at = _number(text, at)
        match tag & 7:
            case 0:
                value, at = _number(text, at)
                yield tag >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, at = _number(text, at)
            case 5:
                length = 4
            case kind:
                raise ValueError(f"wire type {kind} at byte {at}")
        yield tag >> 3, text[at : at + length]
        at += length


def _number(text: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = text[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at
