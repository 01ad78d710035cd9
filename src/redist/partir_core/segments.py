"""An SPMD program cut at its redistributions: what is compiled whole, and what ranks do together in between.

A segment is a maximal run of operations without communication, control flow included whose bodies have none.
What remains are redistributions, and control flow with redistributions inside, which is walked step by step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from redist.collectives.plan import Plan
from redist.collectives.steps import Slice
from redist.partir_core.program import Literal
from redist.partir_core.spmd import Compute, Redistribute, SpmdBlock, SpmdOp, SpmdProgram, reads, results

__all__ = ["Segment", "Step", "Steps", "Together", "Walked", "communicates", "steps_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Operations that are compiled together. `donated` are positions of inputs whose memory results may
    take; `frees` are values that nothing needs afterwards."""

    block: SpmdBlock
    donated: tuple[int, ...]
    frees: tuple[int, ...]

    @property
    def outputs(self) -> tuple[int, ...]:
        """Values that are needed afterwards."""
        return tuple(x for x in self.block.outputs if isinstance(x, int))


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """A redistribution that communicates."""

    op: Redistribute
    frees: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Walked:
    """Control flow that communicates, with the steps of its blocks. `frees` as for segments; `copied` are
    positions of operands that are copied on the way in, so that the body owns what it is given."""

    op: Compute
    blocks: tuple[Steps, ...]
    copied: tuple[int, ...]
    frees: tuple[int, ...]


Step = Segment | Together | Walked


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A block as steps in order."""

    inputs: tuple[int, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int | Literal, ...]

    def walk(self) -> Iterator[Step]:
        """Every step, those of bodies after the one that holds them."""
        for step in self.steps:
            yield step
            if isinstance(step, Walked):
                for inner in step.blocks:
                    yield from inner.walk()


def communicates(plan: Plan) -> bool:
    """Whether devices need one another for a plan: slicing they do on their own."""
    return any(not isinstance(step, Slice) for step in plan.steps)


def steps_of(program: SpmdProgram, donated: Collection[int] = ()) -> Steps:
    """The steps of a program. `donated` are positions of inputs that may be overwritten."""
    owned = {program.block.inputs[n] for n in donated}
    return _Cutting(program).block(program.block, owned)


class _Cutting:
    """Cuts blocks. Constants are in every block, and stay."""

    def __init__(self, program: SpmdProgram) -> None:
        self.program = program

    def block(self, block: SpmdBlock, owned: set[int]) -> Steps:
        """`owned` are inputs that nobody outside the block needs."""
        groups = list(_groups(block.ops))
        last: dict[int, int] = {}
        for n, group in enumerate(groups):
            for op in group:
                last.update(dict.fromkeys(self.reads(op), n))
        last.update(dict.fromkeys((x for x in block.outputs if isinstance(x, int)), len(groups)))
        ends: dict[int, list[int]] = {}
        for x, n in last.items():
            if x not in self.program.constants:
                ends.setdefault(n, []).append(x)
        steps: list[Step] = []
        owned = set(owned)
        for n, group in enumerate(groups):
            made = [x for op in group for x in results(op)]
            unused = [x for x in made if x not in last]
            match group:
                case [Redistribute() as op] if communicates(op.plan):
                    steps.append(Together(op, (*ends.get(n, ()), *unused)))
                case [Compute() as op] if _meets(op):
                    steps.append(self.walked(op, (*ends.get(n, ()), *unused)))
                case _:
                    segment = self.segment(group, [x for x in made if last.get(x, n) > n], ends.get(n, ()), owned)
                    if segment is not None:
                        steps.append(segment)
            owned.update(made)
        return Steps(block.inputs, tuple(steps), block.outputs)

    def reads(self, op: SpmdOp) -> list[int]:
        """Values of the block that an operation reads, and constants that its bodies do."""
        read = reads(op)
        for block in op.blocks if isinstance(op, Compute) else ():
            inside = [x for inner in block.ops for x in self.reads(inner)]
            inside += [x for x in block.outputs if isinstance(x, int)]
            read += [x for x in inside if x in self.program.constants]
        return read

    def segment(
        self, ops: Sequence[SpmdOp], outputs: Sequence[int], dying: Sequence[int], owned: Collection[int]
    ) -> Segment | None:
        """None where nothing is left to do."""
        effects = any(isinstance(op, Compute) and op.op.effects for op in ops)
        if not outputs and not effects:
            return None
        made = {x for op in ops for x in results(op)}
        inputs = tuple(dict.fromkeys(x for op in ops for x in self.reads(op) if x not in made))
        room = Counter(self.kind(x) for x in outputs)
        donated: list[int] = []
        for n, x in enumerate(inputs):
            if x in dying and x in owned and room[self.kind(x)]:
                room[self.kind(x)] -= 1
                donated.append(n)
        frees = tuple(x for x in dying if x not in made)
        return Segment(SpmdBlock(inputs, tuple(ops), tuple(outputs)), tuple(donated), frees)

    def kind(self, x: int) -> object:
        value = self.program.values[x]
        return value.local_shape(self.program.mesh), value.type.dtype

    def walked(self, op: Compute, frees: tuple[int, ...]) -> Walked:
        params = op.op.params
        match op.op.name:
            case "scan":
                (body,) = op.blocks
                first, carries = params["num_consts"], params["num_carry"]
                blocks = (self.block(body, set(body.inputs[first:])),)
                copied = tuple(range(first, first + carries))
            case "while":
                condition, body = op.blocks
                first = params["cond_nconsts"] + params["body_nconsts"]
                owned = set(body.inputs[params["body_nconsts"] :])
                blocks = (self.block(condition, set()), self.block(body, owned))
                copied = tuple(range(first, len(op.operands)))
            case _:
                blocks = tuple(self.block(branch, set()) for branch in op.blocks)
                copied = ()
        return Walked(op, blocks, copied, frees)


def _meets(op: SpmdOp) -> bool:
    """Whether devices need one another for an operation."""
    if isinstance(op, Redistribute):
        return communicates(op.plan)
    return any(_meets(inner) for block in op.blocks for inner in block.ops)


def _groups(ops: Sequence[SpmdOp]) -> Iterator[list[SpmdOp]]:
    run: list[SpmdOp] = []
    for op in ops:
        if not _meets(op):
            run.append(op)
            continue
        if run:
            yield run
        yield [op]
        run = []
    if run:
        yield run
