"""Configurations as options, as JSON, and changed by name; what they refuse."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from everlight.checks import UnitInterval
from everlight.continual import Protocol
from everlight_data.errors import DataError
from everlight_data.runs.descriptions import from_json
from everlight_experiments.errors import UsageError
from everlight_experiments.run_folder import config_options
from everlight_experiments.usage import options_by_name


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
    shares: tuple[UnitInterval, ...] = (0.5,)
    folder: Path = Path("there")
    augment: bool = True
    rates: Mapping[str, float] = dataclasses.field(default_factory=dict)
    chosen: tyro.conf.Suppress[str] = "On validation."


@dataclasses.dataclass(frozen=True)
class Command:
    """A command."""

    seeds: int = 3


def test_options_of_a_configuration_stand_beside_those_of_the_command():
    kind = config_options.with_config(Command, Config(most=9))
    result = tyro.cli(kind, args=["--seeds", "2", "--protocol.epochs", "5", "--rate", "1"])
    assert isinstance(result, Command)
    expected = Config(Protocol(epochs=5), Part(rate=1.0), most=9)
    assert (result.seeds, result.config) == (2, expected)
    assert kind.__doc__ == Command.__doc__
    assert tyro.cli(config_options.with_config(Command, Config(), seeds=5), args=[]).seeds == 5


def test_names_of_options_are_those_of_the_command_line():
    names = list(options_by_name(Config()))
    assert {"protocol.epochs", "protocol.batch-size", "steps", "rate", "most"} <= set(names)
    assert {"parts.mid-scale.steps", "parts.mid-scale.rate"} <= set(names)
    assert not {"chosen", "protocol", "unnamed", "parts"} & set(names)
    # The part after the last dot is enough where it has one meaning.
    assert config_options.find_option(names, "epochs") == "protocol.epochs"
    assert config_options.find_option(names, "batch_size") == "protocol.batch-size"
    assert config_options.find_option(names, "rate") == "rate"
    assert config_options.find_option(names, "nothing") == "nothing"


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
    result = config_options.change_config(Config(), changes, "--set")
    assert result == expected
    assert isinstance(result.unnamed.rate, float)
    assert config_options.change_config(Config(), {"epochs": 5}, "--set") == Config(
        Protocol(epochs=5)
    )
    assert config_options.change_config(Config(), {}, "--set") == Config()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": "5"}, r"^no setting of --set 'epoch'; did you mean"),
        ({"chosen": "well"}, r"no setting of --set 'chosen'"),
        ({"parts.large-scale.steps": "2"}, r"did you mean 'parts\.mid-scale\.steps'"),
        ({"epochs": "many"}, r"^--set protocol\.epochs=many: .*; give --protocol\.epochs INT\."),
        ({"epochs": "0"}, r"^--set protocol\.epochs=0: give 1 or more$"),
        ({"rate": "1e999"}, r"^--set rate=1e999: -{2}rate inf; give a finite number$"),
        ({"pair": (3,)}, r"^--set pair=3: --pair has no value; give one\."),
        ({"kind": "cap"}, r"^--set kind=cap: no --kind 'cap'; did you mean coat"),
        ({"shares": ("0.5", "2")}, r"^--set shares=0.5 2: --shares 2\.0; give 0 to 1$"),
        ({"augment": "yes"}, r"^--set augment=yes: no --augment 'yes'.* True"),
        ({"data": (1, 2)}, r"^--set data=1 2: no option '2'\."),
    ],
)
def test_settings_that_cannot_be_changed_are_named(changes, message):
    with pytest.raises(DataError, match=message):
        config_options.change_config(Config(), changes, "--set")


def test_changed_options_make_one_configuration_of_another():
    other = Config(
        Protocol(epochs=3, batch_size=7),
        Part(rate=0.5),
        channels=(1, 2, 3),
        augment=False,
        rates={"EWC": 0.5, "ER": 0.1},
    )
    words = config_options.changed_options(Config(), other)
    assert words == {
        "protocol.batch-size": ["--protocol.batch-size", "7"],
        "rate": ["--rate", "0.5"],
        "channels": ["--channels", "1", "2", "3"],
        "augment": ["--no-augment"],
        "rates": ["--rates", "EWC", "0.5", "ER", "0.1"],
    }
    arguments = [word for item in words.values() for word in item]
    assert tyro.cli(Config, args=arguments, default=Config()) == other


def test_json_gives_back_the_same_configuration():
    kind = config_options.with_config(Command, Config())
    options = kind(config=Config(most=3, folder=Path("a/b"), channels=(1,), shares=(1.0,)))
    stored = json.loads(json.dumps(dataclasses.asdict(options), default=str))
    assert from_json(kind, stored) == options
    with pytest.raises(ValueError, match="epochs"):
        from_json(Config, {"protocol": {"epochs": 0}})


def test_an_option_s_value_is_found_among_arguments():
    assert (
        config_options.option_value(["x", "--preset", "small", "--a_b", "2"], "--preset") == "small"
    )
    assert config_options.option_value(["--preset=paper"], "--preset") == "paper"
    assert config_options.option_value(["x", "--presets", "small"], "--preset") is None
    for words in (["x", "--preset", "--seed", "3"], ["--preset="], ["--preset", ""]):
        with pytest.raises(UsageError, match=r"^--preset has no value; give one\."):
            config_options.option_value(words, "--preset")
    arguments = ["x", "--config", "a.json", "--tag", "b"]
    assert config_options.take_option(arguments, "--config") == "a.json"
    assert arguments == ["x", "--tag", "b"]
