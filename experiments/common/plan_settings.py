"""Any setting of a run's plan from the command line: `--plan.protocol.epochs 5`."""

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from data_pipelines.errors import DataError
from experiments.common.settings import RunSettings, check_name

OPTION = "--plan."
P = TypeVar("P")


@dataclasses.dataclass(frozen=True)
class PlannedRun(RunSettings):
    """Settings of a run whose scale has a plan."""

    plan: dict[str, str] = dataclasses.field(default_factory=dict)
    """Any setting of the scale's plan by its name, as in --plan.protocol.epochs 5; they stand in
    config.json."""


def take_plan_options(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The other arguments, and the plan's settings by name.

    Raises:
      DataError: one without a value.
    """
    rest, found = [], {}
    following = iter(arguments)
    for argument in following:
        if not argument.startswith(OPTION):
            rest.append(argument)
            continue
        name, equals, value = argument.removeprefix(OPTION).partition("=")
        if not equals:
            value = next(following, "")
        if not value:
            raise DataError(f"{OPTION}{name} without a value")
        found[name.replace("-", "_")] = value
    return rest, found


def changed_plan(plan: P, changes: Mapping[str, str]) -> P:
    """The plan with settings changed by name, those of its parts after a dot.

    Values are Python's: numbers, tuples, None, texts with or without quotes.

    Raises:
      DataError: a setting that there is not, with the nearest ones, or a value of another kind.
    """
    for name, text in changes.items():
        plan = _changed(plan, name.split("."), text, name)
    return plan


def _changed(part: Any, path: Sequence[str], text: str, name: str) -> Any:
    first, *rest = path
    fields = _fields(part)
    check_name(f"setting {OPTION}{name}, at", first, list(fields))
    now = fields[first]
    if rest:
        if not _fields(now):
            raise DataError(f"{OPTION}{name}: {first} has no parts, it is {now!r}")
        value = _changed(now, rest, text, name)
    else:
        value = _read(now, text, name)
    if isinstance(part, Mapping):
        return {**part, first: value}
    try:
        if dataclasses.is_dataclass(part):
            return dataclasses.replace(part, **{first: value})
        return part._replace(**{first: value})
    except ValueError as error:
        raise DataError(f"{OPTION}{name} {text}: {error}") from error


def _fields(part: Any) -> dict[str, Any]:
    """The settings of a plan or of a part of it; none of a plain value."""
    if isinstance(part, Mapping):
        return dict(part)
    if dataclasses.is_dataclass(part):
        return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return part._asdict() if hasattr(part, "_asdict") else {}


def _read(now: Any, text: str, name: str) -> Any:
    """The text as a value of the kind that stands there."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    if isinstance(now, tuple) and not isinstance(value, tuple):
        value = (value,)
    if isinstance(now, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    # Of what may be None the other kind is not known.
    if now is not None and value is not None and type(value) is not type(now):
        raise DataError(f"{OPTION}{name} {text}; give something like {now!r}")
    if _fields(now):
        raise DataError(f"{OPTION}{name} has parts: {', '.join(_fields(now))}")
    return value
