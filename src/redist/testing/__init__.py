"""Random and exhaustive test data: meshes, layouts, redistribution problems and valid step sequences.

For property tests, the Hypothesis strategies `meshes`, `layouts`, `problems` and `valid_steps`
(Hypothesis is imported when the first of them is used). For benchmarks and loops, plain generators:
`random_problems(seed, count)` is reproducible, `all_layouts(mesh)` is exhaustive, and every `random_*`
function takes a `random.Random`.

`reshard_memory(x, sharding)` compares what JAX allocates for a reshard with what its plan projects.

    from hypothesis import given
    from redist.testing import problems

    @given(problems(max_devices=12, partial=False))
    def test_my_planner(problem):
        plan = my_planner(problem.source, problem.target)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redist.testing.generators import (
    DTYPES,
    REDUCTIONS,
    Kind,
    Problem,
    all_layouts,
    random_layout,
    random_mesh,
    random_problem,
    random_problems,
    random_shape,
)
from redist.testing.sequences import random_step, random_steps

if TYPE_CHECKING:
    from redist.testing.memory import ReshardMemory, reshard_memory
    from redist.testing.strategies import layouts, meshes, problems, valid_steps

__all__ = [
    "DTYPES",
    "REDUCTIONS",
    "Kind",
    "Problem",
    "ReshardMemory",
    "all_layouts",
    "layouts",
    "meshes",
    "problems",
    "random_layout",
    "random_mesh",
    "random_problem",
    "random_problems",
    "random_shape",
    "random_step",
    "random_steps",
    "reshard_memory",
    "valid_steps",
]


def __getattr__(name: str) -> Any:
    if name in ("layouts", "meshes", "problems", "valid_steps"):
        from redist.testing import strategies

        return getattr(strategies, name)
    if name in ("ReshardMemory", "reshard_memory"):
        from redist.testing import memory

        return getattr(memory, name)
    raise AttributeError(f"module 'redist.testing' has no attribute {name!r}")
