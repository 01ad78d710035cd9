"""Arrays whose blocks ranks hold: what partitioned functions on MPI return, and take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from redist.errors import BackendError, LayoutError
from redist.types.dtypes import dtype_name, numpy_dtype

if TYPE_CHECKING:
    from redist.types.layout import Layout

__all__ = ["DistributedArray", "is_key", "restored", "stored"]


class DistributedArray:
    """This rank's block of a global array, and the layout that says which block that is.

    Device d of the layout's mesh is rank d of the communicator (`MPI.COMM_WORLD` by default). All ranks
    build one together, each from its own block (a NumPy or JAX array), of any layout that divides the
    array among ranks: uneven, over another mesh of them, or partial ones too. Nothing is copied, sent or
    checked: what does not fit is raised where the array is used, on all ranks.
    """

    __slots__ = ("_data", "comm", "layout", "weak_type")

    def __init__(self, block: Any, layout: Layout, comm: Any = None, *, weak_type: bool = False) -> None:
        from redist.collectives.backends.mpi.runtime import mpi

        self.comm = mpi().COMM_WORLD if comm is None else comm
        self.layout = layout
        self.weak_type = weak_type
        self._data: Any = block if hasattr(block, "dtype") else np.asarray(block)

    def check(self) -> None:
        """Raises LayoutError where the block is not the one that the layout gives this rank."""
        rank: int = self.comm.rank
        words, layout = stored(self.data), self.layout
        kind = "object" if words.dtype == object else dtype_name(words.dtype)
        if rank not in layout.mesh.device_ids:
            raise LayoutError(f"{layout} on {layout.mesh} has no block on device {rank}; use a mesh of all ranks")
        shape = tuple(part.stop - part.start for part in layout.box(rank))
        if tuple(words.shape) != shape or kind != layout.dtype:
            raise LayoutError(
                f"the block is {kind}{list(words.shape)}, and {layout} on {layout.mesh} gives "
                f"device {rank} {layout.dtype}{list(shape)}; pass that block, or the layout of this one"
            )

    @property
    def data(self) -> Any:
        """This rank's block as it is held: a JAX array on the CPU, or what was passed. Raises BackendError
        after it was donated."""
        if self._data is None:
            raise BackendError(f"{self!r} was donated to a partitioned function, which has used its memory")
        return self._data

    @property
    def block(self) -> Any:
        """This rank's block as a NumPy array, not copied and to be read only; of PRNG keys, as JAX's array."""
        data = self.data
        return data if is_key(data) else np.asarray(data)

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""
        words = len(self.data.dtype._impl.key_shape) if is_key(self.data) else 0
        return self.layout.shape[: self.layout.rank - words]

    @property
    def dtype(self) -> Any:
        """NumPy dtype, or JAX's for PRNG keys."""
        return self.data.dtype if is_key(self.data) else numpy_dtype(self.layout.dtype)

    def gather(self, root: int | None = None) -> Any:
        """The whole array on every rank, or on rank `root` alone, and None elsewhere: a NumPy array (of
        PRNG keys, JAX's). Collective."""
        from redist.collectives.backends.mpi.transfer import redistribute
        from redist.synth.planner import synthesize
        from redist.types.layout import Layout
        from redist.types.mesh import Mesh

        data, layout = self.data, self.layout
        mesh = layout.mesh if root is None else Mesh({"root": 1}, [root])
        whole = Layout(mesh, layout.shape, ((),) * layout.rank, layout.dtype)
        plan = synthesize(layout, whole, backend="mpi")
        made = redistribute(np.asarray(stored(data)), plan, self.comm)
        return made if made is None or not is_key(data) else restored(made, data)

    def release(self) -> Any:
        """The block, which this array holds no more."""
        data, self._data = self.data, None
        return data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The whole array, where every rank has it. Raises BackendError elsewhere."""
        if self.layout.partial is not None or any(size != 1 for size in self.layout.block_counts()):
            raise BackendError(
                f"rank {self.comm.rank} holds a block of {self.layout} on {self.layout.mesh}, not the whole array; "
                "use .gather() on all ranks, or .block"
            )
        return np.array(self.block, dtype=dtype, copy=copy)

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __int__(self) -> int:
        return int(np.asarray(self))

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __repr__(self) -> str:
        return f"DistributedArray({self.layout} on {self.layout.mesh})"


def is_key(x: Any) -> bool:
    """Whether an array is one of JAX's arrays of PRNG keys."""
    from redist.collectives.backends.jax.modules import jax

    return x.dtype != object and bool(jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key))


def stored(x: Any) -> Any:
    """The array of words that holds PRNG keys; other arrays as they are."""
    from redist.collectives.backends.jax.modules import jax

    return jax.random.key_data(x) if is_key(x) else x


def restored(words: Any, keys: Any) -> Any:
    """PRNG keys of the same kind as `keys`, from their words."""
    from redist.collectives.backends.jax.modules import jax

    return jax.random.wrap_key_data(words, impl=jax.random.key_impl(keys))
