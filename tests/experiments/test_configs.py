"""Configurations: changed by name, written as options, and read back from JSON and from files."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
import pytest
import tyro

from everlight.continual import Protocol
from everlight_data.errors import DataError
from everlight_experiments.cli import options_of
from everlight_experiments.commands.run import run_benchmark
from everlight_experiments.common.configs import changed, changed_options, from_json
from everlight_experiments.common.settings import Share
from everlight_experiments.continual.config import DIGITS


@dataclasses.dataclass(frozen=True)
class Part:
    steps: int = 7
    rate: float = 0.1


@dataclasses.dataclass(frozen=True)
class Config:
    protocol: Annotated[Protocol, tyro.conf.arg(name="")] = Protocol(epochs=3)
    part: Part = Part()
    channels: tuple[int, ...] = (4, 8)
    rate: float = 0.5
    most: int | None = None
    pair: tuple[int, int] = (1, 2)
    kind: Literal["hat", "coat"] = "hat"
    shares: tuple[Share, ...] = (0.5,)
    grids: tyro.conf.Suppress[Mapping[str, tuple[float, ...]]] = dataclasses.field(
        default_factory=dict
    )


OTHER = Config(
    Protocol(epochs=5, new_optimizer=False), Part(2), (16,), 1.0, 7, (3, 4), "coat", (0.1, 0.2)
)


def test_values_are_changed_by_name_wherever_they_stand():
    changes = {
        "epochs": "5",
        "new-optimizer": False,
        "part.steps": "2",
        "channels": (16,),
        "rate": "1",
        "most": 7,
        "pair": (3, 4),
        "kind": "coat",
        "shares": (0.1, 0.2),
    }
    assert changed(Config(), changes) == OTHER
    assert changed(Config(), {"steps": 2}).part.steps == 2
    assert changed(Config(), {}) == Config()


def test_a_configuration_is_written_as_options_and_read_from_json():
    words = [word for each in changed_options(Config(), OTHER).values() for word in each]
    assert tyro.cli(Config, args=words) == OTHER
    assert changed_options(OTHER, OTHER) == {}
    config = dataclasses.replace(OTHER, grids={"EWC": (1.0, 2.0)})
    assert from_json(Config, json.loads(json.dumps(dataclasses.asdict(config)))) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": "5"}, r"no setting --epoch among .*did you mean 'epochs'"),
        ({"grids": "x"}, r"no setting --grids"),
        ({"epochs": "many"}, r"--epochs many; give something like 3"),
        ({"epochs": "0"}, r"--epochs 0: .*; give 1 or more"),
        ({"rate": "inf"}, r"--rate inf; give a finite number"),
        ({"pair": "3"}, r"--pair 3; give something like \(1, 2\)"),
        ({"kind": "hard"}, r"--kind hard; give something like 'hat'"),
        ({"shares": (0.5, 2)}, r"--shares 2.0; give 1 or less"),
        ({"boundaries": "False"}, r"--boundaries False: select='best' needs boundaries"),
        ({"epochs": "2.5"}, r"give something like 3"),
        ({"part.size": "2"}, r"no setting --part.size"),
    ],
)
def test_what_cannot_be_changed_is_named(changes, message):
    with pytest.raises(DataError, match=message):
        changed(Config(), changes)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"rate": "fast"}, "rate: 'fast' is no float"),
        ({"most": True}, "most: True is no int"),
        ({"channels": 3}, "channels: 3 is no list"),
        ({"part": {"steps": 2.5}}, "part: steps: 2.5 is no int"),
        ({"part": 3}, "part: 3 is no dict"),
        ({"kind": "hard"}, "kind: 'hard' is none of 'hat', 'coat'"),
        ({"pair": [1]}, "pair: "),
        ({"rates": 1.0}, "no option 'rates'; did you mean 'rate'"),
    ],
)
def test_json_of_another_type_is_named(stored, message):
    with pytest.raises((ValueError, DataError), match=message):
        from_json(Config, stored)


TINY = ("digits", "--epochs", "1", "--batch-size", "64", "--tasks", "2", "--methods", "ER")


def test_a_run_is_repeated_from_its_config_json(tmp_path):
    def run(*words):
        report = run_benchmark(options_of("run", [*words, "--runs", str(tmp_path)]))
        with np.load(report.parent / "results.npz") as results:
            return {key: results[key] for key in results if not key.endswith("/seconds")}

    first = run(*TINY, "--seeds", "1", "--buffer-size", "30", "--setting", "online")
    stored = tmp_path / "run-digits-demo" / "config.json"
    again = run("--config", str(stored), "--tag", "again")
    assert first.keys() == again.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(again[name], value)
    # A given value is not said to have been chosen.
    page = (stored.parent / "report.html").read_text()
    assert "Given by the user: tasks, epochs, batch-size, buffer-size. The rest: " in page
    content = json.loads(stored.read_text())
    content["settings"]["config"]["protocol"]["epochs"] = "one"
    stored.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"protocol: epochs: 'one' is no int") as error:
        options_of("run", ["--config", str(stored)])
    assert "\n" not in str(error.value)


def test_a_configuration_of_ones_own_is_a_python_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import replace\n"
        "from everlight_experiments.continual.config import DIGITS\n"
        "MINE = replace(DIGITS, net='mlp:3')\nnumber = 3\n"
    )
    found = options_of("run", ["--config", f"{path}:MINE", "--epochs", "2"])
    assert (found.benchmark, found.config.net) == ("images", "mlp:3")
    assert found.config.protocol.epochs == 2
    assert options_of("run", ["digits", "--config", f"{path}:MINE"]).benchmark == "digits"
    for words, message in (
        ([f"{path}:number"], "is builtins.int; give the config.json of a run"),
        ([f"{path}:MIEN"], "has no 'MIEN'. Did you mean 'MINE'"),
        (["nowhere.json"], "nowhere.json does not exist"),
    ):
        with pytest.raises(DataError, match=message):
            options_of("run", ["--config", *words])
    with pytest.raises(DataError, match=r"continual.config.Config; iirc takes .*iirc"):
        options_of("run", ["iirc", "--config", f"{path}:MINE"])


def test_values_that_exclude_each_other_are_refused_in_one_line():
    with pytest.raises(DataError, match=r"^select='best' needs boundaries"):
        options_of("run", ["icifar", "--no-boundaries"])


def test_a_preset_is_a_configuration_too():
    found = options_of("run", ["--config", "digits", "--seeds", "2"])
    assert (found.benchmark, found.config, found.seeds) == ("digits", DIGITS, 2)
    assert options_of("run", ["--config", "iirc:small"]).preset == "small"
