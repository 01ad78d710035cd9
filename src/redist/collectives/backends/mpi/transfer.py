"""`Transfer` and `redistribute`: plans on blocks that the ranks of an mpi4py communicator hold.

Device d of the plan's meshes is rank d of the communicator.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from redist.collectives.backends.mpi.agreement import Agreement, Together, agree, fail
from redist.collectives.backends.mpi.arena import bits_of
from redist.collectives.backends.mpi.bound import Bound
from redist.collectives.backends.mpi.check import check_input, check_output, describe
from redist.collectives.backends.mpi.choice import Calibration, Choice
from redist.collectives.backends.mpi.datatypes import Datatypes
from redist.collectives.backends.mpi.execute import Run
from redist.collectives.backends.mpi.groups import communicators
from redist.collectives.backends.mpi.pending import Pending
from redist.collectives.backends.mpi.prepare import intracommunicator, prepare
from redist.collectives.backends.mpi.program import Method, Program
from redist.collectives.plan import Plan
from redist.errors import BackendError, RedistError
from redist.types.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Transfer", "redistribute"]


Agree = Literal["along", "before", "never"]


class Transfer:
    """A plan made ready to run many times on one communicator: programs, communicators, datatypes and
    working memory are built once.

    Building, calling, `start` and `wait` are collective: every rank of the communicator does them in the
    same order, ranks without a block too. `close` (or leaving the `with` block) frees everything but the
    communicators, which stay with the caller's until that is freed or `release` is called.

    What is wrong with the block of one rank is raised, in the same words, on all, and inputs are as they
    were. `agree` says when ranks find out: "before" anything moves; "along" with the data, which costs no
    further synchronisation (the rank in question sends zeros, and outputs are worth nothing); or "never":
    what is wrong on one rank then ends all of them. So does any failure later on, within seconds and with
    a message: the other ranks wait for data that will never come. Agreeing waits for all ranks, also where data
    moves in groups; `bind` agrees once for blocks that stay the same.

    `keep`: working memory stays allocated between calls; else it is handed back, and no step holds more
    than the plan projects. By default it is kept where that fits the plan's memory limit.
    `method`: how boxes that are not contiguous travel, "packed" (through staging memory, as the plan
    projects) or "datatypes" (no staging). By default packed, unless `calibration` says otherwise or only
    datatypes fit the plan's memory limit. `overlapped`: parts of a chunk begin while the one before is
    under way, which takes the memory of two; by default where that fits the limit.
    `progress(done, stages)` is called after every stage: a step, or its part in a chunk.

    Raises, on all ranks: BackendError for what is no intracommunicator, one with too few ranks, ranks
    that hold different plans, values that cannot be reduced, working memory that cannot be reserved;
    TypingError for an ill-typed plan, ProofError for one that ends elsewhere than at its target;
    InfeasibleError where no method fits the plan's memory limit.
    """

    def __init__(
        self,
        plan: Plan,
        comm: Any,
        *,
        agree: Agree = "along",
        keep: bool | None = None,
        method: Method | None = None,
        overlapped: bool | None = None,
        calibration: Calibration | None = None,
        progress: Callable[[int, int], None] | None = None,
        _also: Callable[[Program], None] = lambda _: None,
    ) -> None:
        self.plan = plan
        self._agree, self._progress = agree, progress
        self._pending: Pending | None = None
        self._closed = False
        self._bound: weakref.WeakSet[Run] = weakref.WeakSet()
        self._kept = communicators(intracommunicator(comm))
        self._base = self._kept.base
        self._rank: int = self._base.rank
        self._made = prepare(plan, self._base, Choice(method, overlapped, calibration), agree, _also)
        groupings = self._made.program.groupings()
        self._groups = self._kept.acquire(groupings)
        self._give_back = weakref.finalize(self, self._kept.give_back, groupings)
        self._datatypes = Datatypes()
        limit = plan.options.memory_limit
        self._keeps = keep if keep is not None else limit is None or self._bytes("touched") <= limit

    # -- facts ---------------------------------------------------------------------------------------

    @property
    def shapes(self) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        """Shapes of this rank's input and output block; None where it has none."""
        return self._made.program.given, self._made.program.made

    @property
    def methods(self) -> tuple[Method, ...]:
        """How each step's boxes travel."""
        return self._made.methods

    @property
    def overlapped(self) -> tuple[bool, ...]:
        """Whether each step is a chunk whose parts overlap."""
        return self._made.overlapped

    @property
    def peak_bytes(self) -> int:
        """Bytes that this rank has in use at most, its input and output among them, for C-contiguous blocks."""
        return self._bytes("touched" if self._keeps else "held")

    @property
    def strided_peak_bytes(self) -> int:
        """The same for blocks of any strides, of which all that is sent or received is packed."""
        return self._made.program.block_bytes + self._made.program.arena_bytes

    @property
    def stages(self) -> int:
        """What `progress` counts up to: steps, and steps of chunks once per part."""
        return self._made.program.stages

    def _bytes(self, what: Literal["touched", "held"]) -> int:
        program = self._made.program
        return program.block_bytes + (program.touched_bytes if what == "touched" else program.held_bytes)

    # -- running -------------------------------------------------------------------------------------

    def __call__(self, local_in: NDArray[Any] | None, out: NDArray[Any] | None = None) -> NDArray[Any] | None:
        """Run the plan on this rank's block of the source; returns its block of the target.

        None on ranks without a block of the target; `local_in` is None on ranks without one of the source.
        The block is written to `out` where given, of any strides, which must not overlap `local_in`.
        Raises BackendError, on all ranks, for blocks of another shape or dtype.
        """
        self.start(local_in, out)
        return self.wait()

    execute = __call__

    def start(self, local_in: NDArray[Any] | None, out: NDArray[Any] | None = None) -> None:
        """Begin: when this returns, the first communication is under way. Neither block may be touched
        before `wait` has returned. Raises as calling does; where ranks agree along the way, `wait` does."""
        with Together(self._base, lambda: describe(self.plan, "starting")):
            self._kept.in_order()
            made, error = self._checked(local_in, out, self._require_idle)
            if error is not None and self._agree == "never":
                raise error
            agreement = None if self._agree == "never" else Agreement(self._base, error)
            if agreement is not None and (self._agree == "before" or self._pending is not None or self._closed):
                agreement.settle()
                agreement = None
            given, into = (local_in, made) if error is None else self._stand_ins()
            self._begin(self._run(given, into), made, agreement)

    def bind(self, local_in: NDArray[Any] | None, out: NDArray[Any] | None = None) -> Bound:
        """The transfer on these blocks, to be run many times; collective. Ranks agree on the blocks now, however
        they `agree` otherwise, and then no more. Both are as for calling the transfer, and are kept: `out`, made
        here if it is not given, is written anew by every run.

        Raises BackendError, on all ranks, for blocks of another shape or dtype, and where one cannot be allocated.
        """
        self._kept.in_order()
        made, error = self._checked(local_in, out, self._require_open)
        run: Run | None = None
        if error is None:
            try:
                run = self._run(local_in, made)
                run.prepare()
            except (RedistError, MemoryError) as raised:
                error = raised
        agree(self._base, error)
        assert run is not None
        ready = run
        self._bound.add(ready)

        def begin() -> None:
            self._require_idle()
            with Together(self._base, lambda: describe(self.plan, "starting")):
                self._kept.in_order()
                self._begin(ready, made, None)

        def through() -> None:
            self._require_idle()
            try:  # as `Together` does, of which the making takes as long as a small message
                self._kept.in_order()
                ready.through()
            except BaseException as error:
                fail(self._base, error, lambda: describe(self.plan, "moving"))

        return Bound(self, begin, through if ready.is_straight else None, made)

    def _checked(
        self, local_in: NDArray[Any] | None, out: NDArray[Any] | None, fit: Callable[[], None]
    ) -> tuple[NDArray[Any] | None, Exception | None]:
        """The block to write into, and what is wrong on this rank."""
        try:
            fit()
            check_input(self.plan, self._rank, self.shapes[0], local_in)
            check_output(self.plan, self._rank, self.shapes[1], local_in, out)
            if out is None and self.shapes[1] is not None:
                out = np.empty(self.shapes[1], numpy_dtype(self.plan.source.dtype))
        except (RedistError, MemoryError) as raised:
            return out, raised
        return out, None

    def _begin(self, run: Run, made: NDArray[Any] | None, agreement: Agreement | None) -> None:
        self._pending = Pending(run, made, agreement, lambda: describe(self.plan, "moving"))
        self._kept.begins(self._pending)

    def _stand_ins(self) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
        """Blocks of the right shapes, so that the other ranks get what they wait for."""
        found: list[NDArray[Any] | None] = []
        start, dtype = 0, numpy_dtype(self.plan.source.dtype)
        for shape in self.shapes:
            size = 0 if shape is None else math.prod(shape) * dtype.itemsize
            piece = self._made.spare.bytes[start : start + size]
            found.append(None if shape is None else piece.view(dtype).reshape(shape))
            start += size
        return found[0], found[1]

    def _run(self, given: NDArray[Any] | None, into: NDArray[Any] | None) -> Run:
        return Run(
            self._made.program,
            None if given is None else bits_of(given),
            None if into is None else bits_of(into),
            self._made.arena,
            self._base,
            self._groups,
            self._datatypes,
            self.plan.source.dtype,
            not self._keeps,
            self._progress,
        )

    def test(self) -> bool:
        """Go on as far as possible without waiting; whether all is done, and `wait` returns at once."""
        return self._under_way().test()

    def wait(self) -> NDArray[Any] | None:
        """Finish what `start` began; returns this rank's block of the target. Raises BackendError where
        nothing has been started."""
        pending = self._under_way()
        try:
            pending.finish()
        except RedistError:
            self._made.spare.trim([])
            raise
        finally:
            self._pending = None
            self._kept.ends(pending)
            if not self._keeps:
                self._made.arena.trim([])
        return pending.made

    def _require_open(self) -> None:
        if self._closed:
            raise BackendError("the transfer is closed; build another one")

    def _require_idle(self) -> None:
        self._require_open()
        if self._pending is not None:
            raise BackendError("the transfer is under way already; wait() for it, or build another one")

    def _under_way(self) -> Pending:
        if self._pending is None:
            raise BackendError("nothing is under way; start() the transfer first")
        return self._pending

    # -- the end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Free datatypes and working memory; waits for what is under way."""
        if self._closed:
            return
        try:
            if self._pending is not None:
                self.wait()
        finally:
            self._closed = True
            for run in self._bound:
                run.forget()
            self._datatypes.free()
            self._made.arena.free()
            self._made.spare.free()
            self._give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def redistribute(
    local_in: NDArray[Any] | None,
    plan: Plan,
    comm: Any,
    out: NDArray[Any] | None = None,
    *,
    method: Method | None = None,
    calibration: Calibration | None = None,
) -> NDArray[Any] | None:
    """Run a plan once over the ranks of an mpi4py communicator; returns this rank's block of the target.

    Collective over `comm`, whose rank d holds the block of device d (a NumPy array of any strides, which is
    not changed); ranks without a block pass and get None. `out` takes the result where given. What cannot
    run is raised on all ranks, before anything moves; memory in use stays within `plan.peak_bytes` as
    projected for the backend "mpi". For the same plan again and again, build a `Transfer`.

    Raises as `Transfer` and calling it do.
    """
    made = out

    def check(program: Program) -> None:
        nonlocal made
        rank = comm.Get_rank()
        check_input(plan, rank, program.given, local_in)
        check_output(plan, rank, program.made, local_in, out)
        if out is None and program.made is not None:
            made = np.empty(program.made, numpy_dtype(plan.source.dtype))

    options: dict[str, Any] = {"keep": False, "method": method, "calibration": calibration}
    with Transfer(plan, comm, agree="never", _also=check, **options) as transfer:
        return transfer(local_in, made)
