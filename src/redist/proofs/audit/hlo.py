"""XLA's HLO text as data: computations, instructions, and who takes part in a collective.

What is read is the text of a compiled module, `compiled.as_text()`. Attributes are kept as text, but for
the replica groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from redist.errors import ParseError
from redist.types.mesh import Mesh

__all__ = ["COLLECTIVES", "Instruction", "Module", "Shape", "parse_module", "permute_pairs", "replica_groups"]

COLLECTIVES = frozenset({"all-gather", "all-to-all", "all-reduce", "reduce-scatter", "collective-permute"})

_PARTITIONS = re.compile(r"num_partitions=(\d+)")
_HEADER = re.compile(r"(?P<entry>ENTRY )?%(?P<name>[\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"(?P<root>ROOT )?%(?P<name>[\w.\-]+) = (?P<rest>.*)$")
_SHAPE = re.compile(r"(?P<dtype>\w+)\[(?P<dims>[\d,]*)\](?:\{(?P<order>[\d,]*)[^}]*\})?")
_OPCODE = re.compile(r"(?P<opcode>[a-z][a-z0-9\-]*)\(")
_NAME = re.compile(r"%([\w.\-]+)")
_MESH = re.compile(r"mesh\[(?P<axes>[^\]]*)\](?:, device_ids=\((?P<ids>[^\s]*)\))? \{(?P<over>[^}]*)\}")
_IOTA = re.compile(r"\[(?P<shape>[\d,]+)\](?:<=\[(?P<iota>[\d,]+)\])?(?:T\((?P<order>[\d,]+)\))?")


@dataclass(frozen=True, slots=True)
class Shape:
    """Element type, dimensions, and the dimensions from the fastest varying one in memory to the slowest."""

    dtype: str
    dims: tuple[int, ...]
    minor_to_major: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return int(np.prod(self.dims, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `shapes` has several entries for a tuple; `inside` is the text in its parentheses."""

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    inside: str
    attributes: dict[str, str]
    is_root: bool
    text: str

    @property
    def shape(self) -> Shape:
        """Its shape, or that of the first entry of a tuple."""
        return self.shapes[0]


@dataclass(frozen=True, slots=True)
class Module:
    """Computations by name, each a list of instructions in an order in which they can run."""

    computations: dict[str, tuple[Instruction, ...]]
    entry: str
    partitions: int

    def collectives(self) -> Iterator[Instruction]:
        """The entry's collectives, in order."""
        return (i for i in self.computations[self.entry] if i.opcode in COLLECTIVES)


def parse_module(text: str) -> Module:
    """Read a module. Raises ParseError for what is not HLO text."""
    first = text.split("\n", 1)[0]
    if not first.startswith("HloModule"):
        raise ParseError("expected 'HloModule'", first, 0)
    found = _PARTITIONS.search(first)
    computations: dict[str, tuple[Instruction, ...]] = {}
    entry, name = "", ""
    body: list[Instruction] = []
    for line in text.splitlines()[1:]:
        header = _HEADER.match(line)
        if header:
            name, body = header["name"], []
            entry = name if header["entry"] else entry
        elif name and line.startswith("}"):
            computations[name], name = tuple(body), ""
        elif name and line.strip():
            body.append(_instruction(line.strip()))
    if entry not in computations:
        raise ParseError("the module has no ENTRY computation", first, len(first))
    return Module(computations, entry, int(found[1]) if found else 1)


