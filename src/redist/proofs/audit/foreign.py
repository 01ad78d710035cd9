"""What the importers return: another system's plan in its own words and, where expressible, as typed steps."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redist.collectives.plan import Plan
from redist.collectives.steps import Pairs
from redist.errors import ProofError
from redist.types.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redist.collectives.steps import Step
    from redist.proofs.certificate import Counterexample

__all__ = ["ForeignOp", "ForeignPlan", "WrongBlockError", "whole_blocks"]


class WrongBlockError(ProofError):
    """A program that was run on the numbers of the elements, and leaves a device with something else than its
    block of the target."""

    def __init__(self, counterexample: Counterexample) -> None:
        super().__init__(counterexample.text)
        self.counterexample = counterexample


@dataclass(frozen=True, slots=True)
class ForeignOp:
    """One operation of the other system: its name there, and its text as printed there.

    `received` is how many elements each device receives, by position of the mesh, where the text says so;
    empty where that follows from the typed step alone.
    """

    name: str
    text: str
    received: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ForeignPlan:
    """A plan that `planner` made for source -> target.

    `steps` are the operations as typed steps, None where they cannot be expressed as such (`note` says
    why). `stated` is the layout after each step as the other system states it, which may differ from
    what the step's typing rule says, and need not end at the target. `measures` holds what else the
    system reports, in bytes per device where the name ends so. `checked`: the program was run on the
    numbers of the elements, and ended with every device's block of the target.
    """

    planner: str
    source: Layout
    target: Layout
    ops: tuple[ForeignOp, ...]
    steps: tuple[Step, ...] | None = None
    stated: tuple[Layout, ...] = ()
    note: str = ""
    measures: Mapping[str, int] = field(default_factory=dict[str, int])
    checked: bool = False

    @property
    def failed(self) -> bool:
        """Whether the planner gave up: there are no operations, and `note` says why."""
        return self.steps is None and not self.ops and not self.checked

    @property
    def plan(self) -> Plan | None:
        """The steps as a plan to `target`, right or wrong; None where there are none."""
        return None if self.steps is None else Plan(self.source, self.target, self.steps)

    @property
    def reached(self) -> Layout | None:
        """The layout that the plan ends at, as the other system states it; None where it does not say."""
        if self.steps is None:
            return None
        return self.stated[-1] if self.stated else self.source


def whole_blocks(before: Layout, following: Layout) -> Pairs | None:
    """Which device sends its block to which, where a permute states only the layouts.

    Devices that hold their block already keep it; the others take one from the first device that has
    not sent yet. None where the blocks before and after are not the same, each as many times.
    """
    if before.shape != following.shape:
        return None
    holders: defaultdict[tuple[int, ...], deque[int]] = defaultdict(deque)
    held = dict(zip(before.mesh.device_ids, _blocks(before), strict=True))
    for device, block in held.items():
        holders[block].append(device)
    wanted = dict(zip(following.mesh.device_ids, _blocks(following), strict=True))
    pairs: list[tuple[int, int]] = []
    moving: list[tuple[int, tuple[int, ...]]] = []
    for device, block in wanted.items():
        if held.get(device) == block:
            holders[block].remove(device)
            pairs.append((device, device))
        else:
            moving.append((device, block))
    for device, block in moving:
        if not holders[block]:
            return None
        pairs.append((holders[block].popleft(), device))
    return None if any(holders.values()) else Pairs(tuple(sorted(pairs, key=lambda pair: pair[1])))


def _blocks(layout: Layout) -> list[tuple[int, ...]]:
    """The box of each device, by position, as one tuple: starts, stops, partial coordinate."""
    starts, stops = layout.boxes()
    which = layout.mesh.index(layout.partial_axes)
    return [(*a, *b, int(w)) for a, b, w in zip(starts.tolist(), stops.tolist(), which.tolist(), strict=True)]
