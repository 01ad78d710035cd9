"""The store: what identifies a run, and going on after an interruption."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.records import Store, environment, read_records


def result(problem: str) -> dict[str, str]:
    return {"record": "plan", "family": "f", "problem": problem, "who": "me"}


def opened(folder: Path, seed: int = 0, fresh: bool = False, **settings: object) -> Store:
    return Store.open(folder, "plans", seed, settings, fresh)


def test_a_run_states_code_versions_machine_and_seed(tmp_path: Path) -> None:
    store = opened(tmp_path, seed=7, limit=3)
    store.add(result("a"))
    store.close()
    header, line = read_records(store.path)
    assert line == result("a")
    assert (header["record"], header["suite"], header["seed"], header["settings"]) == ("run", "plans", 7, {"limit": 3})
    assert {"commit", "changes", "versions", "machine", "started", "command"} <= set(header)
    assert {"python", "numpy"} <= set(header["versions"])
    assert header["machine"]["cores"] >= 1


def test_nothing_is_written_before_the_first_result(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.close()
    assert not store.path.exists()


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.add(result("a"))
    first.close()
    second = opened(tmp_path)
    assert second.path == first.path
    assert second.found("plan", "f", "a", "me") == result("a")
    assert second.found("plan", "f", "b", "me") is None
    second.add(result("b"))
    second.close()
    assert [r["record"] for r in read_records(second.path)] == ["run", "plan", "run", "plan"]
    assert [r["problem"] for r in second.select("plan")] == ["a", "b"]


def test_a_line_that_was_cut_off_is_computed_again(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.add(result("a"))
    first.add(result("b"))
    first.close()
    first.path.write_bytes(first.path.read_bytes()[:-9])
    second = opened(tmp_path)
    assert second.found("plan", "f", "a", "me") and second.found("plan", "f", "b", "me") is None
    second.add(result("b"))
    second.close()
    assert all(json.loads(line) for line in second.path.read_text().splitlines())


def test_other_seeds_settings_and_code_have_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = {opened(tmp_path).path, opened(tmp_path, seed=1).path, opened(tmp_path, limit=2).path}
    here = environment()
    monkeypatch.setattr("benchmarks.records.environment", lambda: {**here, "changes": "something else"})
    paths.add(opened(tmp_path).path)
    assert len(paths) == 4


def test_fresh_starts_over(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.add(result("a"))
    first.close()
    assert opened(tmp_path, fresh=True).found("plan", "f", "a", "me") is None
