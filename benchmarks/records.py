"""JSON lines of results: one header per run with everything that identifies it, then one line per result.

A run that was interrupted goes on where it stopped: results of the same suite, seed, code and versions
are in the same file, and are not computed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self, TextIO

__all__ = ["ROOT", "Store", "environment", "read_records"]

ROOT = Path(__file__).resolve().parent.parent
"""The checkout."""

_PACKAGES = ("numpy", "jax", "jaxlib", "torch", "mpi4py", "mpich", "mpi4py-fft", "z3-solver")


def environment() -> dict[str, Any]:
    """Commit (and a digest of what is not committed), versions, and the machine."""
    return {"commit": _git("rev-parse", "HEAD"), "changes": _changes(), "versions": _versions(), "machine": _machine()}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace").strip()


def _changes() -> str | None:
    """Digest of src/ and benchmarks/ as far as they differ from the commit; None where they do not."""
    difference = _git("diff", "HEAD", "--", "src", "benchmarks") or ""
    untracked = (_git("ls-files", "--others", "--exclude-standard", "--", "src", "benchmarks") or "").splitlines()
    if not difference and not untracked:
        return None
    digest = hashlib.sha256(difference.encode())
    for name in sorted(untracked):
        digest.update(name.encode() + (ROOT / name).read_bytes())
    return digest.hexdigest()[:12]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file; a last line that was cut off is left out."""
    if not path.exists():
        return
    with path.open() as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                if line.endswith("\n"):
                    raise


@dataclass(slots=True)
class Store:
    """The results of one suite in a file of its own, appended to as they come."""

    path: Path
    header: dict[str, Any]
    results: list[dict[str, Any]] = field(default_factory=list)
    _done: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)
    _file: TextIO | None = None

    @staticmethod
    def open(folder: Path, suite: str, seed: int, settings: Mapping[str, Any], fresh: bool = False) -> Store:
        """The file for this suite, seed, settings, code and versions, with what it holds already.

        `fresh` starts it over.
        """
        identity = {"suite": suite, "seed": seed, "settings": dict(settings), **environment()}
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
        commit = (identity["commit"] or "nocommit")[:8] + ("" if identity["changes"] is None else "-changed")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{suite}-{commit}-{digest}.jsonl"
        if fresh:
            path.unlink(missing_ok=True)
        _mend(path)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        store = Store(path, {"record": "run", "started": started, "command": sys.argv[1:], **identity})
        for record in read_records(path):
            if record["record"] != "run":
                store._remember(record)
        return store

    def _remember(self, record: dict[str, Any]) -> None:
        self._done[_key(record)] = record
        self.results.append(record)

    def found(self, record: str, family: str, problem: str, who: str) -> dict[str, Any] | None:
        """The result that is there already, if any."""
        return self._done.get((record, family, problem, who))

    def add(self, result: dict[str, Any]) -> None:
        """Append one result; the header goes before the first."""
        if self._file is None:
            self._file = self.path.open("a")
            self._write(self.header)
        self._remember(result)
        self._write(result)

    def _write(self, record: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def select(self, record: str, families: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """Results of one kind, of some families."""
        wanted = None if families is None else set(families)
        return [r for r in self.results if r["record"] == record and (wanted is None or r["family"] in wanted)]


def _key(record: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(record.get(name, "")) for name in ("record", "family", "problem", "who"))


def _mend(path: Path) -> None:
    """Cut off a last line that was being written when the run was interrupted."""
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])
