"""Options and values of the command line that have new names, each refused with the new one."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from everlight_data.errors import DataError
from everlight_experiments.common.configs import full_name, option_names

OPTIONS = {
    "--exemplars": "--exemplars-per-class",
    "--images": "--data",
    "--rate": "--learning-rate",
    "--scale": "--preset",
    "--scenario": "--setting",
    "--strengths": "--hyperparameters",
    "--tuning-orders": "--validation-seeds",
}
VALUES = {
    "--preset": {"cpu": "small"},
    "--setting": {"told": "task-incremental", "not-told": "class-incremental"},
}
SETTINGS = {
    "exemplars": "exemplars-per-class",
    "rate": "learning-rate",
    "rates": "learning-rates",
    "strengths-tried": "hyperparameters-tried",
    "blocks": "net",
}
"""Last parts of names after the former `--plan.` and of `--vary`."""


COMMANDS = {
    "everlight tour": "demo",
    "everlight plan": "cost",
    "continual run": "run",
    "continual digits": "run digits",
    "continual grid": "grid",
    "continual tune": "tune",
    "cl_metrics icifar": "paper cl-metrics",
    "iirc benchmark": "paper iirc",
    "core50 batches": "paper core50",
    "core50 static": "paper core50-static",
    "facts lifelong": "paper facts",
    "reports": "report",
    "two_camera radiometric": "paper two-camera --preset rendered-demo",
    "two_camera nus": "paper two-camera --preset nus-small",
    "two_camera s20": "paper two-camera --preset s20-small",
    "two_camera unseen": "paper two-camera --preset unseen-small",
    "two_camera dataset": "illuminant dataset",
    "two_camera calibrate": "illuminant calibrate",
    "two_camera estimate": "illuminant estimate",
}
"""Commands by their former names."""


def refuse_old_command(arguments: Sequence[str]) -> None:
    """Refuse a command by its former name.

    Raises:
      DataError: the new name.
    """
    for words in (1, 2):
        asked = " ".join(arguments[:words]).replace("-", "_")
        if asked in COMMANDS:
            raise DataError(f"everlight {asked} is now everlight {COMMANDS[asked]}")


def refuse_old_names(arguments: Sequence[str], kind: type) -> None:
    """Refuse options and values by their old names.

    Args:
      arguments: of the command line, after the command's name.
      kind: dataclass of the command, whose own options are never refused.

    Raises:
      DataError: the new name.
    """
    own = {f"--{field.name.replace('_', '-')}": field.default for field in dataclasses.fields(kind)}
    option = ""
    for word, value in _words(arguments):
        if word.startswith("--plan."):
            _refuse_plan(word, "--set" in own, own.get("--config"))
        elif word:
            option = word.replace("_", "-")
            if option in OPTIONS and option not in own:
                raise DataError(f"{option} is now {OPTIONS[option]}")
        if value in VALUES.get(option, ()):
            raise DataError(f"{option} {value}: give {VALUES[option][value]}")
        if option == "--benchmarks" and ":" in value:
            benchmark, _, preset = value.partition(":")
            if preset in VALUES["--preset"]:
                raise DataError(f"{option} {value}: give {benchmark}:{VALUES['--preset'][preset]}")
        if option == "--vary" and "=" in value:
            name = value.partition("=")[0]
            if _renamed(name) != name.replace("_", "-"):
                raise DataError(f"--vary {name} is now --vary {_renamed(name)}")


def _refuse_plan(word: str, is_grid: bool, config: Any) -> None:
    """Refuse the former options `--plan.NAME`, which are options of their own now.

    Raises:
      DataError: the new name.
    """
    new = _renamed(word.removeprefix("--plan."))
    if is_grid:
        raise DataError(f"{word} is now --set {new}=VALUE")
    if dataclasses.is_dataclass(config):
        # A part's options may stand without its name.
        names = option_names(config)
        new = new if new in names else full_name(names, new.rpartition(".")[2])
    raise DataError(f"{word} is now --{new}")


def _words(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield an option and the value joined to it, or a value alone."""
    for argument in arguments:
        if argument.startswith("--"):
            word, _, value = argument.partition("=")
            yield word, value
        else:
            yield "", argument


def _renamed(name: str) -> str:
    """Return the new name of a setting, whose parts are joined by dots."""
    before, dot, last = name.replace("_", "-").rpartition(".")
    return f"{before}{dot}{SETTINGS.get(last, last)}"
