"""Peak memory of one device, from when values are made and last used.

A model of what a compiler does, not a bound: the program runs in order; arguments stay unless donated;
reshapes and filled arrays take no memory; an elementwise result with one use in another operation that can
take it in is computed there; an elementwise result may overwrite an operand that dies. A redistribution
needs the staging of its plan as well. A loop's state has one place, from its initial value, if that dies, to
the result; a branch's results are where the conditional's are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from redist.partir_core.flops import family_of
from redist.partir_core.program import TAG, Literal, Op
from redist.partir_core.rules import FactorKind
from redist.partir_core.spmd import Compute, Redistribute, SpmdBlock, SpmdOp, SpmdProgram, reads, results

__all__ = ["peak_bytes"]

_ALIASES = frozenset({"reshape", "squeeze", "expand_dims", "copy", "stop_gradient", "optimization_barrier", TAG})
_FILLED = frozenset({"iota", "broadcast_in_dim"})
_TAKES_IN = frozenset({"elementwise", "reduction", "broadcast"})


def peak_bytes(program: SpmdProgram, donated: Collection[int] = ()) -> int:
    """Bytes per device: the most that is alive at a time. `donated` are positions of inputs."""
    block = program.block
    kept = {x for n, x in enumerate(block.inputs) if n not in donated} | set(program.constants)
    return _peak(program, block, kept, [*block.inputs, *program.constants])


def _peak(program: SpmdProgram, block: SpmdBlock, kept: Collection[int], given: Sequence[int]) -> int:
    """`given` are alive at the start, `kept` to the end."""
    stored = _stored(block)
    last: dict[int, int] = {}
    for n, op in enumerate(block.ops):
        for x in reads(op):
            for root in stored.get(x, (x,)):
                last[root] = n
    forever = len(block.ops)
    for x in block.outputs:
        if isinstance(x, int):
            last.update(dict.fromkeys(stored.get(x, (x,)), forever))
    last.update(dict.fromkeys(kept, forever))
    ends: dict[int, list[int]] = {}
    for x, n in last.items():
        ends.setdefault(n, []).append(x)

    alive = {x: _size(program, x) for x in given}
    now = sum(alive.values())
    peak = now
    for n, op in enumerate(block.ops):
        dying = {x: alive[x] for x in ends.get(n, ()) if x in alive}
        made = {x: _size(program, x) for x in results(op) if stored.get(x, (x,)) == (x,)}
        peak = max(peak, now + _needed(program, op, dying, made, stored))
        alive |= made
        now += sum(made.values())
        for x in (*dying, *(x for x in made if x not in last)):
            now -= alive.pop(x)
    return peak


def _size(program: SpmdProgram, x: int) -> int:
    return program.values[x].local_bytes(program.mesh)


def _stored(block: SpmdBlock) -> dict[int, tuple[int, ...]]:
    """Where a value is: in itself (not listed, or alone), in values that it is a view of or computed from, or
    nowhere."""
    uses: dict[int, list[SpmdOp]] = {}
    for op in block.ops:
        for x in reads(op):
            uses.setdefault(x, []).append(op)
    outputs = {x for x in block.outputs if isinstance(x, int)}
    stored: dict[int, tuple[int, ...]] = {}
    for op in block.ops:
        if not isinstance(op, Compute) or op.blocks:
            continue
        if op.op.name in _ALIASES:
            for x, y in zip(op.operands, op.results, strict=False):
                if isinstance(x, int):
                    stored[y] = stored.get(x, (x,))
        elif op.op.name in _FILLED or op.op.name == "transpose" or _by_element(op):
            for y in op.results:
                after = uses.get(y, [])
                filled = op.op.name in _FILLED
                if y not in outputs and (filled or len(after) == 1) and all(map(_takes_in, after)):
                    roots = (root for x in reads(op) for root in stored.get(x, (x,)))
                    stored[y] = tuple(dict.fromkeys(roots))
    return stored


def _by_element(op: Compute) -> bool:
    """Whether every element of the result comes from one of each operand: outer products are such."""
    if op.op.name != "dot_general":
        return family_of(op.op.name) == "elementwise"
    return op.rule is not None and all(
        factor.kind is not FactorKind.SUM or factor.size == 1 for factor in op.rule.factors
    )


def _takes_in(op: SpmdOp) -> bool:
    if not isinstance(op, Compute) or op.blocks:
        return False
    return family_of(op.op.name) in _TAKES_IN or op.op.name == "transpose"


def _needed(
    program: SpmdProgram,
    op: SpmdOp,
    dying: Mapping[int, int],
    made: Mapping[int, int],
    stored: Mapping[int, tuple[int, ...]],
) -> int:
    """Bytes that an operation needs beside what is alive before it: for its results, and while it runs. `dying` and
    `made` are sizes by value."""
    if isinstance(op, Redistribute):
        plan = op.plan
        staging = max(0, plan.peak_bytes - plan.source.block_bytes() - plan.target.block_bytes())
        return sum(made.values()) + staging
    if op.blocks:
        return _nested(program, op, dying, stored)
    if not _overwrites(op.op):
        return sum(made.values())
    spare, needed = list(dying.values()), 0
    for size in made.values():
        if size in spare:
            spare.remove(size)
        else:
            needed += size
    return needed


def _overwrites(op: Op) -> bool:
    return family_of(op.name) in ("elementwise", "dynamic slice", "scatter")


def _nested(program: SpmdProgram, op: Compute, dying: Mapping[int, int], stored: Mapping[int, tuple[int, ...]]) -> int:
    """Of control flow. What dies with it is handed to its blocks, where it may end or be overwritten."""

    def size(values: Sequence[int | Literal]) -> int:
        return sum(_size(program, x) for x in values if isinstance(x, int))

    roots = [stored.get(x, (x,)) if isinstance(x, int) else () for x in op.operands]
    uses = Counter(root for them in roots for root in them)

    def handed(first: int, stop: int | None = None) -> list[int | None]:
        """What dies with each operand of these, and is no other one."""
        return [x[0] if len(x) == 1 and x[0] in dying and uses[x[0]] == 1 else None for x in roots[first:stop]]

    params = op.op.params
    match op.op.name:
        case "scan":
            first, carries = params["num_consts"], params["num_carry"]
            gone = handed(first, first + carries)
            needed = _peak(program, op.blocks[0], (), op.blocks[0].inputs[first:]) + size(op.results[carries:])
        case "while":
            first, second = params["cond_nconsts"], params["body_nconsts"]
            gone = handed(first + second)
            needed = max(
                _peak(program, block, (), block.inputs[skipped:])
                for block, skipped in zip(op.blocks, (first, second), strict=True)
            )
        case _:
            gone = handed(1)
            given = [n for n, x in enumerate(gone) if x is not None]
            inside = [_peak(program, block, (), [block.inputs[n] for n in given]) for block in op.blocks]
            needed = max(*inside, size(op.results))
    return needed - sum(dying[x] for x in gone if x is not None)
