"""Collectives of a program, in the StableHLO that XLA is given and in the HLO that XLA compiles, counted alike for
everyone: loop bodies as often as they run where that is known and once otherwise, of branches the costliest."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from redist.proofs.audit.hlo import Instruction, Module, parse_module, permute_pairs, replica_groups
from redist.types.dtypes import itemsize

__all__ = ["KINDS", "Traffic", "of_compiled", "of_stablehlo", "peak_of"]

KINDS = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "permute")
"""As the report calls them."""

_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_XLA_DTYPES = {"pred": "bool", "s8": "i8", "s16": "i16", "s32": "i32", "s64": "i64", "c64": "c64", "c128": "c128"}

_COST: Mapping[str, Callable[[float, int], float]] = {
    "all_gather": lambda made, k: made * (k - 1) / k,
    "all_reduce": lambda made, k: 2 * made * (k - 1) / k,
    "reduce_scatter": lambda made, k: made * (k - 1),
    "all_to_all": lambda made, k: made * (k - 1) / k,
}
"""Received bytes by those of the result."""


@dataclass(slots=True)
class Traffic:
    """Numbers of collectives by kind; `received` bytes of the busiest device by kind. A combined collective counts
    once, and its `parts` are how many arrays it moves."""

    number: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    received: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    parts: int = 0

    def add(self, other: Traffic, runs: int = 1) -> None:
        """`runs` times the other's, besides."""
        for kind in KINDS:
            self.number[kind] += runs * other.number[kind]
            self.received[kind] += runs * other.received[kind]
        self.parts += runs * other.parts

    @property
    def bytes(self) -> int:
        """Of all kinds."""
        return round(sum(self.received.values()))

    @property
    def count(self) -> int:
        """Of all kinds."""
        return sum(self.number.values())

    def __str__(self) -> str:
        return ", ".join(f"{kind} {n}" for kind, n in self.number.items() if n) or "none"


def of_stablehlo(text: str) -> Traffic:
    """Collectives in a StableHLO module, calls followed.

    A loop runs as often as its condition says, where that compares a counter that starts at 0 with a constant, as
    JAX writes scans; others count once.
    """
    from jax._src.interpreters import mlir  # pyright: ignore[reportPrivateUsage]
    from jaxlib.mlir import ir  # pyright: ignore[reportMissingTypeStubs]

    make_context: Any = mlir.make_ir_context
    with make_context():
        module: Any = ir.Module.parse(text)
        functions = {str(op.attributes["sym_name"]).strip('"'): op for op in module.body.operations}
        return _region_traffic(_blocks(functions["main"]), functions)


def _blocks(op: Any) -> Iterator[Any]:
    for region in op.regions:
        yield from region.blocks


def _region_traffic(blocks: Iterable[Any], functions: Mapping[str, Any]) -> Traffic:
    total = Traffic()
    for block in blocks:
        for op in block.operations:
            name = str(op.operation.name)
            kind = name.removeprefix("stablehlo.").removeprefix("collective_")
            if name in ("func.call", "call"):
                callee = str(op.attributes["callee"]).removeprefix("@").strip('"')
                total.add(_region_traffic(_blocks(functions[callee]), functions))
            elif name.startswith("stablehlo.") and kind in KINDS:
                _operation(op, kind, total)
            elif name == "stablehlo.while":
                condition, body = op.regions
                total.add(_region_traffic(condition.blocks, functions))
                total.add(_region_traffic(body.blocks, functions), _trips(op))
            elif name in ("stablehlo.case", "stablehlo.if"):
                branches = [_region_traffic(region.blocks, functions) for region in op.regions]
                total.add(max(branches, key=_costliest))
            else:
                total.add(_region_traffic(_blocks(op), functions))
    return total


def _operation(op: Any, kind: str, total: Traffic) -> None:
    total.number[kind] += 1
    total.parts += 1
    made = sum(_tensor_bytes(str(result.type)) for result in op.results)
    if kind == "permute":
        total.received[kind] += made
        return
    groups = re.search(r"tensor<\d+x(\d+)xi64>", str(op.attributes["replica_groups"]))
    if groups is None:
        raise ValueError(f"unknown form of replica groups: {op.attributes['replica_groups']}")
    total.received[kind] += _COST[kind](made, int(groups[1]))


