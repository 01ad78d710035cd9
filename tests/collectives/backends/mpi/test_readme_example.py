"""The example of the README runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[4] / "README.md"


def test_the_example(tmp_path: Path) -> None:
    found = re.search(r"```py\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    (tmp_path / "transpose.py").write_text(found[1])
    mpiexec = Path(sys.executable).with_name("mpiexec")
    done = subprocess.run(
        [
            str(mpiexec) if mpiexec.exists() else "mpiexec",
            "-outfile-pattern=out.%r",  # what ranks print at the same time may mix
            *("-n", "4", sys.executable, "transpose.py"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    columns = (250, 250, 250, 249)
    printed = [(tmp_path / f"out.{rank}").read_text() for rank in range(4)]
    assert printed == [f"{rank} (1000, {width}) [0. 1. 2. 3.]\n" for rank, width in enumerate(columns)]
