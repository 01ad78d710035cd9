"""Hypothesis strategies over the generators: what they draw shrinks towards small meshes and plain layouts."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from redist.collectives.steps import Step
from redist.testing.generators import (
    KINDS,
    Kind,
    Problem,
    random_layout,
    random_mesh,
    random_problem,
)
from redist.testing.sequences import random_steps
from redist.types.layout import Layout
from redist.types.mesh import Mesh

__all__ = ["layouts", "meshes", "problems", "valid_steps"]


def _drawn() -> st.SearchStrategy[Random]:
    """A `Random` whose numbers Hypothesis chooses and shrinks."""
    return st.randoms(use_true_random=False, note_method_calls=False)


def meshes(
    *, max_devices: int = 24, max_axes: int = 6, unit_axes: bool = True, any_ids: bool = True
) -> st.SearchStrategy[Mesh]:
    """Meshes of prime and composite axes; axes of size 1 and permuted or gapped device ids unless ruled out."""

    def build(rng: Random) -> Mesh:
        return random_mesh(rng, max_devices=max_devices, max_axes=max_axes, unit_axes=unit_axes, any_ids=any_ids)

    return _drawn().map(build)


@st.composite
def layouts(
    draw: st.DrawFn,
    mesh: Mesh | st.SearchStrategy[Mesh] | None = None,
    shape: Sequence[int] | None = None,
    **options: Any,
) -> Layout:
    """Layouts over a mesh (or one drawn); `options` are those of `random_layout`: `sub_axes`, `uneven`,
    `rules`, `partial`, `dtypes`, `max_rank`, `max_elements`."""
    over = mesh if isinstance(mesh, Mesh) else draw(meshes() if mesh is None else mesh)
    return random_layout(draw(_drawn()), over, shape, **options)


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    kinds: Sequence[Kind] = KINDS,
    mesh: Mesh | st.SearchStrategy[Mesh] | None = None,
    max_devices: int = 24,
    max_axes: int = 6,
    **options: Any,
) -> Problem:
    """(source, target) of one array, the target unreduced at most where the source is; the target's mesh
    is related to the source's by one of `kinds`; `options` are those of `random_layout`."""
    over = draw(mesh) if isinstance(mesh, st.SearchStrategy) else mesh
    return random_problem(draw(_drawn()), kinds=kinds, mesh=over, max_devices=max_devices, max_axes=max_axes, **options)


@st.composite
def valid_steps(
    draw: st.DrawFn,
    source: Layout | st.SearchStrategy[Layout],
    *,
    max_steps: int = 5,
    kinds: Sequence[str] | None = None,
    same_mesh: bool = False,
    max_devices: int = 24,
) -> tuple[Layout, tuple[Step, ...]]:
    """(source, steps) where the steps apply one after another; `kinds` are op names, by default all."""
    start = source if isinstance(source, Layout) else draw(source)
    steps = random_steps(
        draw(_drawn()), start, max_steps=max_steps, kinds=kinds, same_mesh=same_mesh, max_devices=max_devices
    )
    return start, steps
