"""The commands, and how every one of them ends: with an exit status, never with a traceback for bad input."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from cyclopts import App, CycloptsError

from redist.cli.failure import FAILED, OK, Failure, of_redist, of_system, of_usage
from redist.errors import RedistError

__all__ = ["run"]

_ABOUT = (
    "Derive, run and check sequences of collectives that turn one layout of a distributed array into another.\n\n"
    "Exit status: 0 done, 1 refuted or failed, 2 bad usage. Every command takes --json."
)

_COMMANDS = (
    (
        "plan",
        "redist.cli.plan:plan",
        "Print the plan from one layout to another.\n\n"
        'Example: redist plan x=4,y=2 "f32[1024{x}, 512{y}]" "f32[1024, 512{y,x}]"',
    ),
    (
        "verify",
        "redist.cli.verify:verify",
        "Prove a saved plan right, or show where it goes wrong.\n\n"
        'Example: redist plan x=4 "f32[8{x}, 8]" "f32[8, 8{x}]" --json | redist verify -',
    ),
    (
        "run",
        "redist.cli.run:run",
        "Run a saved plan on all devices and check every block.\n\n"
        'Example: redist plan x=4 "f32[8{x}, 8]" "f32[8, 8{x}]" --json | redist run -',
    ),
    (
        "audit",
        "redist.cli.audit:audit",
        "Check another planner's plans: which are wrong, over the memory bound, or receive too much.\n\n"
        "Example: redist audit --peer shardy --mesh x=2,y=3,z=5 --rank 2",
    ),
    (
        "calibrate",
        "redist.cli.calibrate:calibrate_machine",
        "Measure what collectives cost on this machine, for `redist plan --topology`.\n\n"
        "Example: redist calibrate x=4,y=2 --output here.json",
    ),
    (
        "demo",
        "redist.cli.demo.command:demo",
        "Move GPT-2's parameters from a training to a serving layout.\n\n"
        "148 arrays of 124,439,808 parameters go from data=4,model=2, fully sharded, to model=8, on 8 virtual CPU "
        "devices. XLA's own resharding runs beside it. Every value is checked.",
    ),
    (
        "bench",
        "redist.cli.bench:bench",
        "Compare plans and their speed with Shardy's, XLA's and DTensor's.\n\nExample: redist bench --suite quick",
    ),
)
"""(name, function, help): here, so that printing help imports no command."""


def run(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit status."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    app = _app()
    try:
        try:
            status = app(tokens, exit_on_error=False, print_error=False)
            sys.stdout.flush()
        except CycloptsError as error:
            known = [name for name, _, _ in _COMMANDS if name in tokens[:1]]
            return _end(of_usage(error, " ".join(["redist", *known])), tokens)
        except RedistError as error:
            return _end(of_redist(error), tokens)
        except BrokenPipeError:
            raise
        except OSError as error:
            return _end(of_system(error), tokens)
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    return status if isinstance(status, int) else OK


def _end(failure: Failure, tokens: list[str]) -> int:
    failure.report(as_json="--json" in tokens)
    return failure.status


def _app() -> App:
    app = App(
        name="redist",
        help=_ABOUT,
        version=_version,
        result_action="return_value",
    )
    for n, (name, where, about) in enumerate(_COMMANDS):
        app.command(where, name=name, help=about, sort_key=n)
    return app


def _version() -> str:
    try:
        return version("redist")
    except PackageNotFoundError:
        return "unknown (redist is not installed)"
