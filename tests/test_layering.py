"""What importing redist costs, what it loads, and who may import whom; each check is also shown to fail."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPTIONAL = {"cyclopts", "jax", "matplotlib", "mpi4py", "rich", "torch", "z3"}
IMPORT_SECONDS = 0.030


def fresh(code: str, *flags: str, cwd: Path, path: Path = ROOT / "src") -> str:
    """What `code` prints in an interpreter of its own, started in `cwd` with `path` on its path."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def optional_modules_after(code: str, tmp_path: Path) -> set[str]:
    """The optional dependencies that running `code` loads."""
    listing = "import json, sys; print(json.dumps(list(sys.modules)))"
    return OPTIONAL & set(json.loads(fresh(f"{code}\n{listing}", cwd=tmp_path)))


def import_seconds(module: str, path: Path, tmp_path: Path) -> float:
    """How long `import module` takes with NumPy already loaded: the fastest of 7 interpreters, so that other
    work on the machine has to disturb all of them to matter."""
    code = f"import time, numpy\nstart = time.perf_counter()\nimport {module}\nprint(time.perf_counter() - start)"
    return min(float(fresh(code, cwd=tmp_path, path=path)) for _ in range(7))


def broken_contracts(tree: Path) -> str:
    """What import-linter reports about a checkout; empty where all contracts are kept."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "../pyproject.toml", "--no-cache", "--no-logo"],
        cwd=tree / "src",
        env={**os.environ, "COLUMNS": "200"},  # so that no line of the report is wrapped
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Contracts:" in done.stdout, done.stdout + done.stderr
    return done.stdout if done.returncode else ""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the source tree to break, in which every layer exists."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "src/redist/partir_core").mkdir(exist_ok=True)
    (tmp_path / "src/redist/partir_core/__init__.py").touch()
    return tmp_path


def test_import_loads_no_optional_dependency(tmp_path: Path) -> None:
    assert optional_modules_after("import redist", tmp_path) == set()


def test_the_check_of_optional_dependencies_can_fail(tmp_path: Path) -> None:
    assert optional_modules_after("import jax, redist", tmp_path) == {"jax"}


def test_planning_and_simulating_load_no_optional_dependency(tmp_path: Path) -> None:
    code = (
        "import numpy, redist\n"
        "mesh = redist.Mesh({'x': 2})\n"
        "source, target = (redist.Layout.parse(text, mesh) for text in ('f32[4{x}, 4]', 'f32[4, 4{x}]'))\n"
        "redist.simulate(redist.synthesize(source, target), numpy.zeros((4, 4), numpy.float32))"
    )
    assert optional_modules_after(code, tmp_path) == set()


def test_import_time(tmp_path: Path) -> None:
    assert import_seconds("redist", ROOT / "src", tmp_path) <= IMPORT_SECONDS


def test_the_check_of_import_time_can_fail(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(f"import time\n\ntime.sleep({IMPORT_SECONDS})\n")
    assert import_seconds("slow", tmp_path, tmp_path) > IMPORT_SECONDS


def test_every_public_name_resolves(tmp_path: Path) -> None:
    code = "import redist\nprint([name for name in redist.__all__ if not hasattr(redist, name)])"
    assert fresh(code, cwd=tmp_path) == "[]\n"


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    code = "import redist\ntry: redist.nothing\nexcept AttributeError as error: print(error)"
    assert fresh(code, cwd=tmp_path) == "module 'redist' has no attribute 'nothing'\n"


def test_types_of_the_standard_library_is_not_shadowed() -> None:
    """Without `site` (-S) too: start-up files of installed packages may load the real one first and hide it."""
    code = "import importlib.util, types; types.SimpleNamespace; print(importlib.util.find_spec('types').origin)"
    for flags in ([], ["-S"]):
        assert not Path(fresh(code, *flags, cwd=ROOT).strip()).is_relative_to(ROOT / "src")
    assert [path.name for path in (ROOT / "src").iterdir() if path.name != "__pycache__"] == ["redist"]


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "redist", "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_layers() -> None:
    assert broken_contracts(ROOT) == ""


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("errors", "redist.types"),
        ("types.mesh", "redist.collectives.plan"),
        ("collectives.plan", "redist.synth"),
        ("synth", "redist.proofs"),
        ("proofs", "redist.synth"),
        ("synth", "redist.partir_core"),
        ("proofs", "redist.partir_core"),
        ("partir_core", "redist.cli"),
        ("types.layout", "jax"),
        ("collectives.backends.numpy", "jax"),
        ("synth", "jaxlib"),
        ("collectives.plan", "mpi4py"),
        ("collectives.plan", "z3"),
        ("synth", "torch"),
        ("collectives.explain", "rich"),
    ],
)
def test_the_check_of_layers_can_fail(checkout: Path, importer: str, imported: str) -> None:
    place = checkout / "src/redist" / importer.replace(".", "/")
    with (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).open("a") as file:
        file.write(f"\nimport {imported}\n")
    assert f"redist.{importer} -> {imported} (l." in broken_contracts(checkout)


def test_a_new_module_needs_a_place_in_the_layers(checkout: Path) -> None:
    (checkout / "src/redist/unplaced.py").touch()
    assert "unplaced" in broken_contracts(checkout)
