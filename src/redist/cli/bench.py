"""`redist bench`: the study in `benchmarks/` of the repository, run in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

import redist
from redist.cli.arguments import AsJson
from redist.errors import BackendError

__all__ = ["bench", "checkout"]


def bench(
    *,
    suite: Literal["quick", "plans", "jax", "mpi", "cluster", "full"] = "quick",
    seed: int = 0,
    planner: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    results: Annotated[Path | None, Parameter(show_default=False)] = None,
    fresh: Annotated[bool, Parameter(negative=())] = False,
    plots: bool = True,
    limit: Annotated[int | None, Parameter(validator=Number(gte=1), show_default=False)] = None,
    rate: Annotated[str | None, Parameter(show_default=False)] = None,
    delay: Annotated[str | None, Parameter(show_default=False)] = None,
    as_json: AsJson = False,
) -> int:
    """Compare redist's plans and their speed with Shardy's, XLA's and DTensor's.

    Needs a checkout of the repository. An interrupted run goes on where it stopped.

    Parameters
    ----------
    suite
        quick: under ten minutes. plans: plans only. jax: timings against XLA. mpi: timings on MPI ranks
        against transfers by hand. cluster: timings on several hosts on a slow network (as root). full: all
        of it.
    seed
        Which problems are sampled, and in which order contestants run.
    planner
        Ask these planners only; may be given several times.
    results
        Where the JSON lines and plots go (default: benchmarks/results of the checkout).
    fresh
        Start over, instead of going on with results of the same code, versions and seed.
    plots
        Draw plots.
    limit
        At most this many problems per family and timed part.
    rate
        Of the links in the cluster suite: 100mbit, 1gbit. By default several, one after another.
    delay
        Of the links in the cluster suite: 200us, 5ms.
    as_json
        Print the figures of the tables as JSON.
    """
    root = checkout()
    if root is None:
        raise BackendError(
            "the benchmarks are part of the repository, not of the installed package; clone it and run "
            "`redist bench`, or `python -m benchmarks`, inside the checkout"
        )
    command = [sys.executable, "-m", "benchmarks", "--suite", suite, "--seed", str(seed)]
    for name in planner:
        command += ["--planner", name]
    if results is not None:
        command += ["--results", str(results)]
    if limit is not None:
        command += ["--limit", str(limit)]
    command += [f"--{name}={value}" for name, value in (("rate", rate), ("delay", delay)) if value is not None]
    command += [flag for flag, given in (("--fresh", fresh), ("--no-plots", not plots), ("--json", as_json)) if given]
    paths = [str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.run(command, env=environment, check=False).returncode


def checkout() -> Path | None:
    """The checkout that redist is imported from, or the one around the working directory; None for neither."""
    package = Path(next(iter(redist.__path__))).resolve()
    places = [package.parent.parent, Path.cwd(), *Path.cwd().parents]
    return next((place for place in places if (place / "benchmarks" / "__main__.py").is_file()), None)
