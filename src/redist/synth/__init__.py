"""How to get from one layout to another: plans inside a memory bound."""

from redist.synth.planner import pareto, synthesize

__all__ = ["pareto", "synthesize"]
