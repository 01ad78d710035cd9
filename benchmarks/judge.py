"""What an answer is worth: a flat record of figures, from the independent simulation wherever there is one."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.blocks import lower_bound
from benchmarks.planners import Answer
from benchmarks.problems import Problem
from benchmarks.simulate import simulate
from redist.types.bounds import lower_bound as reducing_bound

__all__ = ["judge"]


def judge(problem: Problem, who: str, answer: Answer) -> dict[str, Any]:
    """One record: `verdict` is ok, wrong, failed or refused; the rest as far as there is a plan.

    `received` and `lower_bound` are elements of the busiest device and `ratio` the one over the other
    (1 where both are 0, None where only the bound is); `steps` counts those in which any device receives;
    `block_peak` is the largest block over max(source, target), `live_peak` the largest input and output
    of an operation over source + target. `idle_ratio` is the ratio with permutes that move nothing counted
    as if they moved every block, where there are any. `seconds` is the planning time.
    """
    source, target = problem.source, problem.target
    record: dict[str, Any] = {
        "record": "plan",
        "family": problem.family,
        "problem": problem.key,
        "who": who,
        "verdict": "ok" if answer.status == "planned" else answer.status,
        "seconds": round(answer.seconds, 7),
    }
    if answer.note:
        record["note"] = answer.note
    if answer.status != "planned":
        return record
    bound = lower_bound(source, target) if source.partial is None else reducing_bound(source, target)
    held = source.block_elements(), target.block_elements()
    live = None
    if answer.ops is not None:
        found = simulate(source, target, answer.ops)
        if found.wrong is not None:
            record |= {"verdict": "wrong", "note": found.wrong}
        received, steps, largest, live = found.received, found.steps, found.largest_block, found.live
        record["ops"] = [op.kind for op in answer.ops]
        if found.idle:
            record["idle_ratio"] = _ratio(received + found.idle, bound)
    else:
        received, steps, largest = (answer.counts[name] for name in ("received", "steps", "largest_block"))
    record |= {
        "received": received,
        "lower_bound": bound,
        "ratio": _ratio(received, bound),
        "steps": steps,
        "block_peak": _share(largest, max(held)),
        "live_peak": None if live is None else _share(live, sum(held)),
    }
    if problem.at_most is not None:
        record["within"] = received <= problem.at_most * math.prod(source.shape) + 1e-6
    return record | _claims(problem, answer, received, largest)


def _ratio(received: int, bound: int) -> float | None:
    if bound:
        return received / bound
    return None if received else 1.0


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def _claims(problem: Problem, answer: Answer, received: int, largest: int) -> dict[str, Any]:
    """What the planner says of itself, against what was found.

    `rematerialised`: neither source nor target is the full array on any device, but some block on the way
    is, and the temporaries take as much.
    """
    size, claims = problem.source.itemsize, answer.claims
    blocks = problem.source.block_elements(), problem.target.block_elements()
    held, full = sum(blocks), math.prod(problem.source.shape)
    made: dict[str, Any] = {}
    if "received_bytes" in claims:
        made["claim_holds"] = claims["received_bytes"] == received * size
    if "peak_bytes" in claims:
        made["projected_peak"] = _share(claims["peak_bytes"], held * size)
    if "measured_bytes" in claims:
        made["measured_peak"] = _share(claims["measured_bytes"], held * size)
    if "temp_bytes" in claims:
        made["rematerialised"] = max(blocks) < full <= largest and claims["temp_bytes"] >= full * size
    return made
