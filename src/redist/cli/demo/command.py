"""`redist demo`."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from redist.cli.arguments import AsJson
from redist.cli.demo.facts import Facts
from redist.cli.demo.gpt2 import LAYERS, SERVING, TRAINING, tree
from redist.cli.demo.report import show
from redist.cli.failure import FAILED, OK
from redist.cli.on_jax import load_jax
from redist.cli.progress import Progress

__all__ = ["demo"]

_QUICK_LAYERS = 1


def demo(*, quick: Annotated[bool, Parameter(negative=(), show_default=False)] = False, as_json: AsJson = False) -> int:
    """Move GPT-2 small's parameters from a training to a serving layout.

    Parameters
    ----------
    quick
        One layer instead of twelve, and few timed rounds.
    as_json
        Print the facts as JSON.
    """
    facts = _measure(quick, Progress())
    if as_json:
        print(json.dumps(asdict(facts)))
    else:
        show(facts)
    return FAILED if facts.wrong_elements else OK


def _measure(quick: bool, progress: Progress) -> Facts:
    start = time.perf_counter()
    jax = load_jax(TRAINING.size)
    from redist.cli.demo.move import busiest_device, in_turns, movers, source_array, wrong_elements

    leaves = tree(_QUICK_LAYERS if quick else LAYERS)
    seconds, least = (0.1, 3) if quick else (1.5, 12)
    with progress.phase("planning and compiling", len({(leaf.source, leaf.target) for leaf in leaves})) as step:
        plans = [step(mover) for mover in movers(leaves)]
    mover_of = {leaf.name: mover for mover in plans for leaf in mover.leaves}
    with progress.phase("making the parameters", len(leaves)) as step:
        sources = {leaf.name: step(source_array(leaf)) for leaf in leaves}
    checked = wrong = 0
    with progress.phase("moving and checking", len(leaves)) as step:
        for leaf in leaves:
            compared, differing = wrong_elements(leaf, mover_of[leaf.name].ours(sources[leaf.name]))
            checked, wrong = checked + compared, wrong + differing
            step(None)
    with progress.phase("timing each kind of array", len(plans)) as step:
        cases = tuple(step(m.case(*in_turns(m.ours, m.xla, sources[m.leaves[0].name], seconds, least))) for m in plans)
    with progress.phase("timing the whole tree", 1) as step:
        # One array after the other: many programs in flight can starve each other of XLA's CPU threads.
        whole = in_turns(
            lambda given: [jax.block_until_ready(mover_of[name].ours(array)) for name, array in given.items()],
            lambda given: [jax.block_until_ready(mover_of[name].xla(array)) for name, array in given.items()],
            sources,
            4 * seconds,
            least,
        )
        step(None)
    received, bound = busiest_device(plans)
    by_xla = [None if c.xla_received_bytes is None else c.xla_received_bytes * len(c.names) for c in cases]
    return Facts(
        model="GPT-2 small" if not quick else f"GPT-2 small, {_QUICK_LAYERS} layer of {LAYERS}",
        arrays=len(leaves),
        parameters=sum(leaf.elements for leaf in leaves),
        total_bytes=sum(leaf.elements * leaf.source.itemsize for leaf in leaves),
        source_mesh=str(TRAINING),
        target_mesh=str(SERVING),
        devices=TRAINING.size,
        cores=os.cpu_count() or 1,
        jax=jax.__version__,
        checked_elements=checked,
        wrong_elements=wrong,
        received_bytes=received,
        lower_bound_bytes=bound,
        xla_received_bytes=None if None in by_xla else sum(count for count in by_xla if count is not None),
        seconds=whole[0],
        xla_seconds=whole[1],
        ratio=whole[2],
        cases=cases,
        wall_seconds=time.perf_counter() - start,
    )
