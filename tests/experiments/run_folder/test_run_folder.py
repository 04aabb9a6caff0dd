"""A run's folder: begun, continued or refused, shared, damaged, and removed where it is empty."""

import gc
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import filelock
import jax
import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_experiments.run_folder.folder import PROCESS, RunFolder, remove_empty_folders
from everlight_experiments.run_folder.options import ExperimentOptions
from tests.experiments.run_folder.run_settings import Settings, config_of


@pytest.fixture
def settings(tmp_path):
    return Settings(runs=tmp_path / "runs")


def test_a_folder_that_is_removed_meanwhile_is_named_as_such(settings):
    """Advice to wait for another process would not help."""
    folder = RunFolder("paper", "run", settings, shared=True)
    shutil.rmtree(folder.path)
    folder.path.mkdir()
    with pytest.raises(DataError, match=r"config\.json does not exist\. Its folder was removed"):
        folder.record_method_arguments("EWC", {})
    for save in (partial(folder.save_part, "a", {}), folder.save_results):
        with pytest.raises(
            DataError, match=r"config\.json does not exist\. Its folder was removed"
        ):
            save(scores=np.zeros(2))


def test_a_shared_folder_is_unlocked_after_an_error(settings):
    folder = RunFolder("paper", "run", settings, shared=True)
    (folder.path / "config.json").write_text("{")
    with pytest.raises(DataError, match=r"config\.json"):
        folder.record_method_arguments("EWC", {})
    # A lock of a file that is opened again holds against this process too.
    with filelock.FileLock(folder.path / ".lock").acquire(timeout=0):
        pass


def test_the_folder_is_named_by_paper_run_scale_and_tag(settings):
    plain = RunFolder("illuminant", "dataset", settings)
    tagged = RunFolder("illuminant", "dataset", replace(settings, preset="small", tag="night"))
    assert plain.path == settings.runs / "illuminant-dataset-demo"
    assert tagged.path == settings.runs / "illuminant-dataset-small-night"
    assert plain.checkpoints == plain.path / "checkpoints"


def test_config_holds_settings_versions_and_commit(settings, monkeypatch):
    folder = RunFolder("paper", "run", settings)
    config = config_of(folder)
    expected = {"runs": str(settings.runs), "preset": "demo", "seed": 0, "tag": ""}
    expected |= {"seeds": [0, 1], "rate": 0.1}
    assert config["settings"] == expected
    packages = config["made_with"]["packages"]
    assert packages["jax"] == importlib.metadata.version("jax")
    assert {"everlight", "flax", "optax", "numpy", "orbax-checkpoint"} <= set(packages)
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    commit = config["made_with"]["commit"]
    assert (commit and commit.partition(",")[0]) == (git.stdout.strip() or None)
    monkeypatch.setenv("PATH", "")  # without git
    assert config_of(RunFolder("paper", "other", settings))["made_with"]["commit"] is None
    assert {path.name for path in folder.path.iterdir()} == {"config.json", ".lock"}


