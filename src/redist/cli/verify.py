"""`redist verify`: prove a saved plan right, or show where it goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from redist.cli.arguments import AsJson, plan_text
from redist.cli.failure import FAILED, OK, UsageError
from redist.collectives import Plan

__all__ = ["verify"]


def verify(
    plan: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    smt2: Annotated[Path | None, Parameter(name="--smt2", show_default=False)] = None,
    timeout: float = 10.0,
    as_json: AsJson = False,
) -> int:
    """Prove a saved plan right, or show where it goes wrong. Exit status 0 only where it is proved.

    Parameters
    ----------
    plan
        JSON file written by `redist plan --json`, or - for standard input.
    smt2
        Directory to write what the solver was asked to, as SMT-LIB scripts with their expected status.
    timeout
        Seconds that each obligation may take.
    as_json
        Print the certificate as JSON.
    """
    if timeout <= 0:
        raise UsageError(f"--timeout is {timeout:g} seconds; give a number above 0")
    from redist.proofs import verify as verified

    certificate = verified(Plan.from_json(plan_text(plan)), timeout_s=timeout)
    if smt2 is not None:
        certificate.write_smt2(smt2)
    print(certificate.to_json() if as_json else certificate)
    return OK if certificate.status == "proved" else FAILED
