"""N1, the order of steps: slices before anything that communicates, gathers after everything else."""

from __future__ import annotations

from collections.abc import Sequence

from redist.collectives.steps import AllGather, Slice, op_name
from redist.proofs.trace import Leaf

__all__ = ["out_of_order"]


def out_of_order(leaves: Sequence[Leaf]) -> str | None:
    """The first step that breaks the order, None if none does. Steps inside chunks count like others."""
    communicated: str | None = None
    gathered: str | None = None
    for leaf in leaves:
        step = leaf.step
        if isinstance(step, Slice):
            if communicated:
                return f"step {leaf.label} is a slice after step {communicated} communicated; slice first"
            continue
        if gathered and not isinstance(step, AllGather):
            return f"step {leaf.label} is a {op_name(step)} after the all_gather of step {gathered}; gather last"
        communicated = communicated or leaf.label
        if isinstance(step, AllGather):
            gathered = gathered or leaf.label
    return None