def test_config_holds_the_devices_and_the_flags_that_may_change_numbers(settings, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "bfloat16")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/somewhere")
    monkeypatch.setenv("OTHER", "1")
    made_with = config_of(RunFolder("paper", "run", settings))["made_with"]
    assert made_with["devices"] == {"number": jax.device_count(), "kind": "cpu"}
    flags = made_with["flags"]
    assert flags["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=true"
    assert flags["JAX_DEFAULT_MATMUL_PRECISION"] == "bfloat16"
    assert not {"JAX_COMPILATION_CACHE_DIR", "OTHER"} & set(flags)


def test_a_run_continues_elsewhere_and_keeps_its_events_of_methods(settings):
    folder = RunFolder("paper", "run", settings, shared=True)
    arguments = {"hyperparameter": 1.0, "layers": ("a", "b")}
    folder.record_method_arguments("task-incremental-EWC", arguments)
    folder.log(step=0)
    config = folder.path / "config.json"
    devices = {"number": 8, "kind": "TPU v4"}
    made_with = {"devices": devices, "flags": {"XLA_FLAGS": "--other"}}
    config.write_text(json.dumps(config_of(folder) | {"made_with": made_with}))
    folder = RunFolder("paper", "run", settings, shared=True)
    folder.record_method_arguments("task-incremental-ER", {"per_class": 5})
    assert config_of(folder)["made_with"]["devices"]["kind"] == "cpu"
    assert config_of(folder)["methods"] == {
        "task-incremental-EWC": {"hyperparameter": 1.0, "layers": ["a", "b"]},
        "task-incremental-ER": {"per_class": 5},
    }


def test_the_same_settings_continue(settings, capsys):
    first = RunFolder("paper", "run", settings)
    first.log(loss=1)
    assert capsys.readouterr().out.startswith(f"writes to {first.path}")
    again = RunFolder("paper", "run", replace(settings, seeds=(0, 1)))
    assert capsys.readouterr().out.startswith(f"resuming in {first.path}")
    again.log(loss=2)
    assert "continued" in again.duration()
    assert "continued" not in first.duration()
    assert len((first.path / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_folder_may_be_moved_and_named_from_elsewhere(settings, tmp_path, monkeypatch):
    RunFolder("paper", "run", settings)
    settings.runs.rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    folder = RunFolder("paper", "run", replace(settings, runs=Path("moved")))
    assert config_of(folder)["settings"]["runs"] == "moved"


def test_other_settings_are_refused_by_their_difference(settings):
    folder = RunFolder("paper", "run", settings)
    folder.log(step=0)
    before = (folder.path / "config.json").read_text()
    difference = r"\(rate: stored 0\.1, now 1\.0; seeds: stored \[0, 1\], now \[5\]\)"
    with pytest.raises(DataError, match=rf"paper-run-demo .*{difference}.*--tag"):
        RunFolder("paper", "run", replace(settings, rate=1.0, seeds=(5,)))
    assert (folder.path / "config.json").read_text() == before


def test_a_run_that_left_nothing_claims_no_folder(settings):
    """A run that was refused for its settings or for missing data claims no folder."""
    RunFolder("paper", "run", settings)
    folder = RunFolder("paper", "run", replace(settings, rate=0.2))
    assert json.loads((folder.path / "config.json").read_text())["settings"]["rate"] == 0.2


@pytest.mark.parametrize("shared", [False, True])
def test_only_files_written_by_opening_are_removed(settings, shared):
    empty = RunFolder("paper", "empty", settings, shared=shared)
    empty.record_method_arguments("EWC", {"hyperparameter": 1.0})
    used = RunFolder("paper", "used", settings, shared=shared)
    used.save_part("EWC-0", FACTS, **ARRAYS)
    # A killed start leaves the folder so; the next start did not create it.
    result = RunFolder("paper", "found", settings, shared=shared)
    del result
    gc.collect()
    result = RunFolder("paper", "found", settings, shared=shared)
    remove_empty_folders()
    assert sorted(path.name for path in settings.runs.iterdir()) == [
        result.path.name,
        used.path.name,
    ]
    assert result.path.exists()
    # The same process may begin again, and keeps others out again.
    again = RunFolder("paper", "empty", settings, shared=shared)
    names = {path.name for path in again.path.iterdir()}
    assert {name for name in names if not name.startswith(PROCESS)} == {"config.json", ".lock"}
    # Only a shared folder has a claim of the process beside its lock.
    assert len(names) == 2 + shared


def test_a_shared_folder_that_another_process_opened_since_stays(settings):
    """This process plays the other one: its object writes config.json again."""
    first = RunFolder("paper", "run", settings, shared=True)
    second = RunFolder("paper", "run", settings, shared=True)
    first.record_method_arguments("EWC", {})
    first.remove_empty()
    second.remove_empty()
    assert config_of(second)["settings"]["rate"] == 0.1


def test_a_run_that_fails_in_its_first_training_leaves_no_folder(settings):
    folder = RunFolder("paper", "run", settings, shared=True)
    assert folder.claim_part("first")
    (folder.checkpoints / "first").mkdir(parents=True)
    folder.remove_empty()
    assert not folder.path.exists()
    stored = RunFolder("paper", "run", settings, shared=True)
    stored.save_part("first", {}, values=np.zeros(1))
    assert stored.claim_part("second")
    stored.remove_empty()
    assert [path.name for path in (stored.path / "units").iterdir()] == ["first.npz"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tag": "a/../../b"}, "--tag"),
        ({"tag": "x" * 300}, "cannot be written"),
        ({"runs": Path("/dev/null/runs")}, "cannot be written .*choose another folder"),
    ],
)
def test_invalid_folder_names_are_named(settings, change, message):
    with pytest.raises(DataError, match=message):
        RunFolder("illuminant", "dataset", replace(settings, **change))


def test_a_run_that_goes_on_logs_nothing_twice_and_reads_it_back(settings):
    for _ in range(2):
        folder = RunFolder("paper", "run", settings)
        folder.log(unit="GW", error=[1.0, np.nan])
        folder.log(unit="WP", error=[2.0])
        assert folder.read_events() == [
            {"unit": "GW", "error": [1.0, None]},
            {"unit": "WP", "error": [2.0]},
        ]
        del folder


ARRAYS = {"accuracy": np.arange(6.0).reshape(2, 3), "names": np.array(["a", "bc"])}
FACTS = {"strategy": "EWC", "hyperparameter": 10.0}


def test_a_unit_is_read_back_by_name_and_facts(settings):
    folder = RunFolder("paper", "run", settings)
    assert folder.read_part("EWC-0", FACTS) is None
    folder.save_part("EWC-0", FACTS, **ARRAYS)
    result = folder.read_part("EWC-0", FACTS)
    assert result.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(result[name], array)
    with pytest.raises(DataError, match=r"hyperparameter: stored 10\.0, now 20\.0"):
        folder.read_part("EWC-0", FACTS | {"hyperparameter": 20.0})


def test_no_damaged_unit_is_used_and_each_is_reported(settings, capsys, rng):
    folder = RunFolder("paper", "run", settings)
    folder.save_part("EWC-0", FACTS, **ARRAYS)
    path = folder.path / "units" / "EWC-0.npz"
    content = path.read_bytes()
    capsys.readouterr()
    for place in rng.integers(0, len(content), 200):
        damaged = bytearray(content)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        assert folder.read_part("EWC-0", FACTS) is None
        printed = capsys.readouterr().out
        assert f"{path} has changed since it was written" in printed
        assert "computed again" in printed
    for length in (0, 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        assert folder.read_part("EWC-0", FACTS) is None
    np.savez(path, **ARRAYS)
    assert folder.read_part("EWC-0", FACTS) is None
    path.with_name("EWC-1.npz").write_bytes(content)
    assert folder.read_part("EWC-1", FACTS) is None
    assert "a copy of EWC-0" in capsys.readouterr().out
    folder.save_part("EWC-0", FACTS, **ARRAYS)
    assert folder.read_part("EWC-0", FACTS) is not None


@pytest.mark.parametrize(
    "damage",
    [lambda text: text[: len(text) // 2], lambda text: text.replace('"rate": 0.1', '"rate": 0.3')],
)
def test_a_damaged_config_is_named_with_what_to_do(settings, damage):
    folder = RunFolder("paper", "run", settings)
    folder.log(step=0)
    config = folder.path / "config.json"
    config.write_text(damage(config.read_text()))
    before = config.read_text()
    with pytest.raises(DataError, match=r"config\.json is damaged.*restore it.*--tag.*delete"):
        RunFolder("paper", "run", settings)
    assert config.read_text() == before
    config.unlink()
    with pytest.raises(DataError, match=r"config\.json does not exist.*restore it"):
        RunFolder("paper", "run", settings)


OPENER = """
import sys, time
from pathlib import Path
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions
from tests.experiments.run_folder.run_settings import Settings, config_of
folder = RunFolder("paper", "run", ExperimentOptions(runs=Path(sys.argv[1])))
folder.log(step=0)
print("held", flush=True)
time.sleep(100)
"""


def open_elsewhere(runs):
    """Open the folder in another process, which holds it until it is killed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([".", *sys.path])}
    command = [sys.executable, "-c", OPENER, str(runs)]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    assert "writes to" in other.stdout.readline()
    return other


def test_two_processes_do_not_write_into_one_folder(tmp_path):
    other = open_elsewhere(tmp_path)
    assert other.stdout.readline() == "held\n"
    mine = ExperimentOptions(runs=tmp_path)
    with pytest.raises(DataError, match=r"paper-run-demo is in use by another process\. .*--tag"):
        RunFolder("paper", "run", mine)
    RunFolder("paper", "run", replace(mine, tag="other"))
    other.kill()
    other.wait()
    assert len((RunFolder("paper", "run", mine).path / "metrics.jsonl").read_text()) > 5


def test_a_folder_that_is_done_with_can_be_opened_by_another_process(tmp_path):
    folder = RunFolder("paper", "run", ExperimentOptions(runs=tmp_path))
    del folder
    gc.collect()
    open_elsewhere(tmp_path).kill()


def test_parts_are_elsewhere_where_others_hold_all_that_is_left(settings):
    folder = RunFolder("paper", "run", settings, shared=True)
    folder.save_part("finished", {})
    names = "finished", "first", "second"
    assert folder.all_claimed_by_others(names) is False
    # The system's lock of a file that is opened again holds against this process too.
    others = [filelock.FileLock(folder.path / "units" / f"{name}.npz.lock") for name in names[1:]]
    others[0].acquire()
    assert folder.all_claimed_by_others(names) is False
    assert folder.claim_part("second")
    assert folder.all_claimed_by_others(names) is False
    folder.release_part("second")
    others[1].acquire()
    assert folder.all_claimed_by_others(names) is True
    assert folder.all_claimed_by_others(names[:1]) is None
