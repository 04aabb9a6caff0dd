import importlib.metadata
import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from data_pipelines.errors import DataError
from experiments.common.run_folder import RunFolder


@dataclass(frozen=True)
class Settings:
    runs: Path
    scale: str = "demo"
    seed: int = 0
    tag: str = ""
    seeds: tuple[int, ...] = (0, 1)
    rate: float = 0.1


@pytest.fixture
def settings(tmp_path):
    return Settings(tmp_path / "runs")


def config_of(folder):
    return json.loads((folder.path / "config.json").read_text())


def test_the_folder_is_named_by_paper_run_scale_and_tag(settings):
    plain = RunFolder("two_camera", "s20", settings)
    tagged = RunFolder("two_camera", "s20", replace(settings, scale="cpu", tag="night"))
    assert plain.path == settings.runs / "two_camera-s20-demo"
    assert tagged.path == settings.runs / "two_camera-s20-cpu-night"
    assert plain.checkpoints == plain.path / "checkpoints"


def test_config_holds_settings_versions_and_commit(settings):
    folder = RunFolder("paper", "run", settings)
    config = config_of(folder)
    expected = {
        "runs": str(settings.runs),
        "scale": "demo",
        "seed": 0,
        "tag": "",
        "seeds": [0, 1],
        "rate": 0.1,
    }
    assert config["settings"] == expected
    packages = config["made_with"]["packages"]
    assert packages["jax"] == importlib.metadata.version("jax")
    assert {"everlight", "flax", "optax", "numpy", "orbax-checkpoint"} <= set(packages)
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    assert config["made_with"]["commit"] == (git.stdout.strip() or None)
    assert [path.name for path in folder.path.iterdir()] == ["config.json"]


def test_without_git_there_is_a_run_but_no_commit(settings, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert config_of(RunFolder("paper", "run", settings))["made_with"]["commit"] is None


def test_the_same_settings_continue(settings, capsys):
    first = RunFolder("paper", "run", settings)
    first.log(loss=1)
    assert capsys.readouterr().out.startswith(f"writes to {first.path}")
    again = RunFolder("paper", "run", replace(settings, seeds=(0, 1)))
    assert capsys.readouterr().out.startswith(f"goes on in {first.path}")
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


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"rate": 0.2}, r"\(rate: 0\.1 there, 0\.2 now\)"),
        ({"seeds": (0, 1, 2)}, r"\(seeds: \[0, 1\] there, \[0, 1, 2\] now\)"),
        ({"rate": 1.0, "seeds": (5,)}, r"rate: 0\.1 there, 1\.0 now; seeds: .* now\)"),
    ],
)
def test_other_settings_are_refused_by_their_difference(settings, change, difference):
    folder = RunFolder("paper", "run", settings)
    folder.log(step=0)
    before = (folder.path / "config.json").read_text()
    with pytest.raises(DataError, match=rf"paper-run-demo .*{difference}.*--tag"):
        RunFolder("paper", "run", replace(settings, **change))
    assert (folder.path / "config.json").read_text() == before


def test_a_setting_that_came_or_went_is_named(settings):
    @dataclass(frozen=True)
    class Newer(Settings):
        width: int = 9

    RunFolder("paper", "run", settings).log(step=0)
    with pytest.raises(DataError, match="width: None there, 9 now"):
        RunFolder("paper", "run", Newer(settings.runs))


def test_a_run_that_left_nothing_claims_no_folder(settings):
    """As one that was refused for its settings or for missing data."""
    RunFolder("paper", "run", settings)
    folder = RunFolder("paper", "run", replace(settings, rate=0.2))
    assert json.loads((folder.path / "config.json").read_text())["settings"]["rate"] == 0.2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "--seed -1; give 0 or more"),
        ({"tag": "a/b"}, "--tag 'a/b' becomes part of a folder's name"),
        ({"runs": Path("/dev/null/runs")}, "cannot be made .* give another --runs"),
    ],
)
def test_what_makes_no_folder_is_named(settings, change, message):
    with pytest.raises(DataError, match=message):
        RunFolder("two_camera", "s20", replace(settings, **change))


def test_log_lines_are_json_in_order(settings):
    folder = RunFolder("paper", "run", settings)
    folder.log(step=0, loss=np.float32(0.5), split="é\nnew line")
    folder.log(step=np.int64(1), losses=jnp.array([1.0, 2.0]), matrix=np.eye(2))
    folder.log(seconds=np.nan, losses=np.array([1, np.inf]))
    first, second, third = (folder.path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(first) == {"step": 0, "loss": 0.5, "split": "é\nnew line"}
    assert json.loads(second) == {"step": 1, "losses": [1, 2], "matrix": [[1, 0], [0, 1]]}
    assert third == '{"seconds": null, "losses": [1.0, null]}'


def test_results_are_read_without_pickle_to_the_bit(settings, rng):
    errors = rng.normal(size=(3, 4)).astype(np.float32)
    names = np.array(["a", "bc"])
    path = RunFolder("paper", "run", settings).save_results(errors=jnp.asarray(errors), names=names)
    stored = np.load(path, allow_pickle=False)
    np.testing.assert_array_equal(stored["errors"], errors)
    assert stored["errors"].dtype == np.float32
    assert stored["names"].tolist() == ["a", "bc"]
