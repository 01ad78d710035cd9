"""One call of a program on one rank: segments run, and ranks meet in between.

A rank on which something fails goes on without computing, to the next point where ranks meet. There all of
them learn of it and raise the same error, so that none waits for another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from redist.collectives.backends.jax.modules import jax, lax
from redist.collectives.backends.mpi.agreement import Agreement
from redist.collectives.backends.mpi.runtime import mpi
from redist.partir_core.distributed import is_key, restored, stored
from redist.partir_core.machine import Env, literal
from redist.partir_core.program import Literal
from redist.partir_core.segments import Segment, Steps, Together, Walked
from redist.partir_core.spmd import SpmdProgram
from redist.types.dtypes import numpy_dtype

if TYPE_CHECKING:
    from redist.collectives.backends.mpi.transfer import Transfer
    from redist.collectives.plan import Plan

__all__ = ["Walk"]

_FAILED = np.iinfo(np.int64).max


@dataclass(slots=True)
class Walk:
    """`function` compiles a segment, `transfer` is the one kept for a plan. `error` is what failed here."""

    program: SpmdProgram
    name: str
    base: Any
    device: Any
    function: Callable[[Segment], Callable[..., Sequence[Any]]]
    transfer: Callable[[Plan], Transfer]
    constants: Mapping[int, Any]
    error: Exception | None = field(default=None, init=False)

    # -- where ranks meet ------------------------------------------------------------------------------

    @property
    def about(self) -> str:
        """How the message of a failure begins."""
        return f"{self.name} has failed, and what it made is discarded. "

    def attempt(self, act: Callable[[], Any]) -> Any:
        """What `act` returns; None once something has failed."""
        if self.error is not None:
            return None
        try:
            return act()
        except Exception as error:  # whatever it is, the other ranks are to know
            self.error = error
            return None

    def meet(self) -> None:
        """Raises RefusalError, on all ranks, where one has failed."""
        Agreement(self.base, self.error).settle(self.about)

    def moved(self, plan: Plan, x: Any) -> Any:
        """This rank's block after a plan. Ranks learn along with the data where one has failed, and raise
        RefusalError."""
        transfer = self.transfer(plan)
        (given, made), dtype = transfer.shapes, numpy_dtype(plan.source.dtype)
        block = self.attempt(lambda: np.asarray(stored(x)))
        out = None if made is None else self.attempt(lambda: _aligned(made, dtype))
        agreement = Agreement(self.base, self.error)
        if self.error is not None:  # the others get what they wait for, and discard it
            block, out = (None if shape is None else np.zeros(shape, dtype) for shape in (given, made))
        transfer(block, out)
        agreement.settle(self.about)
        words = jax.device_put(out, self.device)
        return restored(words, x) if is_key(x) else words

    def decided(self, value: Any) -> int:
        """A number that control flow depends on: the largest of all ranks', so that none takes another way."""
        mine = self.attempt(lambda: int(np.asarray(value)))
        found = np.asarray([_FAILED if mine is None else mine], dtype=np.int64)
        self.base.Allreduce(mpi().IN_PLACE, found, op=mpi().MAX)
        if found[0] == _FAILED:
            self.meet()
        return int(found[0])

    # -- steps -----------------------------------------------------------------------------------------

    def run(self, block: Steps, env: Env) -> list[Any]:
        """The block's outputs. `env` holds its inputs, and is used up."""
        env.update(self.constants)
        for step in block.steps:
            match step:
                case Segment():
                    made = self.computed(step, [env[x] for x in step.block.inputs])
                    env.update(zip(step.outputs, made, strict=True))
                case Together(op, _):
                    env[op.result] = self.moved(op.plan, env[op.operand])
                case Walked(op, _, copied, _):
                    operands = [self.read(x, env) for x in op.operands]
                    for n in copied:
                        operands[n] = self.attempt(lambda x=operands[n]: x.copy())
                    env.update(zip(op.results, self.walked(step, operands), strict=True))
                case _:
                    assert_never(step)
            for x in step.frees:
                env.pop(x, None)
        return [self.read(x, env) for x in block.outputs]

    def computed(self, segment: Segment, operands: Sequence[Any]) -> Sequence[Any]:
        made = self.attempt(lambda: self.function(segment)(*operands))
        return [None] * len(segment.outputs) if made is None else made

    def read(self, x: int | Literal, env: Env) -> Any:
        return literal(x) if isinstance(x, Literal) else env[x]

    def walked(self, step: Walked, operands: list[Any]) -> Sequence[Any]:
        match step.op.op.name:
            case "scan":
                return self.scanned(step, operands)
            case "while":
                return self.looped(step, operands)
            case _:
                index = self.decided(operands[0])
                branch = step.blocks[min(max(index, 0), len(step.blocks) - 1)]
                made = self.run(branch, dict(zip(branch.inputs, operands[1:], strict=True)))
                return self.apart(made, [id(x) for x in operands])

    def scanned(self, step: Walked, operands: list[Any]) -> Sequence[Any]:
        params, (body,) = step.op.op.params, step.blocks
        first, carries = params["num_consts"], params["num_carry"]
        consts, carry, xs = operands[:first], operands[first : first + carries], operands[first + carries :]
        del operands[:]
        values = [self.program.values[x] for x in step.op.results[carries:]]
        shapes = [(value.local_shape(self.program.mesh), value.type.dtype) for value in values]
        stacks = self.attempt(lambda: [lax.full(shape, 0, dtype) for shape, dtype in shapes])
        order = range(params["length"])
        for n in reversed(order) if params.get("reverse") else order:
            index = np.int32(n)
            given = self.attempt(lambda i=index: _taken()(xs, i)) or [None] * len(xs)
            env = dict(zip(body.inputs, [*consts, *carry, *given], strict=True))
            del carry, given
            made = self.run(body, env)
            carry = self.apart(made[:carries], [id(x) for x in consts])
            stacks = self.attempt(lambda i=index, old=stacks, ys=made[carries:]: _put()(old, ys, i))
        return [*carry, *(stacks or [None] * len(shapes))]

    def looped(self, step: Walked, operands: list[Any]) -> Sequence[Any]:
        params, (condition, body) = step.op.op.params, step.blocks
        first, second = params["cond_nconsts"], params["body_nconsts"]
        tested, used, carry = operands[:first], operands[first : first + second], operands[first + second :]
        del operands[:]
        while True:
            test = self.run(condition, dict(zip(condition.inputs, [*tested, *carry], strict=True)))
            if not self.decided(test[0]):
                return carry
            env = dict(zip(body.inputs, [*used, *carry], strict=True))
            del carry
            carry = self.apart(self.run(body, env), [id(x) for x in used])

    def apart(self, values: Sequence[Any], others: Collection[int]) -> list[Any]:
        """The values, copied where they are among others (by identity) or there twice: who gets them may use
        their memory."""
        seen, kept = {*others, *map(id, self.constants.values())}, list[Any]()
        for x in values:
            kept.append(self.attempt(x.copy) if id(x) in seen and x is not None else x)
            seen.add(id(x))
        return kept


def _aligned(shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
    """Memory that JAX takes as it is: from a multiple of 64 bytes on."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


@lru_cache(maxsize=1)
def _taken() -> Any:
    """Element i of each array along dimension 0."""

    def taken(xs: Sequence[Any], i: Any) -> list[Any]:
        return [lax.dynamic_index_in_dim(x, i, 0, keepdims=False) for x in xs]

    return jax.jit(taken)


@lru_cache(maxsize=1)
def _put() -> Any:
    """The arrays with element i along dimension 0 replaced, in place."""

    def put(stacks: Sequence[Any], ys: Sequence[Any], i: Any) -> list[Any]:
        return [lax.dynamic_update_index_in_dim(stack, y, i, 0) for stack, y in zip(stacks, ys, strict=True)]

    return jax.jit(put, donate_argnums=0)
