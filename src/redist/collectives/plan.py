"""Plans: a sequence of typed steps from one layout to another, as plain immutable data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from redist.collectives.cost import busiest, communications, largest_block, live, received
from redist.collectives.profile import profile_of
from redist.collectives.steps import Step
from redist.collectives.topology import UNIFORM, Topology, step_seconds
from redist.collectives.typing import layouts_of
from redist.types.bounds import lower_bound
from redist.types.layout import Layout

__all__ = ["Options", "Plan"]


@dataclass(frozen=True, slots=True)
class Options:
    """What the plan was made for, and what its maker knows of it.

    `memory_limit` and all peaks are bytes per device. `optimal`: cheapest by received bytes (or seconds)
    among plans of its steps in normal form (slices, then moves, then gathers); `gap` bounds how far from
    that, as a ratio (1 when optimal, None when unknown). `notes` say why this plan, one line each.
    """

    backend: str = "numpy"
    donate: bool = False
    memory_limit: int | None = None
    topology: Topology = UNIFORM
    optimal: bool = False
    gap: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A redistribution: run the steps on `source`, and `target` holds.

    A plan is only data: a wrong one can be built, printed, saved and loaded; `layouts` raises
    TypingError where a step does not apply, and `redist.verify` refutes what does not reach the target.
    All byte counts are per device.
    """

    source: Layout
    target: Layout
    steps: tuple[Step, ...]
    options: Options = Options()
    _memo: dict[str, Any] = field(default_factory=dict[str, Any], init=False, compare=False, repr=False)

    def _once(self, name: str, make: Any) -> Any:
        if name not in self._memo:
            self._memo[name] = make()
        return self._memo[name]

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The layout before each step; the last one is after the last step. Raises TypingError."""
        return self._once("layouts", lambda: layouts_of(self.steps, self.source))

    @property
    def step_received_bytes(self) -> tuple[int, ...]:
        """Bytes that the busiest device receives, per step."""
        return self._once(
            "step_received",
            lambda: tuple(
                received(step, before) * before.itemsize for step, before in zip(self.steps, self.layouts, strict=False)
            ),
        )

    @property
    def received_bytes(self) -> int:
        """Bytes that the busiest device receives over all steps."""
        return self._once("received", lambda: busiest(self.steps, self.layouts) * self.source.itemsize)

    @property
    def lower_bound_bytes(self) -> int:
        """Bytes that the busiest device must receive, whatever the plan."""
        return self._once("bound", lambda: lower_bound(self.source, self.target) * self.source.itemsize)

    @property
    def excess(self) -> float:
        """`received_bytes / lower_bound_bytes`; 1 when both are 0."""
        if self.lower_bound_bytes == 0:
            return 1.0 if self.received_bytes == 0 else float("inf")
        return self.received_bytes / self.lower_bound_bytes

    @property
    def live_bytes(self) -> tuple[int, ...]:
        """Bytes alive while each step runs: the source unless donated, the step's input and output
        blocks, and its staging."""
        return self._once("live", self._live)

    def _live(self) -> tuple[int, ...]:
        profile = profile_of(self.options.backend)
        kept = 0 if self.options.donate else self.source.block_bytes()
        return tuple(
            live(step, before, profile).total + (kept if n else 0)
            for n, (step, before) in enumerate(zip(self.steps, self.layouts, strict=False))
        )

    @property
    def peak_bytes(self) -> int:
        """Projected live peak over the whole plan."""
        return max((*self.live_bytes, self.source.block_bytes(), self.target.block_bytes()))

    @property
    def largest_block_bytes(self) -> int:
        """The largest block that the plan passes through (the block bound is about this); of what runs in
        chunks, the largest part of a block."""
        return self._once("largest_block", lambda: largest_block(self.steps, self.source))

    @property
    def block_bound_bytes(self) -> int:
        """max(source block, target block): what no intermediate block should exceed."""
        return max(self.source.block_bytes(), self.target.block_bytes())

    @property
    def seconds(self) -> float:
        """Projected time under the plan's topology."""
        native = profile_of(self.options.backend).native_exchange
        return self._once(
            "seconds",
            lambda: sum(
                step_seconds(step, before, self.options.topology, native)
                for step, before in zip(self.steps, self.layouts, strict=False)
            ),
        )

    @property
    def optimal(self) -> bool:
        """Whether the planner proved this plan cheapest in its step set."""
        return self.options.optimal

    @property
    def communication_steps(self) -> int:
        """Steps in which some device receives something (those inside a chunk count once)."""
        return sum(communications(step, before) for step, before in zip(self.steps, self.layouts, strict=False))

    def explain(self) -> str:
        """The plan as an aligned table, against its bounds: what `redist plan` prints."""
        from redist.collectives.explain import explain

        return explain(self)

    def __str__(self) -> str:
        return self.explain()

    def to_json(self, indent: int | None = None) -> str:
        """JSON text that `from_json` reads back into an equal plan."""
        from redist.collectives.plan_json import dump_plan

        return dump_plan(self, indent)

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read a plan. Raises ParseError for malformed JSON, another schema version or unknown ops; a
        well-formed but wrong plan loads."""
        from redist.collectives.plan_json import load_plan

        return load_plan(text)
