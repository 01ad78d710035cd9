"""The terminal that ranks are started from: launchers hand on what ranks write, but through pipes of their own."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["launcher_terminal"]

_LAUNCHERS = frozenset({"hydra_pmi_proxy", "mpiexec", "mpiexec.hydra", "mpirun", "orterun", "prterun"})


def launcher_terminal() -> os.terminal_size | None:
    """Size of the terminal to which a launcher of this process hands on what goes to stderr; None where stderr
    goes elsewhere, and where there is no telling (no /proc, a launcher on another host)."""
    with suppress(OSError, ValueError):
        if not stat.S_ISREG(os.fstat(2).st_mode):  # else it has been redirected behind the launcher
            for process in _launchers(os.getppid()):
                size = _terminal(Path(f"/proc/{process}/fd/2"))
                if size is not None:
                    return size
    return None


def _launchers(process: int) -> Iterator[int]:
    """Those among a process and its ancestors, nearest first."""
    while process > 1:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
        opening, closing = text.index("("), text.rindex(")")  # around the name, which may hold anything
        if text[opening + 1 : closing] in _LAUNCHERS:
            yield process
        process = int(text[closing + 1 :].split()[1])


def _terminal(stream: Path) -> os.terminal_size | None:
    if not os.readlink(stream).startswith("/dev/"):
        return None
    opened = os.open(stream, os.O_WRONLY | os.O_NOCTTY)
    try:
        return os.get_terminal_size(opened) if os.isatty(opened) else None
    finally:
        os.close(opened)
