"""Reports: what a partitioned program costs, known before it is compiled or run. All figures are per device."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from redist.collectives.explain import bytes_text, describe
from redist.collectives.plan import Plan
from redist.collectives.steps import Chunk, Slice, Step, op_name
from redist.partir_core.conflicts import Blocked, Conflict
from redist.partir_core.flops import flops_of
from redist.partir_core.liveness import peak_bytes
from redist.partir_core.program import Literal
from redist.partir_core.spmd import Redistribute, SpmdBlock, SpmdProgram
from redist.types.layout import Layout

__all__ = ["COLLECTIVES", "Move", "Report", "report_of"]

COLLECTIVES: tuple[str, ...] = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "permute")
"""The kinds that every report counts; `exchange` is added where a plan has one."""


@dataclass(frozen=True, slots=True)
class Move:
    """A redistribution in the program: its steps, how often it runs, and the operation and line it serves."""

    steps: str
    value: str
    op: str
    source: str
    runs: int
    received_bytes: int

    def __str__(self) -> str:
        times = f" x{self.runs}" if self.runs != 1 else ""
        return f"{self.steps}{times} of {self.value} for {self.op} at {self.source}, {bytes_text(self.received_bytes)}"


@dataclass(frozen=True, slots=True)
class Report:
    """What a program costs after a tactic.

    `collectives` and `bytes` are numbers and received bytes of collectives by kind, runs of loop bodies
    multiplied in (`uncounted` lists loops whose number of iterations is not known: they count once; of a
    conditional's branches the one that receives most counts). `flops`; `peak_bytes` by liveness;
    `seconds` of the redistributions under the topology, plus `flops` over the rate that was stated, if one
    was. `conflicts` and `blocked` are those of all tactics so far. `inputs` and `outputs` are layouts by
    name. `without_rule` are primitives that were kept whole, `moves` the redistributions in program order.
    """

    tactic: str | None
    collectives: Mapping[str, int]
    bytes: Mapping[str, int]
    flops: int
    peak_bytes: int
    seconds: float
    conflicts: tuple[Conflict, ...]
    blocked: tuple[Blocked, ...]
    inputs: Mapping[str, Layout]
    outputs: Mapping[str, Layout | None]
    without_rule: tuple[str, ...]
    uncounted: tuple[str, ...]
    moves: tuple[Move, ...] = field(repr=False)

    @property
    def received_bytes(self) -> int:
        """Bytes received by all collectives together."""
        return sum(self.bytes.values())

    def assert_collectives(self, **counts: int) -> None:
        """Raise AssertionError unless there are exactly these many collectives; kinds not named are 0.

        `report.assert_collectives(all_reduce=290)`. The message lists what there is, with source lines.
        Raises ValueError for a kind that does not exist.
        """
        known = {*COLLECTIVES, "exchange"}
        unknown = sorted(set(counts) - known)
        if unknown:
            raise ValueError(f"unknown collectives {', '.join(unknown)}; use some of {', '.join(sorted(known))}")
        wrong = [
            f"{kind}: expected {counts.get(kind, 0)}, the program has {self.collectives.get(kind, 0)}"
            for kind in (*COLLECTIVES, "exchange")
            if self.collectives.get(kind, 0) != counts.get(kind, 0)
        ]
        if wrong:
            shown = "\n".join(f"  {move}" for move in self.moves[:20])
            more = f"\n  and {len(self.moves) - 20} more" if len(self.moves) > 20 else ""
            raise AssertionError(f"{'; '.join(wrong)}\n{shown}{more}")

    def as_table(self) -> str:
        """Aligned text."""
        rows = [("collective", "number", "received")]
        rows += [(kind, f"{n:,}", bytes_text(self.bytes[kind])) for kind, n in self.collectives.items()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"after {self.tactic}" if self.tactic else "before any tactic"]
        lines += [f"  {name.ljust(widths[0])}  {n.rjust(widths[1])}  {size.rjust(widths[2])}" for name, n, size in rows]
        lines.append(
            f"  {self.flops:,} flops, peak {bytes_text(self.peak_bytes)}, {self.seconds:.3g} s (per device, estimated)"
        )
        for title, entries in (("conflicts", self.conflicts), ("blocked", self.blocked)):
            if entries:
                lines.append(f"  {title}:")
                lines += [f"    {text}" for text in _grouped(map(str, entries))]
        if self.without_rule:
            lines.append(f"  kept whole, without a rule: {', '.join(self.without_rule)}")
        if self.uncounted:
            lines.append(f"  loops of unknown length, counted once: {', '.join(self.uncounted)}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.as_table()

    def to_json(self, indent: int | None = None) -> str:
        """Everything, as JSON; layouts in their text syntax."""
        data: dict[str, Any] = {
            "tactic": self.tactic,
            "collectives": dict(self.collectives),
            "bytes": dict(self.bytes),
            "flops": self.flops,
            "peak_bytes": self.peak_bytes,
            "seconds": self.seconds,
            "conflicts": [_fields(x) for x in self.conflicts],
            "blocked": [_fields(x) for x in self.blocked],
            "inputs": {name: str(layout) for name, layout in self.inputs.items()},
            "outputs": {name: None if layout is None else str(layout) for name, layout in self.outputs.items()},
            "without_rule": list(self.without_rule),
            "uncounted": list(self.uncounted),
            "moves": [_fields(x) for x in self.moves],
        }
        return json.dumps(data, indent=indent)


def _fields(entry: Any) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__dataclass_fields__}


def _grouped(texts: Iterator[str]) -> list[str]:
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    return [text if n == 1 else f"{text} ({n} times)" for text, n in counts.items()]


@dataclass(slots=True)
class _Totals:
    """What a block costs; redistributions with the number of their runs."""

    flops: int = 0
    uncounted: list[str] = field(default_factory=list[str])
    moves: list[tuple[Redistribute, int]] = field(default_factory=list["tuple[Redistribute, int]"])

    def add(self, other: _Totals, runs: int) -> None:
        self.flops += runs * other.flops
        self.uncounted += other.uncounted
        self.moves += [(move, runs * n) for move, n in other.moves]

    def received(self) -> int:
        return sum(n * move.plan.received_bytes for move, n in self.moves)


def _totals(program: SpmdProgram, block: SpmdBlock) -> _Totals:
    total = _Totals()
    for op in block.ops:
        if isinstance(op, Redistribute):
            total.moves.append((op, 1))
            continue
        total.flops += flops_of(op, program)
        inner = [_totals(program, inside) for inside in op.blocks]
        if op.op.name == "cond":
            inner = [max(inner, key=lambda one: (one.received(), one.flops))]
        for one in inner:
            total.add(one, op.op.trips)
        if op.op.name == "while":
            total.uncounted.append(str(op.op.source))
    return total


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a plan: (kind, number, bytes) by step, seconds, and steps and source in words."""

    counted: tuple[tuple[str, int, int], ...]
    seconds: float
    steps: str
    source: str

    @staticmethod
    def of(plan: Plan) -> _Run:
        counted: list[tuple[str, int, int]] = []
        for step, size in zip(plan.steps, plan.step_received_bytes, strict=True):
            counted += _counted(step, size)
        return _Run(tuple(counted), plan.seconds, "; ".join(map(describe, plan.steps)), str(plan.source))


def _counted(step: Step, size: int) -> Iterator[tuple[str, int, int]]:
    if isinstance(step, Chunk):
        inner = [one for one in step.steps if not isinstance(one, Slice)]
        for n, one in enumerate(inner):
            yield op_name(one), step.parts, size if n == 0 else 0
    elif not isinstance(step, Slice):
        yield op_name(step), 1, size


def report_of(
    program: SpmdProgram,
    *,
    tactic: str | None = None,
    conflicts: tuple[Conflict, ...] = (),
    blocked: tuple[Blocked, ...] = (),
    without_rule: tuple[str, ...] = (),
    donated: Collection[int] = (),
    flops_per_second: float | None = None,
) -> Report:
    """The report of an SPMD program."""
    total = _totals(program, program.block)
    numbers = dict.fromkeys(COLLECTIVES, 0)
    sizes = dict.fromkeys(COLLECTIVES, 0)
    seconds = 0.0
    moves: list[Move] = []
    known: dict[int, _Run] = {}
    for move, runs in total.moves:
        once = known.get(id(move.plan)) or known.setdefault(id(move.plan), _Run.of(move.plan))
        seconds += runs * once.seconds
        for kind, number, size in once.counted:
            numbers[kind] = numbers.get(kind, 0) + runs * number
            sizes[kind] = sizes.get(kind, 0) + runs * size
        if once.counted:
            received = runs * sum(size for _, _, size in once.counted)
            moves.append(Move(once.steps, once.source, move.op.name, str(move.op.source), runs, received))
    if flops_per_second is not None:
        seconds += total.flops / flops_per_second
    source = program.program
    return Report(
        tactic,
        numbers,
        sizes,
        total.flops,
        peak_bytes(program, donated),
        seconds,
        conflicts,
        blocked,
        {name: _layout(program, x) for name, x in zip(source.input_names, program.block.inputs, strict=True)},
        {
            name: None if isinstance(x, Literal) else _layout(program, x)
            for name, x in zip(source.output_names, program.block.outputs, strict=True)
        },
        without_rule,
        tuple(dict.fromkeys(total.uncounted)),
        tuple(moves),
    )


def _layout(program: SpmdProgram, x: int) -> Layout:
    return program.values[x].layout(program.mesh)
