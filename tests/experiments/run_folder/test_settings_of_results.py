"""Options that select a run's seeds: config.json has those of the start that wrote the results."""

import json
from dataclasses import replace

import filelock
import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.runs.descriptions import json_checksum
from everlight_experiments.run_folder import folder as folder_module
from everlight_experiments.run_folder.folder import RunFolder
from tests.experiments.run_folder.run_settings import Settings, config_of


class SeedsSelectRuns(Settings):
    run_selectors = ("seeds",)


@pytest.fixture
def settings(tmp_path):
    return Settings(runs=tmp_path / "runs")


def test_settings_that_only_widen_a_run_may_differ_and_the_newest_are_recorded(settings):
    selecting = SeedsSelectRuns(runs=settings.runs)
    RunFolder("paper", "run", selecting).log(step=0)
    wider = replace(selecting, seeds=(0, 1, 2))
    folder = RunFolder("paper", "run", wider)
    assert config_of(folder)["settings"]["seeds"] == [0, 1, 2]
    with pytest.raises(DataError, match=r"other settings \(rate: stored 0\.1, now 0\.2\)"):
        RunFolder("paper", "run", replace(wider, rate=0.2))
    # Options that do not state so are compared.
    with pytest.raises(DataError, match=r"\(seeds: stored \[0, 1, 2\], now \[0, 1\]\)"):
        RunFolder("paper", "run", settings)


def test_a_kill_leaves_no_results_beside_the_settings_of_another_start(settings, monkeypatch):
    selecting = SeedsSelectRuns(runs=settings.runs)
    RunFolder("paper", "run", selecting, shared=True).save_results(scores=np.zeros(2))
    wider = RunFolder("paper", "run", replace(selecting, seeds=(0, 1, 2)), shared=True)

    def kill(*arguments, **arrays):
        raise InterruptedError

    monkeypatch.setattr(folder_module, "save_sealed", kill)
    with pytest.raises(InterruptedError):
        wider.save_results(scores=np.zeros(3))
    assert config_of(wider)["settings"]["seeds"] == [0, 1, 2]
    assert not (wider.path / "results.npz").exists()


def test_results_have_the_settings_of_the_start_that_wrote_them(settings):
    """A later start may be refused or stopped before it replaces the results."""
    selecting = SeedsSelectRuns(runs=settings.runs)
    folder = RunFolder("paper", "run", selecting, shared=True)
    folder.save_results(scores=np.zeros(2))
    made_with = config_of(folder)["made_with"] | {"commit": "of the results"}
    config = folder.path / "config.json"
    config.write_text(json.dumps(config_of(folder) | {"made_with": made_with}))
    wider = RunFolder("paper", "run", replace(selecting, seeds=(0, 1, 2)), shared=True)
    wider.record_method_arguments("ER", {"per_class": 5})
    assert config_of(folder)["settings"]["seeds"] == [0, 1]
    assert config_of(folder)["made_with"] == made_with
    assert "methods" not in config_of(folder)
    wider.save_results(scores=np.zeros(3))
    assert config_of(folder)["settings"]["seeds"] == [0, 1, 2]
    assert config_of(folder)["made_with"]["commit"] != "of the results"
    assert config_of(folder)["methods"] == {"ER": {"per_class": 5}}
    # The first process ends last.
    folder.save_results(scores=np.zeros(2))
    content = config_of(folder)
    assert content["settings"]["seeds"] == [0, 1]
    assert content["crc32"] == json_checksum(content["settings"])
    assert content["methods"] == {"ER": {"per_class": 5}}


def test_a_start_beside_another_process_says_whose_report_will_stay(settings, capsys):
    folder = RunFolder("paper", "run", settings, shared=True)
    folder.save_part("finished", {})
    # The system's lock of a file that is opened again holds against this process too.
    other = filelock.FileLock(folder.path / "units" / "first.npz.lock")
    with other.acquire():
        RunFolder("paper", "run", settings, shared=True)
        assert "another process" not in capsys.readouterr().out
        selecting = SeedsSelectRuns(runs=settings.runs)
        RunFolder("paper", "run", selecting, shared=True)
        line = next(line for line in capsys.readouterr().out.splitlines() if "another" in line)
    assert line.endswith("will be those of the process that ends last, with its own seeds")
