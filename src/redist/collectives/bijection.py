"""Who sends to whom in a permute."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import numpy as np

from redist.collectives.steps import Free, Pairs, Permute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from redist.types.layout import Layout
    from redist.types.mesh import Mesh, SubAxis

__all__ = ["senders", "split_index"]


def senders(step: Permute, before: Layout) -> NDArray[np.int64]:
    """Per position of the target mesh, the position in the mesh before whose block it takes."""
    target = step.layout
    match step.source:
        case Free(groups):
            paired = [
                (before.partial_axes, target.partial_axes),
                *((a.axes, b.axes) for a, b in zip(before.dims, target.dims, strict=True)),
                *(
                    (tuple(map(before.mesh.resolve, ours)), tuple(map(target.mesh.resolve, theirs)))
                    for ours, theirs in groups
                ),
            ]
            position = np.zeros(target.mesh.size, dtype=np.int64)
            for ours, theirs in paired:
                position += split_index(before.mesh, ours, target.mesh.index(theirs))
            return position
        case Pairs(pairs):
            at = {device: p for p, device in enumerate(before.mesh.device_ids)}
            by_receiver = {receiver: at[sender] for sender, receiver in pairs}
            return np.asarray([by_receiver[device] for device in target.mesh.device_ids], dtype=np.int64)
        case _:
            assert_never(step.source)


def split_index(mesh: Mesh, axes: Sequence[SubAxis], index: NDArray[np.int64]) -> NDArray[np.int64]:
    """The part of a mesh position that makes the mixed-radix index over `axes` equal `index`."""
    position = np.zeros_like(index)
    for axis in reversed(axes):
        stride, size = mesh.digit(axis)
        position += index % size * stride
        index = index // size
    return position
