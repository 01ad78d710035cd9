"""A plan as one device's program: an immutable list of local operations on places in memory.

Blocks between steps, and what is packed, share one arena. Blocks in turn take its two ends, packing takes
the middle, so a step needs no more than its input, output and staging, and nothing is ever moved aside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from redist.collectives.backends.mpi.geometry import (
    Box,
    Cut,
    Gather,
    Grouping,
    Message,
    Move,
    Op,
    Reduce,
    Send,
    Window,
    box_size,
    is_contiguous,
    op_of,
)
from redist.collectives.plan import Plan
from redist.collectives.steps import Chunk, Step, op_name
from redist.collectives.typing import layouts_of
from redist.types.layout import Layout

__all__ = ["Method", "Node", "Parts", "Place", "Program", "Stage", "compile_program", "each_stage"]

Method = Literal["packed", "datatypes"]
"""How boxes that are not contiguous travel: copied through staging memory, or described to MPI."""

Root = Literal["in", "out", "left", "right"]

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Place:
    """A block: the caller's input or output, or `offset` bytes from the left or right end of the arena.

    `shape` is the whole block's, `window` the part that is meant.
    """

    root: Root
    offset: int
    shape: tuple[int, ...]
    window: Box

    def within(self, dim: int, start: int, stop: int) -> Place:
        """The part between `start` and `stop` of the window's dimension."""
        first = self.window[dim].start
        cut = slice(first + start, first + stop)
        return replace(self, window=(*self.window[:dim], cut, *self.window[dim + 1 :]))

    @property
    def lengths(self) -> tuple[int, ...]:
        """Shape of the window."""
        return tuple(part.stop - part.start for part in self.window)

    def of(self, box: Box) -> Box:
        """A box of the window as a box of the whole block."""
        return tuple(slice(part.start + w.start, part.stop + w.start) for part, w in zip(box, self.window, strict=True))


