"""Planners by name, each behind one adapter."""

from __future__ import annotations

from benchmarks.planners.base import Answer, Planner
from benchmarks.planners.control import NothingPlanner
from benchmarks.planners.foreign import DTensorPlanner, ShardyPlanner, XlaPlanner
from benchmarks.planners.own import PAPER, RedistPlanner

__all__ = ["CONTROL", "PLANNERS", "Answer", "Planner"]

CONTROL: Planner = NothingPlanner()
"""Asked in every study, and caught in all that it answers, or the study is not to be trusted."""

PLANNERS: dict[str, Planner] = {
    planner.name: planner
    for planner in (
        RedistPlanner("redist", None),
        RedistPlanner("redist-paper", PAPER),
        RedistPlanner("redist-exchange", PAPER | {"exchange"}),
        ShardyPlanner(),
        XlaPlanner(),
        DTensorPlanner("dtensor-greedy", shortest_path=False),
        DTensorPlanner("dtensor-dijkstra", shortest_path=True),
    )
}
"""redist's default, with the paper's steps, and with an exchange beside these; then its peers."""
