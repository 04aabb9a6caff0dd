"""Folders of runs that kept their networks: found by their config.json, wherever they are."""

import dataclasses

import pytest

from everlight_data.errors import MissingDataError
from everlight_data.runs.configs import write_config
from everlight_data.runs.descriptions import as_json
from everlight_experiments.cli import options_of
from everlight_experiments.commands.kept_runs import read_kept_run
from tests.refusals import refused

SEEDS = "--seed", "5", "--seeds", "1"


def make_run(folder, *words):
    """Write the config.json of a command with these words; return the folder."""
    folder.mkdir(parents=True)
    options = as_json(dataclasses.asdict(options_of(words[0], list(words[1:]))))
    write_config(folder / "config.json", options, {})
    return folder


@pytest.fixture
def moved(tmp_path):
    """Return the folder of runs, moved, of a run, its update and the update of that."""
    runs = tmp_path / "runs"
    first = make_run(runs / "run-digits-demo", "run", "digits", *SEEDS)
    second = make_run(
        runs / "update-run-digits-demo", "update", str(first), "--data", "a.npz", *SEEDS
    )
    third = runs / "update-update-run-digits-demo"
    make_run(third, "update", str(second), "--data", "b.npz", *SEEDS)
    return runs.rename(tmp_path / "elsewhere")


def test_an_update_of_an_update_is_read_after_its_folder_of_runs_was_moved(moved):
    run = moved / "update-update-run-digits-demo"
    stored = read_kept_run(run)
    assert stored.folder == run
    assert stored.options.seed == 5
    assert stored.options.runs == moved
    assert [added.data for added in stored.added] == ["a.npz", "b.npz"]


def test_an_update_without_the_run_that_it_continues_is_refused_in_one_line(moved):
    first = moved / "run-digits-demo"
    first.rename(moved.parent / "taken away")
    message = refused(
        None, lambda: read_kept_run(moved / "update-update-run-digits-demo"), MissingDataError
    )
    assert f"continues {moved.parent / 'runs' / first.name}, which does not exist" in message
    assert f"neither does {first}" in message
