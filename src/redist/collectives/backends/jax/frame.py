"""Where a local computation stands among the devices, and the groups that its collectives run in.

Inside a `shard_map` all mesh axes together number the devices; every group of a step, whatever sub-axes
it spans, is a list of such numbers. Sub-axes therefore need no mesh of their own, cuts of one axis need
not be aligned, and a step may speak of another mesh of the same devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.backends.jax.modules import jnp, lax
from redist.types.digits import align

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from redist.types.layout import Layout
    from redist.types.mesh import Mesh

__all__ = ["Frame", "Moves"]


@dataclass(frozen=True, slots=True)
class Frame:
    """The names of all mesh axes, and the device id at each row-major index over them.

    `may_widen`: floats of 8 and 16 bits are reduced by XLA's own collectives, which on CPU move wider ones; not
    by an exchange, sums on the device, and another exchange.
    """

    axes: tuple[str, ...]
    ids: tuple[int, ...]
    may_widen: bool = False

    def numbers(self, mesh: Mesh) -> NDArray[np.int64]:
        """The number here of the device at each position of a mesh of the same devices."""
        if tuple(mesh.device_ids) == self.ids:
            return np.arange(mesh.size)
        at = {device: number for number, device in enumerate(self.ids)}
        return np.asarray([at[device] for device in mesh.device_ids], dtype=np.int64)

    def pick(self, table: Any) -> Any:
        """The row of a table by device number that belongs to this device."""
        return lax.dynamic_index_in_dim(jnp.asarray(table), lax.axis_index(self.axes), keepdims=False)

    def value(self, mesh: Mesh, by_position: NDArray[np.int64]) -> Any:
        """The entry of a table by mesh position that belongs to this device."""
        table = np.empty(len(self.ids), dtype=np.int32)
        table[self.numbers(mesh)] = by_position
        return self.pick(table)


@dataclass(frozen=True, slots=True)
class Moves:
    """What a step does to the digits of a device position: those that leave each dimension, join it, and
    are reduced. `Alignment` numbers them; index and groups below are in mixed radix over lists of them."""

    mesh: Mesh
    strides: tuple[int, ...]
    sizes: tuple[int, ...]
    dropped: tuple[tuple[int, ...], ...]
    added: tuple[tuple[int, ...], ...]
    reduced: tuple[int, ...]

    @staticmethod
    def between(before: Layout, following: Layout) -> Moves:
        """The moves of a step on axes."""
        alignment = align((before, following))
        assert alignment is not None, f"{before} and {following} are layouts of one mesh"
        first, second = alignment.forms
        return Moves(
            before.mesh,
            alignment.strides,
            alignment.sizes,
            tuple(a[len(b) :] for a, b in zip(first.dims, second.dims, strict=True)),
            tuple(b[len(a) :] for a, b in zip(first.dims, second.dims, strict=True)),
            tuple(d for d in first.partial if d not in second.partial),
        )

    def count(self, digits: Sequence[int]) -> int:
        """Product of the sizes of digits."""
        return int(np.prod([self.sizes[d] for d in digits], dtype=np.int64))

    def index(self, digits: Sequence[int]) -> NDArray[np.int64]:
        """Mixed-radix index over the digits of each mesh position."""
        where = np.arange(self.mesh.size)
        total = np.zeros_like(where)
        for d in digits:
            total = total * self.sizes[d] + where // self.strides[d] % self.sizes[d]
        return total

    def groups(self, digits: Sequence[int], frame: Frame) -> list[list[int]]:
        """Devices that differ in these digits only, each group in the order of their index."""
        where = np.arange(self.mesh.size)
        rest = where - sum((where // self.strides[d] % self.sizes[d] * self.strides[d] for d in digits), where * 0)
        order = np.lexsort((self.index(digits), rest))
        return frame.numbers(self.mesh)[order].reshape(-1, self.count(digits)).tolist()