def _tensor_bytes(text: str) -> int:
    found = re.fullmatch(r"tensor<((?:\d+x)*)(.+)>", text)
    if found is None:
        raise ValueError(f"unknown form of type: {text}")
    dims = map(int, found[1].split("x")[:-1])
    names = {"i1": "bool", "complex<f32>": "c64", "complex<f64>": "c128"}
    return math.prod(dims) * itemsize(names.get(found[2], found[2].replace("ui", "u").lower()))


def _costliest(traffic: Traffic) -> tuple[int, int]:
    return traffic.bytes, traffic.count


def _trips(loop: Any) -> int:
    """How often a loop runs, where it counts from 0 to a constant; else 1."""
    (block,) = loop.regions[0].blocks
    ops = list(block.operations)
    if [str(op.operation.name) for op in ops] != ["stablehlo.constant", "stablehlo.compare", "stablehlo.return"]:
        return 1
    end = re.search(r"dense<(\d+)>", str(ops[0]))
    counters = [argument.get_name() for argument in block.arguments]
    left, right = (operand.get_name() for operand in ops[1].operands)
    if end is None or left not in counters or right != ops[0].results[0].get_name():
        return 1
    start = str(loop.operands[counters.index(left)].owner)
    return int(end[1]) if "LT" in str(ops[1].attributes["comparison_direction"]) and "dense<0>" in start else 1


def of_compiled(text: str) -> Traffic:
    """Collectives in a compiled module. Received bytes of a device: of an all-gather k-1 of its blocks, of an
    all-reduce 2 (k-1)/k of the array, of a reduce-scatter and an all-to-all (k-1)/k of what it has, of a permute its
    block, with k devices in a group."""
    module = parse_module(text)
    return _computation(module, module.entry, {})


def _computation(module: Module, name: str, known: dict[str, Traffic]) -> Traffic:
    if name in known:
        return known[name]
    total = Traffic()
    for one in module.computations[name]:
        if one.opcode == "while":
            trips = _TRIPS.search(one.text)
            for part, runs in (("condition", 1), ("body", int(trips[1]) if trips else 1)):
                total.add(_computation(module, _called(one, part), known), runs)
        elif one.opcode == "conditional":
            names = re.findall(r"%([\w.\-]+)", one.attributes.get("branch_computations", "")) or [
                _called(one, "true_computation"),
                _called(one, "false_computation"),
            ]
            total.add(max((_computation(module, n, known) for n in names), key=_costliest))
        elif one.opcode == "call":
            total.add(_computation(module, _called(one, "to_apply"), known))
        else:
            _collective(one, module.partitions, total)
    known[name] = total
    return total


def _called(one: Instruction, attribute: str) -> str:
    return one.attributes[attribute].removeprefix("%")


def _bytes(one: Instruction) -> int:
    return sum(s.elements * itemsize(_XLA_DTYPES.get(s.dtype, s.dtype)) for s in one.shapes)


def _collective(one: Instruction, partitions: int, total: Traffic) -> None:
    kind = one.opcode.removesuffix("-start").replace("-", "_").removeprefix("collective_")
    if kind not in KINDS:
        return
    total.number[kind] += 1
    total.parts += max(1, len(one.operands)) if kind != "all_to_all" else 1
    if kind == "permute":
        moved = any(source != target for source, target in permute_pairs(one))
        total.received[kind] += _bytes(one) if moved else 0
        return
    groups = replica_groups(one, partitions)
    total.received[kind] += _COST[kind](_bytes(one), len(groups[0]))


def peak_of(compiled: Any) -> int:
    """Bytes per device that a compiled program has alive at most, arguments and results among them, by XLA's buffer
    assignment. XLA for CPU hands out one arena for all temporaries, which is the most that they need at a time."""
    found = compiled.memory_analysis()
    return int(
        found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes - found.alias_size_in_bytes
    )