@dataclass(frozen=True, slots=True)
class Stage:
    """One step (or its part in a chunk) of one device. `source` and `target` are None where the device
    holds no block; packing begins `staging` bytes from the left end of the arena."""

    name: str
    op: Op
    source: Place | None
    target: Place | None
    method: Method
    staging: int

    @property
    def communicates(self) -> bool:
        """Whether others take part: the same on all ranks."""
        return not isinstance(self.op, Cut)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a chunk; with `overlapped`, each begins while the one before it is under way."""

    parts: tuple[tuple[Node, ...], ...]
    overlapped: bool


Node = Stage | Parts


@dataclass(frozen=True, slots=True)
class Program:
    """What a device does: a node per step of the plan, over an arena of `arena_bytes`.

    `results` are the blocks after each node, `given` and `made` the shapes of the device's first and last
    block (None: it has none). Where both are C-contiguous, the arena and what MPI allocates for reductions
    take `held_bytes` at most at once, and `touched_bytes` if memory that was used is never handed back.
    """

    nodes: tuple[Node, ...]
    results: tuple[Place | None, ...]
    arena_bytes: int
    held_bytes: int
    touched_bytes: int
    given: tuple[int, ...] | None
    made: tuple[int, ...] | None
    itemsize: int

    @property
    def block_bytes(self) -> int:
        """Bytes of the first and the last block together."""
        return sum(math.prod(shape) * self.itemsize for shape in (self.given, self.made) if shape is not None)

    @property
    def stages(self) -> int:
        """How many stages there are: the same on all ranks."""
        return sum(1 for _ in each_stage(self.nodes))

    @property
    def communicating(self) -> int:
        """How many of them communicate: the same on all ranks."""
        return sum(stage.communicates for stage in each_stage(self.nodes))

    def groupings(self) -> tuple[Grouping, ...]:
        """The communicators that the program needs, in the order of first use: the same on all ranks."""
        found: dict[Grouping, None] = {}
        for stage in each_stage(self.nodes):
            if isinstance(stage.op, Move | Gather | Reduce):
                found.setdefault(stage.op.grouping)
        return tuple(found)


def each_stage(nodes: Sequence[Node]) -> Iterator[Stage]:
    """All stages in program order."""
    for node in nodes:
        if isinstance(node, Stage):
            yield node
        else:
            for part in node.parts:
                yield from each_stage(part)


@lru_cache(maxsize=256)
def compile_program(plan: Plan, device: int, methods: tuple[Method, ...], overlapped: tuple[bool, ...]) -> Program:
    """The program of a device, with a method and a mode of chunks per step. Raises TypingError for an
    ill-typed plan."""
    layouts = plan.layouts
    source, target = _whole("in", layouts[0], device), _whole("out", layouts[-1], device)
    builder = _Builder(device, plan.source.itemsize)
    places = builder.places(layouts, source, target, (), (0, 0))
    nodes: list[Node] = []
    for n, step in enumerate(plan.steps):
        builder.method, builder.overlapped = methods[n], overlapped[n]
        nodes.append(builder.node(step, layouts[n], layouts[n + 1], places[n], places[n + 1], (), (0, 0)))
    return Program(
        tuple(nodes),
        tuple(places[1:]),
        builder.reserved.together,
        builder.used.together,
        builder.used.left + builder.used.right,
        None if source is None else source.shape,
        None if target is None else target.shape,
        plan.source.itemsize,
    )


def _whole(root: Root, layout: Layout, device: int) -> Place | None:
    shape = _block_shape(layout, device)
    return None if shape is None else Place(root, 0, shape, tuple(slice(0, length) for length in shape))


def _block_shape(layout: Layout, device: int) -> tuple[int, ...] | None:
    if device not in layout.mesh.device_ids:
        return None
    return tuple(part.stop - part.start for part in layout.box(device))


@dataclass(slots=True)
class _Extent:
    """Bytes in use, at most: from the left end, from the right end, and at once."""

    left: int = 0
    right: int = 0
    together: int = 0

    def add(self, left: int, right: int, middle: int) -> None:
        self.left, self.right = max(self.left, left + middle), max(self.right, right)
        self.together = max(self.together, left + right + middle)

    def include(self, other: _Extent) -> None:
        self.left, self.right = max(self.left, other.left), max(self.right, other.right)
        self.together = max(self.together, other.together)


Ends = tuple[int, int]
"""Bytes that are taken at the left and right end of the arena."""


class _Builder:
    """Lays out memory while it goes through the steps.

    `reserved` has room for packing everything; `used` is what blocks in C order need.
    """

    def __init__(self, device: int, itemsize: int) -> None:
        self.device, self.itemsize = device, itemsize
        self.method: Method = "packed"
        self.overlapped = False
        self.reserved, self.used = _Extent(), _Extent()

    def places(
        self,
        layouts: Sequence[Layout],
        source: Place | None,
        target: Place | None,
        windows: Sequence[Window],
        taken: Ends,
    ) -> list[Place | None]:
        """Where the block before each step is, and the one after the last."""
        found = [source]
        for n, layout in enumerate(layouts[1:-1]):
            shape = _block_shape(layout, self.device)
            if shape is None:
                found.append(None)
                continue
            for window in windows:
                start, stop = window.of(shape[window.dim])
                shape = (*shape[: window.dim], stop - start, *shape[window.dim + 1 :])
            root, edge = ("left", taken[0]) if n % 2 == 0 else ("right", taken[1] + self._room(shape))
            found.append(Place(root, edge, shape, tuple(slice(0, length) for length in shape)))
        return [*found, target]

    def _room(self, shape: Sequence[int]) -> int:
        return -(-math.prod(shape) * self.itemsize // _ALIGNMENT) * _ALIGNMENT

    def node(
        self,
        step: Step,
        before: Layout,
        following: Layout,
        source: Place | None,
        target: Place | None,
        windows: tuple[Window, ...],
        taken: Ends,
    ) -> Node:
        """The node of a step between two places; `taken` is what neither of them is in."""
        left, right = taken
        for place in (source, target):
            if place is not None and place.root == "left":
                left = max(left, place.offset + self._room(place.shape))
            elif place is not None and place.root == "right":
                right = max(right, place.offset)
        if isinstance(step, Chunk):
            return self._chunk(step, before, source, target, windows, (left, right))
        op = op_of(step, before, following, windows, self.device)
        most, usual = self._staging(op, source, target)
        self.reserved.add(left, right, most)
        self.used.add(left, right, usual)
        return Stage(op_name(step), op, source, target, self.method, left)

    def _chunk(
        self,
        step: Chunk,
        before: Layout,
        source: Place | None,
        target: Place | None,
        windows: tuple[Window, ...],
        taken: Ends,
    ) -> Parts:
        layouts = layouts_of(step.steps, before)
        outer, overlapped = (self.reserved, self.used), self.overlapped
        self.reserved, self.used, self.overlapped = _Extent(), _Extent(), False
        regions = [taken, taken]
        first = _Extent()
        parts: list[tuple[Node, ...]] = []
        for p in range(step.parts):
            if p == 1 and overlapped:  # overlapping parts take turns in two regions
                regions[1] = (self.reserved.left, self.reserved.right)
            inner, free = (*windows, Window(step.dim, p, step.parts)), regions[p % 2]
            begin, end = (
                None if place is None else place.within(step.dim, *inner[-1].of(place.lengths[step.dim]))
                for place in (source, target)
            )
            places = self.places(layouts, begin, end, inner, free)
            parts.append(
                tuple(
                    self.node(inside, layouts[n], layouts[n + 1], places[n], places[n + 1], inner, free)
                    for n, inside in enumerate(step.steps)
                )
            )
            first, self.used = (self.used, _Extent()) if p == 0 else (first, _Extent())  # it is the largest
        reserved, self.overlapped = self.reserved, overlapped
        self.reserved, self.used = outer
        self.reserved.include(reserved)
        if overlapped:
            first.left += first.left - taken[0]
            first.right += first.right - taken[1]
            first.together += first.together - sum(taken)
        self.used.include(first)
        return Parts(tuple(parts), overlapped)

    def _staging(self, op: Op, source: Place | None, target: Place | None) -> tuple[int, int]:
        """Bytes of packing at most, and of packing and MPI's own where blocks are in C order."""
        given = math.prod(source.lengths) if source else 0
        made = math.prod(target.lengths) if target else 0
        packed = self.method == "packed"
        match op:
            case Cut():
                most = usual = 0
            case Send():
                most = given + made
                usual = given * _scattered(source) + made * _scattered(target) if packed else 0
            case Move():
                sent = [box for message in op.sends for box in message.boxes]
                received = [box for message in op.receives for box in message.boxes]
                most = sum(map(box_size, sent)) + sum(map(box_size, received))
                usual = 0
                if packed:
                    usual += sum(map(box_size, sent)) * (_several(op.sends) or _scattered(source, sent))
                    usual += sum(map(box_size, received)) * (_several(op.receives) or _scattered(target, received))
            case Gather():
                most = given + made
                usual = made * _scattered(target, op.places) if packed else 0
            case Reduce():
                pieces = op.pieces or ()
                most = given + 2 * made
                usual = given * _scattered(source, pieces) + made * _scattered(target)
                usual += made  # MPI's own
        return most * self.itemsize + 2 * _ALIGNMENT, usual * self.itemsize


def _several(messages: Sequence[Message]) -> bool:
    return any(len(message.boxes) > 1 for message in messages)


def _scattered(place: Place | None, boxes: Sequence[Box] = ()) -> bool:
    """Whether boxes of a place (itself, if none is given) are not contiguous in its C-ordered block."""
    if place is None:
        return False
    whole = is_contiguous(place.window, place.shape)
    return not (whole and all(is_contiguous(box, place.lengths) for box in boxes))
