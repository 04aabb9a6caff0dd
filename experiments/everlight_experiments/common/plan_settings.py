"""Any setting of a run's plan from the command line: `--plan.protocol.epochs 5`."""

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_type_hints

import tyro

from everlight_data.errors import DataError
from everlight_experiments.common.settings import RunSettings, check_name, check_value

OPTION = "--plan."
CHOSEN = "chosen"
"""Of a plan, no setting: how its settings were chosen, in words."""
P = TypeVar("P")


@dataclasses.dataclass(frozen=True)
class PlannedRun(RunSettings):
    """Settings of a run whose preset has a plan."""

    plan: tyro.conf.Suppress[dict[str, Any]] = dataclasses.field(default_factory=dict)
    """Settings of the preset's plan by name, as in --plan.protocol.epochs 5; they are written to
    config.json beside the whole plan."""


def take_plan_options(arguments: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The other arguments, and the plan's settings by name, as Python's values where they are.

    Raises:
      DataError: one without a value, or with several that no comma joins.
    """
    rest, found = [], {}
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if not argument.startswith(OPTION):
            rest.append(argument)
            continue
        name, equals, value = argument.removeprefix(OPTION).partition("=")
        if not equals:
            value = left.pop(0) if left else ""
        if not value:
            raise DataError(f"{OPTION}{name} without a value")
        # A text may be the command's own, such as a benchmark's name.
        if left and not isinstance(_value(left[0]), str):
            raise DataError(
                f"{OPTION}{name} {value} {left[0]}: several values of one setting are joined by "
                f"commas, as in {OPTION}{name} {value},{left[0]}"
            )
        found[name.replace("-", "_")] = _value(value)
    return rest, found


def plan_in_force(plan: Any) -> Any:
    """A plan as config.json shows it: its parts and settings by name."""
    named = _fields(plan)
    return {name: plan_in_force(value) for name, value in named.items()} if named else plan


def changed_plan(plan: P, changes: Mapping[str, Any]) -> P:
    """The plan with settings changed by name, those of its parts after a dot.

    Values are Python's, or texts of them: numbers, tuples, None, texts with or without quotes.

    Raises:
      DataError: a setting that there is not, with the nearest ones, or a value of another kind.
    """
    for name, given in changes.items():
        plan = _changed(plan, name.split("."), given, name)
    return _saying_so(plan, list(changes))


def _saying_so(plan: P, names: Sequence[str]) -> P:
    """The plan, whose words of how it was chosen leave out what was given."""
    said = _fields(plan).get(CHOSEN)
    if said is None or not names:
        return plan
    given = ", ".join(name.replace("_", " ") for name in names)
    return _with(plan, CHOSEN, f"Given on the command line: {given}. The rest: {said}")


def _with(part: Any, name: str, value: Any) -> Any:
    if dataclasses.is_dataclass(part):
        return dataclasses.replace(part, **{name: value})
    return part._replace(**{name: value})


def _value(text: Any) -> Any:
    """What a text says in Python, or the text; lists, as JSON has them, are tuples."""
    try:
        value = ast.literal_eval(text) if isinstance(text, str) else text
    except (ValueError, SyntaxError):
        return text
    return tuple(value) if isinstance(value, list) else value


def _changed(part: Any, path: Sequence[str], given: Any, name: str) -> Any:
    first, *rest = path
    fields = {key: value for key, value in _fields(part).items() if key != CHOSEN}
    first = _spelt(part).get(first.replace("-", "_"), first)
    deeper = [f"{key}.{first}" for key, value in fields.items() if _spelt(value).get(first)]
    if first not in fields and deeper:
        meant = " or ".join(OPTION + each for each in deeper)
        raise DataError(f"no setting {OPTION}{name}; did you mean {meant}?")
    check_name(f"setting {OPTION}{name}, at", first, list(fields))
    now = fields[first]
    if rest:
        if not _fields(now):
            raise DataError(f"{OPTION}{name}: {first} has no parts, it is {now!r}")
        value = _changed(now, rest, given, name)
    else:
        value = _read(now, given, name)
        hints = get_type_hints(type(part), include_extras=True)
        check_value(f"{OPTION}{name}", hints.get(first), value)
    if isinstance(part, Mapping):
        return {**part, first: value}
    try:
        return _with(part, first, value)
    except ValueError as error:
        raise DataError(f"{OPTION}{name} {given}: {error}") from error


def _spelt(part: Any) -> dict[str, str]:
    """Its settings by their names as the command line has them; keys of mappings have hyphens."""
    return {key.replace("-", "_"): key for key in _fields(part)}


def _fields(part: Any) -> dict[str, Any]:
    """The settings of a plan or of a part of it; none of a plain value."""
    if isinstance(part, Mapping):
        return dict(part)
    if dataclasses.is_dataclass(part):
        return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return part._asdict() if hasattr(part, "_asdict") else {}


def _read(now: Any, given: Any, name: str) -> Any:
    """What is given as a value of the kind that stands there."""
    value = _value(given)
    if isinstance(now, tuple) and not isinstance(value, tuple):
        value = (value,)
    if isinstance(now, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    # Of what may be None the other kind is not known.
    if now is not None and value is not None and type(value) is not type(now):
        raise DataError(f"{OPTION}{name} {given}; give something like {now!r}")
    if _fields(now):
        raise DataError(f"{OPTION}{name} has parts: {', '.join(_fields(now))}")
    return value