def _instruction(line: str) -> Instruction:
    found = _INSTRUCTION.match(line)
    if found is None:
        raise ParseError("expected an instruction, %name = shape opcode(...)", line, 0)
    rest = found["rest"]
    if rest.startswith("("):
        end = _closing(rest, 0)
        shapes, after = tuple(map(_shape, _SHAPE.finditer(rest[:end]))), rest[end + 1 :]
    else:
        match = _SHAPE.match(rest)
        if match is None:
            raise ParseError("expected a shape", line, line.index(rest))
        shapes, after = (_shape(match),), rest[match.end() :]
    op = _OPCODE.search(after)
    if op is None:
        raise ParseError("expected an opcode and '('", line, len(line) - len(after))
    close = _closing(after, op.end() - 1)
    inside = after[op.end() : close]
    return Instruction(
        found["name"],
        op["opcode"],
        shapes,
        tuple(_NAME.findall(inside)),
        inside,
        _attributes(after[close + 1 :]),
        found["root"] is not None,
        line,
    )


def _shape(match: re.Match[str]) -> Shape:
    dims = _ints(match["dims"])
    order = match["order"]
    return Shape(match["dtype"], dims, tuple(reversed(range(len(dims)))) if order is None else _ints(order))


def _ints(text: str | None) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"-?\d+", text or ""))


def _closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += text[at] in "([{"
        depth -= text[at] in ")]}"
        if depth == 0:
            return at
    raise ParseError("a bracket is not closed", text, start)


def _attributes(text: str) -> dict[str, str]:
    parts: list[str] = []
    depth, start, quoted = 0, 0, False
    for at, letter in enumerate(text):
        quoted ^= letter == '"'
        if not quoted:
            depth += letter in "([{"
            depth -= letter in ")]}"
            if letter == "," and depth == 0:
                parts.append(text[start:at])
                start = at + 1
    parts.append(text[start:])
    made: dict[str, str] = {}
    for part in parts:
        name, _, value = part.strip().partition("=")
        if name == "device_ids" and "replica_groups" in made:  # part of a mesh, behind a comma of its own
            made["replica_groups"] += f", {part.strip()}"
        elif name:
            made[name] = value
    return made


def replica_groups(instruction: Instruction, partitions: int) -> list[list[int]]:
    """The groups of partitions that take part together, each in order. Raises ParseError for unknown forms."""
    text = instruction.attributes.get("replica_groups", "{}")
    mesh = _MESH.fullmatch(text)
    if mesh:
        return _mesh_groups(mesh, text)
    if text == "{}":
        return [list(range(partitions))]
    if text.startswith("{"):
        return [list(_ints(group)) for group in re.findall(r"\{([\d,]+)\}", text)]
    iota = _IOTA.fullmatch(text)
    if iota is None or not iota["iota"]:
        raise ParseError("unknown form of replica groups", text, 0)
    return _iota(_ints(iota["iota"]), iota["order"]).reshape(_ints(iota["shape"])).tolist()


def _iota(shape: tuple[int, ...], order: str | None) -> np.ndarray:
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    return numbers.transpose(_ints(order)) if order else numbers


def _mesh_groups(match: re.Match[str], text: str) -> list[list[int]]:
    """Groups over (parts of) the axes of a mesh that the text writes out."""
    mesh = Mesh([(name, int(size)) for name, size in re.findall(r"'([^']+)'=(\d+)", match["axes"])])
    ids = np.arange(mesh.size)
    if match["ids"]:
        iota = _IOTA.fullmatch(match["ids"])
        if iota is None:
            raise ParseError("unknown form of device ids", text, text.index("device_ids"))
        ids = _iota(_ints(iota["shape"]), iota["order"]).reshape(-1)
    over = [mesh.resolve(part.replace("'", "")) for part in match["over"].split(",")]
    member = mesh.index(over)
    rest = np.arange(mesh.size)
    for stride, size in map(mesh.digit, over):
        rest = rest - rest // stride % size * stride
    order = np.lexsort((member, rest))
    return ids[order].reshape(-1, mesh.count(over)).tolist()


def permute_pairs(instruction: Instruction) -> list[tuple[int, int]]:
    """(source, target) partitions of a collective-permute."""
    numbers = _ints(instruction.attributes["source_target_pairs"])
    return list(zip(numbers[::2], numbers[1::2], strict=True))
