"""`mpiexec -n N redist run PLAN --backend mpi`: every rank reads, moves, checks and writes its own blocks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from redist.cli.arguments import plan_text
from redist.cli.failure import OK, of_redist, of_system
from redist.cli.progress import Progress
from redist.cli.run import read_input, report_of, show
from redist.cli.terminal import launcher_terminal
from redist.cli.values import counted
from redist.collectives import Plan
from redist.collectives.backends.mpi import Transfer
from redist.collectives.backends.mpi.agreement import abort, agree
from redist.collectives.backends.mpi.runtime import mpi
from redist.collectives.backends.numpy import reduce_blocks
from redist.collectives.simulate import check_block, scatter
from redist.errors import BackendError, RedistError
from redist.types.dtypes import numpy_dtype
from redist.types.layout import Layout
from redist.types.mesh import Mesh

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["run_mpi"]

Read = Callable[[tuple[slice, ...]], "NDArray[Any]"]
"""A box of the global array."""


def run_mpi(name: str, input_file: Path | None, output_file: Path | None, as_json: bool) -> int:
    """Run a saved plan on the ranks of this launch; rank 0 reports. Returns the exit status of this rank.

    Raises, on rank 0, what all ranks agree went wrong.
    """
    comm = mpi().COMM_WORLD
    try:
        checked = _run(comm, name, input_file, output_file)
    except (RedistError, OSError) as error:
        if comm.rank == 0:
            raise
        return (of_redist(error) if isinstance(error, RedistError) else of_system(error)).status
    except BaseException:
        abort(comm, f"running {name}")
    if comm.rank == 0:
        plan, elements = checked
        devices = len({*plan.source.mesh.device_ids, *plan.target.mesh.device_ids})
        show(report_of(plan, "mpi", devices, elements, output_file), as_json)
    return OK


def _run(comm: Any, name: str, input_file: Path | None, output_file: Path | None) -> tuple[Plan, int]:
    """The plan, and how many elements all ranks have checked."""
    plan = Plan.from_json(_everywhere(comm, lambda: plan_text(name)))
    count: Callable[[Any], Any] = _uncounted
    with Transfer(plan, comm, progress=lambda done, _: count(done)) as transfer:
        read = _together(comm, lambda: _reader(plan, input_file))
        given = _together(comm, lambda: _given(plan, comm.rank, read))
        with _bar(transfer.stages) if comm.rank == 0 else nullcontext(count) as count:
            made = transfer(given)
    total = _reduced(comm, plan.target, made)
    _together(comm, lambda: _check(plan, comm.rank, total, read))
    if output_file is not None:
        _write(comm, plan, total, output_file)
    return plan, sum(comm.allgather(0 if made is None else made.size))


def _bar(stages: int) -> AbstractContextManager[Callable[[Any], Any]]:
    """A bar on the terminal that ranks are started from; nothing where there is none."""
    progress = Progress()
    if not progress.console.is_terminal:
        size = launcher_terminal()
        if size is None:
            return nullcontext(_uncounted)
        progress.console = Console(stderr=True, highlight=False, force_terminal=True, width=size.columns or 80)
    return progress.phase("moving", stages)


def _uncounted(done: Any) -> Any:
    return done


def _everywhere(comm: Any, read: Callable[[], str]) -> str:
    """What rank 0 reads; what it raises while reading is raised on all ranks."""
    found: tuple[str, RedistError | OSError | None] = ("", None)
    if comm.rank == 0:
        try:
            found = (read(), None)
        except (RedistError, OSError) as error:
            found = ("", error)
    text, error = comm.bcast(found)
    if error is not None:
        raise error
    return text


def _together(comm: Any, act: Callable[[], Any]) -> Any:
    """What each rank does; what one raises is raised on all."""
    made, failed = None, None
    try:
        made = act()
    except (RedistError, OSError, MemoryError) as error:
        failed = BackendError(of_system(error).message) if isinstance(error, OSError) else error
    agree(comm, failed, about="")
    return made


def _reader(plan: Plan, path: Path | None) -> Read:
    if path is None:
        return lambda box: counted(plan.source.shape, plan.source.dtype, box)
    array = read_input(plan, path, mapped=True)
    return lambda box: np.array(array[box])


def _given(plan: Plan, rank: int, read: Read) -> NDArray[Any] | None:
    """This rank's block; where contributions are to be reduced, one that with the others makes up the array."""
    source = plan.source
    if rank not in source.mesh.device_ids:
        return None
    block = read(source.box(rank))
    if source.partial is None:
        return block
    count = source.mesh.count(source.partial_axes)
    shares = Layout(
        Mesh({"share": count}), block.shape, None, source.dtype, partial=["share"], reduction=source.partial.reduction
    )
    place = np.asarray([source.mesh.device_ids.index(rank)])
    share = scatter(shares, block)[int(source.mesh.index(source.partial_axes, place)[0])]
    return np.asarray(share, dtype=block.dtype)


def _reduced(comm: Any, target: Layout, made: NDArray[Any] | None) -> NDArray[Any] | None:
    """This rank's block of the target's value: what is still unreduced is reduced, for checking and writing."""
    if target.partial is None:
        return made
    ids = list(target.mesh.device_ids)
    place = ids.index(comm.rank) if comm.rank in ids else -1
    blocks = target.mesh.index([axis for dim in target.dims for axis in dim.axes])
    group = comm.Split(mpi().UNDEFINED if place < 0 else int(blocks[place]), comm.rank)
    if place < 0 or made is None:
        return None
    share = int(target.mesh.index(target.partial_axes)[place])
    by_share: dict[int, NDArray[Any]] = dict(group.allgather((share, made)))
    group.Free()
    return reduce_blocks(target.partial.reduction, [by_share[n] for n in sorted(by_share)])


def _check(plan: Plan, rank: int, block: NDArray[Any] | None, read: Read) -> None:
    if block is not None:
        check_block(plan, rank, block, read(plan.target.box(rank)))


def _write(comm: Any, plan: Plan, block: NDArray[Any] | None, path: Path) -> None:
    """Every block goes into the file once, from the first device that holds it."""
    target = plan.target

    def create() -> None:
        if comm.rank == 0:
            with path.open("wb") as file:
                np.lib.format.write_array_header_1_0(file, _header(plan))
                file.truncate(file.tell() + int(np.prod(target.shape, dtype=np.int64)) * target.itemsize)

    def fill() -> None:
        blocks = target.mesh.index([axis for dim in target.dims for axis in dim.axes])
        owners = {target.mesh.device_ids[int(p)] for p in np.unique(blocks, return_index=True)[1]}
        if block is not None and block.size and comm.rank in owners:
            file = np.load(path, mmap_mode="r+")
            file[target.box(comm.rank)] = block.view(file.dtype)
            file.flush()

    _together(comm, create)
    _together(comm, fill)


def _header(plan: Plan) -> dict[str, Any]:
    descr = np.lib.format.dtype_to_descr(numpy_dtype(plan.target.dtype))
    return {"descr": descr, "fortran_order": False, "shape": plan.target.shape}
