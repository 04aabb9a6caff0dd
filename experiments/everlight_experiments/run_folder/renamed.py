"""Commands, options and values of the command line that have new names; each refusal names it."""

import dataclasses
import re
from collections.abc import Sequence

from everlight_data.errors import DataError

RENAMED = {
    "tour": "demo",
    "plan": "cost",
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
    "--exemplars": "--exemplars-per-class",
    "--images": "--data",
    "--rate": "--learning-rate",
    "--scale": "--preset",
    "--scenario": "--setting",
    "--strengths": "--hyperparameters",
    "--tuning-orders": "--validation-seeds",
    "--preset cpu": "--preset small",
    "--benchmarks cpu": "--benchmarks BENCHMARK:small",
    "--setting told": "--setting task-incremental",
    "--setting not-told": "--setting class-incremental",
    "--vary exemplars": "--vary exemplars-per-class",
    "--vary rate": "--vary learning-rate",
    "--vary rates": "--vary learning-rates",
    "--vary strengths-tried": "--vary hyperparameters-tried",
    "--vary blocks": "--vary net",
}
"""New names by old ones: of commands, of options, and of an option's values or settings."""
PLAN = "--plan."
"""Former beginning of a configuration's options, which are options of their own now."""


def refuse_old_command(arguments: Sequence[str]) -> None:
    """Refuse a command by its former name.

    Raises:
      DataError: the new name.
    """
    for words in (1, 2):
        asked = " ".join(arguments[:words]).replace("-", "_")
        if asked in RENAMED:
            raise DataError(f"everlight {asked} is now everlight {RENAMED[asked]}")


def refuse_old_names(arguments: Sequence[str], kind: type) -> None:
    """Refuse options and values by their old names.

    Args:
      arguments: of the command line, after the command's name.
      kind: dataclass of the command, whose own options are never refused.

    Raises:
      DataError: the new name.
    """
    own = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(kind)}
    option = ""
    for argument in arguments:
        value = argument
        if argument.startswith("--"):
            word, _, value = argument.partition("=")
            option = word.replace("_", "-")
            if option in RENAMED and option not in own:
                raise DataError(f"{option} is now {RENAMED[option]}")
            if option.startswith(PLAN):
                before, dot, last = option.removeprefix(PLAN).rpartition(".")
                last = RENAMED.get(f"--vary {last}", last).removeprefix("--vary ")
                new = f"--set {before}{dot}{last}=VALUE" if "--set" in own else f"--{last}"
                raise DataError(f"{word} is now {new}")
        # A value may be PART.NAME=VALUE or BENCHMARK:PRESET.
        name = re.split("[.:]", value.partition("=")[0])[-1].replace("_", "-")
        old = f"{option} {name}"
        if old in RENAMED:
            raise DataError(f"{option} {value} is now {RENAMED[old]}")
