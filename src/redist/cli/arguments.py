"""Reading arguments: meshes and layouts with errors that name the argument, byte sizes, lists."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from cyclopts import Parameter

from redist.cli.failure import UsageError
from redist.collectives.topology import PRESETS, Topology
from redist.collectives.topology_json import read_topology
from redist.errors import ParseError
from redist.types import Mesh

__all__ = ["AsJson", "Backend", "Bytes", "byte_size", "plan_text", "read_bytes", "reading", "topology_of"]

_T = TypeVar("_T")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*\Z")
_UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**n for n, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**n for n, letter in enumerate("kmgt", 1)},
}


def reading(argument: str, read: Callable[[str], _T], text: str) -> _T:
    """`read(text)`, where a ParseError names the argument."""
    try:
        return read(text)
    except ParseError as error:
        raise ParseError(f"{argument}: {error.message}", error.text, error.column) from None


def plan_text(name: str) -> str:
    """The text of a saved plan: a file, or - for standard input. Raises UsageError, OSError."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"'{name}' is not text; give the JSON that `redist plan --json` prints") from None


def topology_of(text: str, mesh: Mesh) -> Topology:
    """A preset by name, or a file. Raises UsageError naming both, ParseError, OSError."""
    if text in PRESETS:
        return PRESETS[text](mesh)
    if not Path(text).exists():
        raise UsageError(
            f"--topology '{text}' is neither a file nor one of {', '.join(PRESETS)}; make a file with "
            f"`redist calibrate {mesh} --output FILE`"
        )
    return reading("--topology", read_topology, Path(text).read_text(encoding="utf-8"))


def byte_size(text: str) -> int:
    """`64MiB`, `1.5 GiB`, `64MB` (powers of ten), `4096`. Raises ParseError."""
    match = _SIZE.match(text)
    if match is None:
        raise ParseError("expected a number of bytes, such as 4096, 64MiB or 1.5GB", text, 0)
    unit = _UNITS.get(match[2].lower())
    if unit is None:
        raise ParseError(
            f"unknown unit '{match[2]}'; use B, KiB, MiB, GiB, TiB, or kB, MB, GB, TB", text, match.start(2)
        )
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


class Bytes(int):
    """A number of bytes; the name is what help shows."""


def read_bytes(_: Any, tokens: Sequence[Any]) -> Bytes:
    """What the command line parser calls."""
    return Bytes(reading(str(tokens[0].keyword or "size"), byte_size, str(tokens[0].value)))


Backend = Literal["numpy", "jax", "mpi"]
AsJson = Annotated[bool, Parameter(name="--json", negative=(), show_default=False)]
