"""What every planner looks like from outside: a name, why it may be missing, and an answer per problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from benchmarks.forms import Op
from benchmarks.problems import Problem

__all__ = ["Answer", "Planner", "Status"]

Status = Literal["planned", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a planner made of a problem.

    `refused`: it does not take such problems, and says why in `note`. `failed`: it takes them and broke.
    `ops` is the plan in common form; None where the planner's program cannot be put so, and then
    `counts` holds what was read off it: `received` (elements), `steps`, `largest_block` (elements).
    `claims` are figures of its own, in bytes per device: `received_bytes`, `peak_bytes` (projected),
    `measured_bytes` (source, target and temporaries together), `temp_bytes`.
    """

    status: Status
    seconds: float = 0.0
    note: str = ""
    ops: tuple[Op, ...] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    claims: Mapping[str, int] = field(default_factory=dict)


class Planner(Protocol):
    """An adapter to one planner.

    `devices` says whether its answers need a process with virtual devices, for which the study then
    calls `answer` in such a process.
    """

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    @property
    def devices(self) -> bool:
        """Whether it needs virtual devices."""
        ...

    def missing(self) -> str | None:
        """Why the planner cannot be asked on this machine; None where it can."""
        ...

    def answer(self, problem: Problem) -> Answer:
        """Plan one problem."""
        ...
