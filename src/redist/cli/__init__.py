"""The command line. `main` is the entry point; everything it needs is imported when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command (by default the process's arguments) and return its exit status: 0 done, 1 refuted
    or failed, 2 bad usage."""
    try:
        from redist.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in ("cyclopts", "rich"):
            raise
        sys.stderr.write(f"error: the command line needs {error.name}; pip install 'redist[cli]'\n")
        return 2
    return run(argv)
