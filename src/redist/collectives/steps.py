"""The steps of a plan as plain data. What each one requires and yields is in `typing`, what it costs in
`cost`, what it does to data in `semantics`.

`A·a` below is a dimension sharded over the axes A, then a, major to minor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redist.types.blocks import BlockRule
from redist.types.layout import Layout
from redist.types.mesh import AxisLike, SubAxis
from redist.types.pairs import pairs_of

__all__ = [
    "OWNER",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "AxesByDim",
    "Chunk",
    "Exchange",
    "Free",
    "Move",
    "Owner",
    "Pairs",
    "Permute",
    "ReduceScatter",
    "Slice",
    "Step",
    "Transfer",
    "op_name",
]

AxesByDim = tuple[tuple[int, tuple[SubAxis, ...]], ...]
Rules = tuple[tuple[int, BlockRule], ...]
Move = tuple[tuple[SubAxis, ...], int, int]
"""(axes, from dimension, to dimension)."""


def _axes(axes: Iterable[AxisLike]) -> tuple[SubAxis, ...]:
    if isinstance(axes, str):  # one axis, not the letters of its name
        axes = (axes,)
    return tuple(SubAxis.parse(axis) if isinstance(axis, str) else axis for axis in axes)


def _by_dim(axes: Mapping[int, Iterable[AxisLike]] | Iterable[tuple[int, Iterable[AxisLike]]]) -> AxesByDim:
    return tuple(sorted(((i, _axes(dim_axes)) for i, dim_axes in pairs_of(axes)), key=lambda pair: pair[0]))


def _rules(rules: Mapping[int, BlockRule] | Iterable[tuple[int, BlockRule]]) -> Rules:
    return tuple(sorted(pairs_of(rules), key=lambda pair: pair[0]))


@dataclass(frozen=True, slots=True, init=False)
class Slice:
    """i: `A --> A·axes`. Every device keeps its part of what it holds; nothing is received.

    `rules` states the block rule of dimensions that were not sharded before (default: ceil).
    """

    axes: AxesByDim
    rules: Rules

    def __init__(
        self,
        axes: Mapping[int, Iterable[AxisLike]] | Iterable[tuple[int, Iterable[AxisLike]]],
        rules: Mapping[int, BlockRule] | Iterable[tuple[int, BlockRule]] = (),
    ) -> None:
        object.__setattr__(self, "axes", _by_dim(axes))
        object.__setattr__(self, "rules", _rules(rules))


@dataclass(frozen=True, slots=True, init=False)
class AllGather:
    """i: `A·axes --> A`. Blocks of the group that the axes span are joined on every device."""

    axes: AxesByDim

    def __init__(self, axes: Mapping[int, Iterable[AxisLike]] | Iterable[tuple[int, Iterable[AxisLike]]]) -> None:
        object.__setattr__(self, "axes", _by_dim(axes))


@dataclass(frozen=True, slots=True, init=False)
class AllToAll:
    """For each move (axes, i, j): i loses the axes from its minor end, j gains them at its minor end.

    One exchange in the group spanned by all moved axes. A dimension may lose to several others and
    gain from several others, in list order, but never both lose and gain.
    """

    moves: tuple[Move, ...]
    rules: Rules

    def __init__(
        self,
        moves: Iterable[tuple[Iterable[AxisLike], int, int]],
        rules: Mapping[int, BlockRule] | Iterable[tuple[int, BlockRule]] = (),
    ) -> None:
        object.__setattr__(self, "moves", tuple((_axes(axes), i, j) for axes, i, j in moves))
        object.__setattr__(self, "rules", _rules(rules))


@dataclass(frozen=True, slots=True)
class Free:
    """The bijection of a permute, digit by digit.

    In every dimension the sender's block index equals the receiver's; what remains is which of the
    replicas sends. `groups` pairs (sender axes, receiver axes): the mixed-radix index of the sender's
    coordinates over the first equals that of the receiver's over the second. Together the groups
    hold every axis that no dimension uses, once on each side. Partial axes pair up in mesh order.
    """

    groups: tuple[tuple[tuple[SubAxis, ...], tuple[SubAxis, ...]], ...] = ()

    @staticmethod
    def of(*groups: tuple[Iterable[AxisLike], Iterable[AxisLike]]) -> Free:
        """`Free.of((["x"], ["y"]))`: the sender's x is the receiver's y."""
        return Free(tuple((_axes(sender), _axes(receiver)) for sender, receiver in groups))


@dataclass(frozen=True, slots=True)
class Pairs:
    """The bijection of a permute as (sender id, receiver id) pairs, one per device."""

    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Permute:
    """Whole blocks move by a bijection of devices, so that `layout` (of the same blocks) holds."""

    layout: Layout
    source: Free | Pairs = Free()


@dataclass(frozen=True, slots=True)
class Owner:
    """The named rule of an exchange: a receiver keeps what it holds and takes the rest from owners.

    The owner of a global index has it in its source block; on the axes that do not shard (and are not
    partial) in the source it has the receiver's own coordinates, or, for a receiver outside the source
    mesh, those of its position modulo the number of replicas. Partial coordinates agree by index.
    """


OWNER = Owner()


@dataclass(frozen=True, slots=True)
class Transfer:
    """The box `starts <= index < stops` of the global array goes from one device to another (or stays)."""

    sender: int
    receiver: int
    starts: tuple[int, ...]
    stops: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Any layout to any layout of the same array, by the stated transfers (those a device makes to
    itself included) or by the owner rule."""

    layout: Layout
    transfers: Owner | tuple[Transfer, ...] = OWNER


@dataclass(frozen=True, slots=True, init=False)
class ReduceScatter:
    """i: `A --> A·axes` where the axes were unreduced: reduced, each device left with its part."""

    axes: AxesByDim
    rules: Rules

    def __init__(
        self,
        axes: Mapping[int, Iterable[AxisLike]] | Iterable[tuple[int, Iterable[AxisLike]]],
        rules: Mapping[int, BlockRule] | Iterable[tuple[int, BlockRule]] = (),
    ) -> None:
        object.__setattr__(self, "axes", _by_dim(axes))
        object.__setattr__(self, "rules", _rules(rules))


@dataclass(frozen=True, slots=True, init=False)
class AllReduce:
    """The axes were unreduced: reduced, every device left with the whole result."""

    axes: tuple[SubAxis, ...]

    def __init__(self, axes: Iterable[AxisLike]) -> None:
        object.__setattr__(self, "axes", _axes(axes))


@dataclass(frozen=True, slots=True, init=False)
class Chunk:
    """The steps run on one part of the array after another: every block is cut into `parts` along a
    dimension that the steps do not touch, so that only a part's intermediates are alive at a time."""

    dim: int
    parts: int
    steps: tuple[Step, ...]

    def __init__(self, dim: int, parts: int, steps: Iterable[Step]) -> None:
        object.__setattr__(self, "dim", dim)
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "steps", tuple(steps))


Step = Slice | AllGather | AllToAll | Permute | Exchange | ReduceScatter | AllReduce | Chunk

_NAMES: dict[type, str] = {
    Slice: "slice",
    AllGather: "all_gather",
    AllToAll: "all_to_all",
    Permute: "permute",
    Exchange: "exchange",
    ReduceScatter: "reduce_scatter",
    AllReduce: "all_reduce",
    Chunk: "chunk",
}


def op_name(step: Step) -> str:
    """Name of a step in JSON and in `synthesize(steps=...)`: `all_to_all`."""
    return _NAMES[type(step)]
