"""Write the column "default in the command differs in" of `docs/pages/official_code.md`.

python -m docs.tools.make_official_code
"""

import inspect
import math
import re
from pathlib import Path
from typing import Any

from everlight.continual.methods.method import Method, StrategyArguments
from everlight.continual.methods.registry import METHODS
from everlight_experiments.commands.benchmark_registry import default_config
from everlight_experiments.continual.benchmarks.parts import optimizer
from everlight_experiments.images.config import config_of

PAGE = Path(__file__).parents[1] / "pages" / "official_code.md"
COLUMN = "default in the command differs in"
SEPARATOR = re.compile(r"(?<!\\)\|")
UNKNOWN, NONE = "–", "same"


def render(page: str) -> str:
    """Return the page with the column that the registry and the command give."""
    lines, place = page.splitlines(), None
    for number, line in enumerate(lines):
        cells = [cell.strip() for cell in SEPARATOR.split(line)[1:-1]]
        if COLUMN in cells:
            place = cells.index(COLUMN)
        elif place is not None and line.startswith("| ") and len(cells) > place:
            cells[place] = _cell(cells[0].replace("\\*", "*").split(", "))
            lines[number] = f"| {' | '.join(cells)} |"
    return "\n".join(lines) + "\n"


def _cell(names: list[str]) -> str:
    """Return the cell of a row of the page, which may have several methods."""
    names_of: dict[str, list[str]] = {}
    for name in names:
        if name in METHODS:
            names_of.setdefault(differences(METHODS[name]), []).append(name.replace("*", "\\*"))
    if len(names_of) < 2:
        return next(iter(names_of), UNKNOWN)
    parts = [f"{', '.join(same)}: {text}" for text, same in names_of.items() if text != UNKNOWN]
    return ". ".join(parts)


def differences(method: Method) -> str:
    """Return the values of a method that the command's defaults do not share with its authors.

    A hyper-parameter that the command selects is equal where the authors' value is a candidate.
    """
    if not method.authors:
        return UNKNOWN
    defaults = command_values(method)
    if unknown := sorted({*method.authors} - {*defaults}):
        raise ValueError(f"{method.name} has no {', '.join(unknown)} of the authors' values")
    parts = []
    for name, authors_value in method.authors.items():
        default = defaults[name]
        if default != authors_value and not (
            isinstance(default, tuple) and authors_value in default
        ):
            word = f"`{name}`" if name in inspect.signature(method.factory).parameters else name
            parts.append(f"{word} {_text(default)} (authors: {_text(authors_value)})")
    return "; ".join(parts) or NONE


def command_values(method: Method) -> dict[str, Any]:
    """Return what `everlight run images` uses by default: arguments and settings by name."""
    config = config_of(default_config("images"), method)
    protocol = config.protocol
    implicit = optimizer(config.optimizer, config.learning_rate).implicit_rate
    arguments = StrategyArguments(
        tasks=config.number_of_tasks,
        classes=2 * config.number_of_tasks,
        exemplars_per_class=config.exemplars_per_class,
        implicit_rate=implicit,
        replay_batch_size=config.replay_batch_size,
        buffer_size=config.buffer_size,
    )
    takes = inspect.signature(method.factory).parameters
    values = method.arguments(arguments)
    mark = math.nan
    row_values = method.row_arguments(arguments._replace(hyperparameter=mark))
    values |= {name: method.hyperparameters for name, value in row_values.items() if value is mark}
    if "replay_batch_size" in takes:
        values.setdefault("replay_batch_size", protocol.batch_size)
    pretrained = "pretrained transformer" in method.requirements
    return values | {
        "batch size": protocol.batch_size,
        "epochs per task": protocol.epochs,
        "optimizer": config.optimizer.replace(":", " with ").replace("=", " "),
        "optimizer at a new task": "restarts" if protocol.new_optimizer else "continues",
        "learning rate": config.learning_rate,
        "penalty's step": "implicit" if "implicit_rate" in takes and implicit else "explicit",
        "network": "pretrained" if pretrained else "drawn at random",
        "features": "the inputs",
    }


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " or ".join(map(_text, value))
    if isinstance(value, bool | str):
        return str(value)
    if value >= 1:
        return f"{value:,.15g}"
    return f"{value:g}".replace("e-0", "e-")


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
