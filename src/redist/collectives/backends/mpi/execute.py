"""Running a program: a generator that yields what it waits for, so that parts of chunks can take turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from redist.collectives.backends.mpi import calls
from redist.collectives.backends.mpi.arena import Arena, bits_of
from redist.collectives.backends.mpi.datatypes import Datatypes
from redist.collectives.backends.mpi.geometry import Cut, Gather, Grouping, Move, Reduce, Send
from redist.collectives.backends.mpi.program import Node, Parts, Place, Program, Stage, each_stage
from redist.types.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Run"]

Waiting = Iterator[tuple[Any, ...]]
_AT_ONCE = 2
_TAGS = 2**14  # MPI promises tags up to 32767


@dataclass(slots=True, weakref_slot=True, eq=False)
class Run:
    """A program on given blocks, as bits, over an arena and communicators; run once or, one after another,
    many times. The calls of a stage are made when it is first come to, and kept. `posted` counts stages whose
    communication has begun: the same on all ranks that have come as far."""

    program: Program
    given: NDArray[Any] | None
    made: NDArray[Any] | None
    arena: Arena
    base: Any
    groups: dict[Grouping, Any]
    datatypes: Datatypes
    dtype: str
    trims: bool
    progress: Callable[[int, int], None] | None
    _calls: dict[int, calls.Call] = field(default_factory=dict[int, calls.Call], init=False)
    _tag: int = field(default=0, init=False)
    _done: int = field(default=0, init=False)
    posted: int = field(default=0, init=False)

    def prepare(self) -> None:
        """Make all calls now."""
        for stage in each_stage(self.program.nodes):
            self._calls[id(stage)] = self._call(stage)

    @property
    def is_straight(self) -> bool:
        """Whether stages run one after another, with nothing between them."""
        return not self.trims and self.progress is None and all(isinstance(n, Stage) for n in self.program.nodes)

    def through(self) -> None:
        """Run to the end, once prepared, if it is straight: without what it takes to hand control back meanwhile."""
        for call in self._calls.values():
            call.run()
        if not self._calls and self.given is not None and self.made is not None:
            self.made[...] = self.given

    def forget(self) -> None:
        """Let go of the blocks, and of calls."""
        self.given = self.made = None
        self._calls.clear()

    def steps(self) -> Waiting:
        """Go through the program; yields MPI requests that must complete before it goes on."""
        nodes, self._done, self.posted = self.program.nodes, 0, 0
        for n, node in enumerate(nodes):
            yield from self._run((node,))
            if self.trims and n + 1 < len(nodes):
                self._trim(self.program.results[n])
        if not nodes and self.given is not None and self.made is not None:
            self.made[...] = self.given

    def _run(self, nodes: Sequence[Node]) -> Waiting:
        for node in nodes:
            match node:
                case Stage():
                    yield from self._stage(node)
                    self._done += 1
                    if self.progress is not None:
                        self.progress(self._done, self.program.stages)
                case Parts(parts, overlapped):
                    yield from self._in_turns([self._run(part) for part in parts], _AT_ONCE if overlapped else 1)
                case _:
                    assert_never(node)

    def _in_turns(self, parts: list[Waiting], at_once: int) -> Waiting:
        """Run parts in order, so many at a time: while one waits, the next goes on. Every rank posts the
        calls of all parts in the same order."""
        coming = iter(parts)
        waiting: deque[tuple[Waiting, tuple[Any, ...]]] = deque()

        def advance(part: Waiting) -> bool:
            requests = next(part, None)
            if requests is not None:
                waiting.append((part, requests))
            return requests is not None

        def begin() -> None:
            while len(waiting) < at_once:
                part = next(coming, None)
                if part is None:
                    return
                advance(part)

        begin()
        while waiting:
            part, requests = waiting.popleft()
            yield requests
            if not advance(part):
                begin()

    def _stage(self, stage: Stage) -> Waiting:
        call = self._calls.get(id(stage))
        if call is None:
            call = self._calls[id(stage)] = self._call(stage)
        requests = call.post()
        if stage.communicates:
            self.posted += 1
            yield requests
        call.finish()

    def _call(self, stage: Stage) -> calls.Call:
        op = stage.op
        comm = self.groups[op.grouping] if isinstance(op, Move | Gather | Reduce) else self.base
        wire = calls.Wire(
            comm,
            self._view(stage.source),
            self._view(stage.target),
            self.arena.bytes[stage.staging :],
            self.datatypes if stage.method == "datatypes" else None,
        )
        match op:
            case Cut():
                return calls.cut(op, wire)
            case Move():
                return calls.move(op, wire)
            case Gather():
                return calls.gather(op, wire)
            case Send():
                self._tag = (self._tag + 1) % _TAGS
                return calls.send(op, wire, self._tag)
            case Reduce():
                return calls.reduce(op, wire, self.dtype)
            case _:
                assert_never(op)

    def _view(self, place: Place | None) -> NDArray[Any] | None:
        if place is None:
            return None
        match place.root:
            case "in":
                whole = self.given
            case "out":
                whole = self.made
            case "left" | "right":
                whole = self.arena.array(place, self._bits())
            case _:
                assert_never(place.root)
        assert whole is not None
        return whole[place.window] if place.window else whole

    def _bits(self) -> np.dtype[Any]:
        return bits_of(np.empty(0, numpy_dtype(self.dtype))).dtype

    def _trim(self, kept: Place | None) -> None:
        if kept is None or kept.root in ("in", "out"):
            self.arena.trim([])
            return
        size = self.arena.array(kept, self._bits()).nbytes
        start = kept.offset if kept.root == "left" else self.arena.size - kept.offset
        self.arena.trim([(start, start + size)])
