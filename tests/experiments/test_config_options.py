"""Configurations as options, as JSON, and changed by name; what they refuse."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from everlight.continual import Protocol
from everlight_data.errors import DataError
from everlight_data.runs.descriptions import from_json
from everlight_experiments.run_folder.config_options import (
    changed,
    changed_options,
    full_name,
    option_value,
    options_by_name,
    with_config,
)
from everlight_experiments.run_folder.settings import Share


@dataclasses.dataclass(frozen=True)
class Part:
    steps: int = 7
    rate: float = 0.1


@dataclasses.dataclass(frozen=True)
class Config:
    protocol: Protocol = dataclasses.field(default_factory=lambda: Protocol(epochs=3))
    unnamed: Annotated[Part, tyro.conf.arg(name="")] = Part(rate=0.2)
    parts: Mapping[str, Part] = dataclasses.field(default_factory=lambda: {"mid-scale": Part()})
    channels: tuple[int, ...] = (4, 8)
    data: str = "procedural"
    most: int | None = None
    pair: tuple[int, int] = (1, 2)
    kind: Literal["hat", "coat"] = "hat"
    shares: tuple[Share, ...] = (0.5,)
    folder: Path = Path("there")
    augment: bool = True
    chosen: tyro.conf.Suppress[str] = "On validation."


@dataclasses.dataclass(frozen=True)
class Command:
    """A command."""

    seeds: int = 3


def test_options_of_a_configuration_stand_beside_those_of_the_command():
    kind = with_config(Command, Config(most=9))
    found = tyro.cli(kind, args=["--seeds", "2", "--protocol.epochs", "5", "--rate", "1"])
    assert isinstance(found, Command)
    expected = Config(Protocol(epochs=5), Part(rate=1.0), most=9)
    assert (found.seeds, found.config) == (2, expected)
    assert kind.__doc__ == Command.__doc__


def test_names_of_options_are_those_of_the_command_line():
    names = list(options_by_name(Config()))
    assert {"protocol.epochs", "protocol.batch-size", "steps", "rate", "most"} <= set(names)
    assert {"parts.mid-scale.steps", "parts.mid-scale.rate"} <= set(names)
    assert not {"chosen", "protocol", "unnamed", "parts"} & set(names)
    # The part after the last dot is enough where it has one meaning.
    assert full_name(names, "epochs") == "protocol.epochs"
    assert full_name(names, "batch_size") == "protocol.batch-size"
    assert full_name(names, "rate") == "rate"
    assert full_name(names, "nothing") == "nothing"


def test_values_are_changed_wherever_they_stand():
    changes = {
        "protocol.epochs": "5",
        "rate": "1",
        "parts.mid-scale.steps": "2",
        "channels": (16,),
        "data": "cifar100",
        "most": "7",
        "shares": ("0.1", 1),
        "augment": False,
    }
    expected = Config(
        Protocol(epochs=5),
        Part(rate=1.0),
        {"mid-scale": Part(2)},
        (16,),
        "cifar100",
        7,
        shares=(0.1, 1.0),
        augment=False,
    )
    found = changed(Config(), changes)
    assert found == expected
    assert isinstance(found.unnamed.rate, float)
    assert changed(Config(), {"epochs": 5}) == Config(Protocol(epochs=5))
    assert changed(Config(), {}) == Config()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": "5"}, r"^no setting of -- 'epoch'; did you mean"),
        ({"protocol.epoch": "5"}, r"did you mean .*'protocol\.epochs'"),
        ({"chosen": "well"}, r"no setting of -- 'chosen'"),
        ({"protocol": "5"}, r"no setting of -- 'protocol'"),
        ({"parts.large-scale.steps": "2"}, r"did you mean 'parts\.mid-scale\.steps'"),
        ({"protocol.epochs": "many"}, r"--protocol\.epochs many; give something like 3"),
        ({"protocol.epochs": "2.5"}, r"--protocol\.epochs 2\.5; give something like 3"),
        ({"protocol.epochs": "0"}, r"--protocol\.epochs 0; give something like 3"),
        ({"rate": "high"}, r"--rate high; give something like 0\.2"),
        ({"rate": "1e999"}, r"--rate inf; give a finite number"),
        ({"pair": (3,)}, r"--pair 3; give something like \(1, 2\)"),
        ({"kind": "hard"}, r"--kind hard; give something like 'hat'"),
        ({"shares": ("0.5", "2")}, r"--shares 2\.0; give 1 or less"),
    ],
)
def test_what_cannot_be_changed_is_named(changes, message):
    with pytest.raises(DataError, match=message):
        changed(Config(), changes)


def test_an_option_is_named_as_the_caller_writes_it():
    with pytest.raises(DataError, match=r"^--set digits\.data 1 2; give something like"):
        changed(Config(), {"data": (1, 2)}, "--set digits.")
    with pytest.raises(DataError, match=r"^no setting of --set 'dat'; did you mean 'data'"):
        changed(Config(), {"dat": 1}, "--set digits.")


def test_changed_options_make_one_configuration_of_another():
    other = Config(
        Protocol(epochs=3, batch_size=7), Part(rate=0.5), channels=(1, 2, 3), augment=False
    )
    words = changed_options(Config(), other)
    assert words == {
        "protocol.batch-size": ["--protocol.batch-size", "7"],
        "rate": ["--rate", "0.5"],
        "channels": ["--channels", "1", "2", "3"],
        "augment": ["--no-augment"],
    }
    arguments = [word for each in words.values() for word in each]
    assert tyro.cli(Config, args=arguments, default=Config()) == other


def test_json_gives_back_the_same_configuration():
    kind = with_config(Command, Config())
    options = kind(config=Config(most=3, folder=Path("a/b"), channels=(1,), shares=(1.0,)))
    stored = json.loads(json.dumps(dataclasses.asdict(options), default=str))
    assert from_json(kind, stored) == options
    with pytest.raises(ValueError, match="epochs"):
        from_json(Config, {"protocol": {"epochs": 0}})


def test_an_option_s_value_is_found_among_arguments():
    assert option_value(["x", "--preset", "small"], "--preset") == "small"
    assert option_value(["--preset=paper"], "--preset") == "paper"
    assert option_value(["x", "--preset"], "--preset") is None
