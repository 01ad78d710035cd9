"""Peak memory of one device, from when values are made and last used.

A model of what a compiler does, not a bound: the program runs in order; arguments stay unless donated;
reshapes and filled arrays take no memory; an elementwise result with one use in another operation that can
take it in is computed there; an elementwise result may overwrite an operand that dies. A redistribution
needs the staging of its plan as well.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from redist.partir_core.flops import family_of
from redist.partir_core.program import TAG, Op
from redist.partir_core.spmd import Compute, Redistribute, SpmdBlock, SpmdOp, SpmdProgram

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
    stored = _stored(block)
    last: dict[int, int] = {}
    for n, op in enumerate(block.ops):
        for x in _operands(op):
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

    def size(x: int) -> int:
        return program.values[x].local_bytes(program.mesh)

    alive = {x: size(x) for x in given}
    now = sum(alive.values())
    peak = now
    for n, op in enumerate(block.ops):
        dying = [x for x in ends.get(n, ()) if x in alive]
        made = [x for x in _results(op) if stored.get(x, (x,)) == (x,)]
        spare = [alive[x] for x in dying] if _overwrites(op) else []
        during = now + _staging(program, op)
        for x in made:
            alive[x] = size(x)
            now += alive[x]
            if alive[x] in spare:
                spare.remove(alive[x])
            else:
                during += alive[x]
        peak = max(peak, during)
        for x in (*dying, *(x for x in made if x not in last)):
            now -= alive.pop(x)
    return peak


def _operands(op: SpmdOp) -> list[int]:
    if isinstance(op, Redistribute):
        return [op.operand]
    return [x for x in op.operands if isinstance(x, int)]


def _results(op: SpmdOp) -> tuple[int, ...]:
    return (op.result,) if isinstance(op, Redistribute) else op.results


def _stored(block: SpmdBlock) -> dict[int, tuple[int, ...]]:
    """Where a value is: in itself (not listed, or alone), in values that it is a view of or computed from, or
    nowhere."""
    uses: dict[int, list[SpmdOp]] = {}
    for op in block.ops:
        for x in _operands(op):
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
        elif op.op.name in _FILLED or family_of(op.op.name) == "elementwise":
            for y in op.results:
                after = uses.get(y, [])
                filled = op.op.name in _FILLED
                if y not in outputs and (filled or len(after) == 1) and all(map(_takes_in, after)):
                    roots = (root for x in _operands(op) for root in stored.get(x, (x,)))
                    stored[y] = tuple(dict.fromkeys(roots))
    return stored


def _takes_in(op: SpmdOp) -> bool:
    return isinstance(op, Compute) and not op.blocks and family_of(op.op.name) in _TAKES_IN


def _overwrites(op: SpmdOp) -> bool:
    if not isinstance(op, Compute):
        return False
    source: Op = op.op
    return family_of(source.name) in ("elementwise", "dynamic slice", "scatter") or bool(op.blocks)


def _staging(program: SpmdProgram, op: SpmdOp) -> int:
    """Bytes that an operation needs beside its operands and results."""
    if isinstance(op, Redistribute):
        plan = op.plan
        return max(0, plan.peak_bytes - plan.source.block_bytes() - plan.target.block_bytes())
    if not op.blocks:
        return 0
    inside: list[int] = []
    for block in op.blocks:
        own = [x for x in block.inputs]
        consts = op.op.params.get("num_consts", 0) if op.op.name == "scan" else len(own)
        given = own[consts:] if op.op.name == "scan" else []
        inside.append(_peak(program, block, set(), given))
    return max(inside, default=0)
