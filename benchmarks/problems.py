"""What is asked of planners and executors: samples, exhaustive families, reported cases, a model's parameters."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from redist.types import Layout, Mesh
from redist.types.digits import prime_factors

__all__ = [
    "Problem",
    "all_layouts",
    "case_problems",
    "family",
    "named_mesh",
    "sampled",
    "shrunk",
    "timing_problems",
    "tree_problems",
]

_DATA = Path(__file__).parent / "data"
_AXES = "xyzwuv"


@dataclass(frozen=True, slots=True)
class Problem:
    """A redistribution with a stable name. `key` is unique within its family.

    `at_most` is a figure that a plan is held against: elements that the busiest device receives, as a
    share of the array; None where none is known. `count` is how often a model needs it.
    """

    family: str
    key: str
    source: Layout
    target: Layout
    at_most: float | None = None
    count: int = 1

    @staticmethod
    def of(family: str, source: Layout, target: Layout) -> Problem:
        """Named by its layouts."""
        meshes = str(source.mesh) if source.mesh == target.mesh else f"{source.mesh} to {target.mesh}"
        return Problem(family, f"{meshes}: {source} -> {target}", source, target)


def named_mesh(name: str) -> Mesh:
    """`2x3x5` is a mesh with axes x=2, y=3, z=5."""
    return Mesh([(axis, int(size)) for axis, size in zip(_AXES, name.split("x"), strict=False)])


def all_layouts(mesh: Mesh, shape: Sequence[int]) -> list[Layout]:
    """Every layout of whole axes in every order, over dimensions that all of them divide."""
    found: list[Layout] = []
    for count in range(len(mesh.names) + 1):
        for axes in itertools.permutations(mesh.names, count):
            for ends in itertools.combinations_with_replacement(range(count + 1), len(shape) - 1):
                per_dim = [axes[a:b] for a, b in itertools.pairwise((0, *ends, count))]
                found.append(Layout(mesh, shape, per_dim))
    return found


def family(mesh_name: str, rank: int, elements: int = 4096) -> list[Problem]:
    """All ordered pairs of distinct layouts: 2,352 for 2x2x2 at rank 2, 11,130 at rank 3.

    Every dimension is a multiple of the number of devices, and the array has about `elements`.
    """
    mesh = named_mesh(mesh_name)
    side = max(1, round(elements ** (1 / rank) / mesh.size)) * mesh.size
    layouts = all_layouts(mesh, [side] * rank)
    name = f"{mesh_name} rank {rank}"
    return [Problem.of(name, a, b) for a, b in itertools.permutations(layouts, 2)]


def sampled(problems: Sequence[Problem], count: int | None, seed: int) -> list[Problem]:
    """At most `count` of the problems, uniformly, in their order; all of them for None."""
    if count is None or count >= len(problems):
        return list(problems)
    chosen = sorted(Random(f"{seed}/{problems[0].family}").sample(range(len(problems)), count))
    return [problems[n] for n in chosen]


# -- cases ---------------------------------------------------------------------------------------------


def case_problems(name: str) -> list[Problem]:
    """`reported` (public reports against other systems) or `shardy` (Shardy's own tests), shrunk."""
    made: list[Problem] = []
    for line in (_DATA / f"{name}_cases.jsonl").read_text().splitlines():
        row = json.loads(line)
        mesh = Mesh.parse(row["mesh"])
        source = Layout.parse(row["source"], mesh)
        target = Layout.parse(row["target"], Mesh.parse(row.get("target_mesh", row["mesh"])))
        share = row.get("share")
        if "received" in row:
            share = row["received"] / math.prod(source.shape)
        if name == "reported":
            source, target = shrunk(source, target)
        made.append(Problem(f"{name} cases", row["name"], source, target, share))
    return made


def shrunk(source: Layout, target: Layout, elements: int = 2**16) -> tuple[Layout, Layout]:
    """The same problem on an array of at most `elements`, where blocks are even.

    A size shrinks to what the layouts cut it into, and then grows back, by primes and at most to its common
    divisor with the number of devices: dimensions that some layout cuts first, since plans may cut them further.
    """
    if math.prod(source.shape) <= elements or not (source.is_even() and target.is_even()):
        return source, target
    shape = [math.lcm(a, b) for a, b in zip(source.block_counts(), target.block_counts(), strict=True)]
    devices = source.mesh.size
    cut_first = sorted(range(len(shape)), key=lambda i: shape[i] == 1)
    for i in cut_first:
        for prime in prime_factors(math.gcd(source.shape[i], devices) // math.gcd(shape[i], devices)):
            if math.prod(shape) * prime <= elements and source.shape[i] % (shape[i] * prime) == 0:
                shape[i] *= prime
    for i in cut_first:  # so large that what a compiler rounds up does not show
        while math.prod(shape) < elements // 16 and source.shape[i] % (2 * shape[i]) == 0:
            shape[i] *= 2
    made = [
        Layout(layout.mesh, shape, [dim.axes for dim in layout.dims], layout.dtype, partial=layout.partial_axes)
        for layout in (source, target)
    ]
    return made[0], made[1]


# -- a model -------------------------------------------------------------------------------------------

_WIDTH, _BLOCKS, _WORDS, _CONTEXT = 768, 12, 50304, 1024
_LEAVES: tuple[tuple[str, tuple[int, ...], tuple[str, ...], tuple[str, ...], int], ...] = (
    ("embedding", (_WORDS, _WIDTH), ("data", "model"), ("model,data", ""), 1),
    ("positions", (_CONTEXT, _WIDTH), ("data", "model"), ("", ""), 1),
    ("attention/qkv", (_WIDTH, 3 * _WIDTH), ("data", "model"), ("", "model,data"), _BLOCKS),
    ("attention/out", (_WIDTH, _WIDTH), ("model", "data"), ("model,data", ""), _BLOCKS),
    ("mlp/up", (_WIDTH, 4 * _WIDTH), ("data", "model"), ("", "model,data"), _BLOCKS),
    ("mlp/down", (4 * _WIDTH, _WIDTH), ("model", "data"), ("model,data", ""), _BLOCKS),
    ("mlp/up/bias", (4 * _WIDTH,), ("data,model",), ("model,data",), _BLOCKS),
    ("norm", (_WIDTH,), ("data",), ("",), 4 * _BLOCKS + 2),
)
"""(name, shape, axes in training, axes in serving, how many) of a GPT-2's parameters: from sharded over
data and tensor parallelism to tensor parallelism over all devices."""


def tree_problems(mesh_text: str = "data=4,model=2", shrink: bool = True) -> list[Problem]:
    """A model's parameters from a training to a serving layout, one problem per kind of leaf."""
    mesh = Mesh.parse(mesh_text)
    made: list[Problem] = []
    for name, shape, training, serving, count in _LEAVES:
        source, target = (
            Layout(mesh, shape, [axes.split(",") if axes else [] for axes in per_dim])
            for per_dim in (training, serving)
        )
        if shrink:
            source, target = shrunk(source, target)
        made.append(Problem("parameter tree", name, source, target, count=count))
    return made


# -- timing --------------------------------------------------------------------------------------------

_TIMING_MESHES = {
    8: ("8", "2x4", "4x2", "2x2x2"),
    16: ("4x4", "2x8", "2x2x4", "4x2x2", "2x2x2x2"),
}


def timing_problems(
    devices: int, count: int, seed: int, sizes: Sequence[int] = (4, 16, 64), meshes: Sequence[str] = ()
) -> list[Problem]:
    """Uniform ordered pairs of distinct layouts, in turn over `meshes` (by default some of 1-3 axes on 8 devices, of
    2-4 axes on 16), ranks 1-4 and `sizes` MiB."""
    rng = Random(f"{seed}/{devices}")
    kinds = [(m, r, s) for m in meshes or _TIMING_MESHES[devices] for r in (1, 2, 3, 4) for s in sizes]
    rng.shuffle(kinds)
    made: dict[str, Problem] = {}
    for mesh_name, rank, size in _forever(kinds):
        if len(made) == count:
            break
        mesh = named_mesh(mesh_name)
        layouts = all_layouts(mesh, _split(size * 2**18, rank, mesh.size, rng))
        problem = Problem.of(f"{devices} devices", *rng.sample(layouts, 2))
        made.setdefault(problem.key, problem)
    return list(made.values())


def _forever(kinds: Sequence[tuple[str, int, int]]) -> Iterator[tuple[str, int, int]]:
    yield from itertools.chain.from_iterable(itertools.repeat(kinds, 1000))


def _split(elements: int, rank: int, least: int, rng: Random) -> list[int]:
    """A shape of this rank with power-of-two sizes of at least `least`."""
    shape = [least] * rank
    while math.prod(shape) < elements:
        shape[rng.randrange(rank)] *= 2
    return shape
