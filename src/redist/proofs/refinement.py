"""R for a whole plan: runs of steps in digits by the solver, tables and arbitrary device lists in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from redist.collectives.plan import Plan
from redist.collectives.steps import Step
from redist.proofs import explain
from redist.proofs.certificate import Counterexample, Proved, Refuted, Unknown, Verdict
from redist.proofs.positions import UnsupportedError
from redist.proofs.refine import Claim, contributions, refinement
from redist.proofs.replay import Replay, replay
from redist.proofs.solver import Deadline, decide, smallest
from redist.proofs.tables import Fault, check_ending, check_step
from redist.proofs.terms import Query
from redist.proofs.trace import Leaf, symbolic
from redist.types.layout import Layout

__all__ = ["Refinement"]


class Refinement:
    """Decides R of one well-typed plan; collects what the solver was asked and which methods were used."""

    def __init__(self, plan: Plan, leaves: Sequence[Leaf], deadline: Deadline) -> None:
        self.plan = plan
        self.leaves = leaves
        self.deadline = deadline
        self.queries: list[tuple[Query, str]] = []
        self.methods: set[str] = set()
        self.steps: Mapping[str, Step] = {leaf.label: leaf.step for leaf in leaves}

    @cached_property
    def _replay(self) -> Replay | None:
        return replay(self.plan)

    def decide(self) -> Verdict:
        """The verdict of the first part that is not proved."""
        source, target = self.plan.source, self.plan.target
        if not source.same_array(target):
            return Refuted(explain.plain("refinement", f"{source} and {target} are not layouts of one array"))
        if target.partial and source.partial and target.mesh.count(target.partial_axes) > 1:
            ours, theirs = source.partial.reduction, target.partial.reduction
            if ours != theirs:
                text = f"the source is unreduced by {ours}, the target by {theirs}"
                return Refuted(explain.plain("refinement", text))
        last = self.leaves[-1].following if self.leaves else source
        parts = self._parts(last)
        for n, run in enumerate(parts):
            ends_here = n == len(parts) - 1
            verdict = self._part(run, target if ends_here else run[-1].following, run[-1].following if run else last)
            if not isinstance(verdict, Proved):
                return verdict
        return Proved()

    def _parts(self, last: Layout) -> list[list[Leaf]]:
        """Maximal runs of steps in digits, and the others one by one; the last part meets the target."""
        parts: list[list[Leaf]] = []
        before: bool | None = None
        empty = 0 in self.plan.source.shape
        for leaf in self.leaves:
            now = symbolic(leaf) and not empty
            if now and before:
                parts[-1].append(leaf)
            else:
                parts.append([leaf])
            before = now
        if not parts or (not before and last != self.plan.target):
            parts.append([])
        return parts

    def _part(self, run: list[Leaf], goal: Layout, last: Layout) -> Verdict:
        empty = 0 in goal.shape
        if empty or (run and not symbolic(run[0])):
            return self._by_device(run, goal, last)
        try:
            return self._by_solver(run, goal, last)
        except UnsupportedError:
            return self._by_device(run, goal, last)

    # -- in digits -------------------------------------------------------------------------------------

    def _by_solver(self, run: list[Leaf], goal: Layout, last: Layout) -> Verdict:
        source = run[0].before if run else last
        where = f"steps {run[0].label} to {run[-1].label}" if run else "the end"
        first = refinement(run, goal, last, f"right element, {where}")
        verdict = self._ask(first, lambda model: explain.moved(first, model, self.steps, last))
        if not isinstance(verdict, Proved):
            return verdict
        there = source.mesh.count(source.partial_axes)
        reached = first.summed * goal.mesh.count(goal.partial_axes)
        if there != reached:
            return self._miscounted(goal, there, reached)
        if there == 1:
            return verdict
        second = contributions(run, goal, last, f"no contribution twice, {where}")
        return self._ask(second, lambda model: explain.twice(second, model, self.steps))

    def _ask(self, claim: Claim, explained: Callable[[Mapping[str, int]], Counterexample]) -> Verdict:
        self.methods.add("smt")
        answer = decide(claim.query, self.deadline)
        self.queries.append((claim.query, answer.status))
        match answer.status:
            case "unsat":
                return Proved()
            case "unknown":
                return Unknown(f"{claim.query.name}: {answer.reason}")
            case "sat":
                least = smallest(claim.query, claim.order, self.deadline)
                return self._confirmed(explained((least if least.status == "sat" else answer).model))

    def _confirmed(self, found: Counterexample) -> Verdict:
        """A counterexample as the NumPy reference sees it. Where that finds the place to be right, replicas
        were confused: it decides, all elements enumerated."""
        run = self._replay
        if run is None:
            return Refuted(found)
        wrong = run.first_wrong()
        if wrong is None:
            self.methods = {"enumerated"}
            return Proved()
        if found.device is None or found.local is None:
            return Refuted(replace(found, confirmed=True))
        got = run.got(found.device, found.local)
        if got == found.got:
            line = f"  NumPy shows the same: {'nothing' if got is None else f'global {got}'} is there"
            return Refuted(replace(found, text=f"{found.text}\n{line}", confirmed=True))
        return Refuted(explain.of_wrong(self.plan.target, wrong, True))

    def _miscounted(self, goal: Layout, there: int, reached: int) -> Verdict:
        device = goal.mesh.device_ids[0]
        zero = (0,) * goal.rank
        text = (
            f"REFUTED refinement: {goal.mesh.describe_device(device)}, local index {zero}: wants the sum of {there} "
            f"contributions, gets {reached}"
        )
        found = Counterexample(text, device, goal.mesh.coordinates(device), zero, zero, zero)
        run = self._replay
        if run is None:
            return Refuted(found)
        wrong = run.first_wrong()
        if wrong is None:
            return Unknown(f"{reached} of {there} contributions are counted, but the NumPy reference finds them all")
        return Refuted(replace(found, confirmed=True))

    # -- device by device ------------------------------------------------------------------------------

    def _by_device(self, run: list[Leaf], goal: Layout, last: Layout) -> Verdict:
        self.methods.add("enumerated")
        for leaf in run:
            fault = None if 0 in leaf.before.shape else check_step(leaf)
            if fault is not None:
                return self._faulty(leaf.following, fault, f"step {leaf.label}")
        fault = None if goal == last else check_ending(last, goal)
        return Proved() if fault is None else self._faulty(goal, fault, "the end")

    def _faulty(self, layout: Layout, fault: Fault, where: str) -> Verdict:
        """A step may leave something wrong that no later step looks at: the reference decides."""
        run = self._replay
        if run is not None:
            wrong = run.first_wrong()
            if wrong is None:
                self.methods = {"enumerated"}
                return Proved()
            return Refuted(explain.of_wrong(self.plan.target, wrong, True))
        if where != "the end":
            return Unknown(
                f"{where}: device {fault.device}, local index {fault.local}: {fault.reason}; too large to run, to see "
                "whether it matters"
            )
        return Refuted(self._unrun(layout, fault))

    def _unrun(self, layout: Layout, fault: Fault) -> Counterexample:
        known = fault.device in layout.mesh.device_ids
        box = layout.box(fault.device) if known else ()
        wanted: Any = tuple(s.start + n for s, n in zip(box, fault.local, strict=True)) if known else None
        who = layout.mesh.describe_device(fault.device) if known else f"device {fault.device}"
        text = f"REFUTED refinement: {who}, local index {fault.local}: wants global {wanted}; {fault.reason}"
        return Counterexample(
            text, fault.device, layout.mesh.coordinates(fault.device) if known else {}, fault.local, wanted
        )
