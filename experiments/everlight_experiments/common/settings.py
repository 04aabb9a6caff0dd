"""Settings of runs, and the bounds that their types state."""

import difflib
import math
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from everlight.checks import Between
from everlight_data.errors import DataError

Preset = Literal["demo", "small", "paper"]


Seed = Annotated[int, Between(0, 2**31 - 1)]
"""Random seed: keys are made of 32 bits, and runs count up from it."""
Count = Annotated[int, Between(1, 1_000_000)]
"""Number of runs, samples or draws."""
Rate = Annotated[float, Between(1e-9, 100)]
"""Learning rate of an optimizer."""
Share = Annotated[float, Between(0, 1)]
Bytes = Annotated[int, Between(1, 2**50)]
"""Bytes of memory."""


@dataclass(frozen=True, kw_only=True)
class FolderSettings:
    """Settings of every command that writes a folder with a report."""

    tag: str = ""
    """Suffix added to the name of the run's folder."""
    runs: Path = Path("runs")
    """Folder in which run folders are created."""

    def __post_init__(self):
        check_settings(self)


@dataclass(frozen=True)
class RunSettings(FolderSettings):
    """The settings that every run has; a run's own extend them and give `preset` its default."""

    preset: Preset = "demo"
    """Size of the experiment: demo takes minutes and needs no data, small is for two cores, paper
    has the paper's own settings."""
    seed: Seed = 0
    """Random seed of data, initialization and training; a run of several seeds counts up from
    it."""
    distributed: str | None = None
    """Make this process one of several that train one run together. Give cluster under Slurm,
    Open MPI, Kubernetes or Cloud TPU. Elsewhere give NUMBER/PROCESSES@HOST:PORT, as in
    0/2@10.0.0.1:1234, with the address of process 0. None is a run of one process."""


def check_settings(settings: Any) -> None:
    """Refuses what lies outside the bounds of a field's type, and what makes no folder's name.

    Raises:
      DataError: which option, and what it may be.
    """
    _check_fields(settings, "--")
    tag = getattr(settings, "tag", "")
    if Path(tag).name != tag or not tag.isprintable():
        raise DataError(
            f"--tag {tag!a} becomes part of a folder's name; leave out / and what cannot be printed"
        )


def _check_fields(settings: Any, before: str) -> None:
    hints = typing.get_type_hints(type(settings), include_extras=True)
    for field in fields(settings):
        value, option = getattr(settings, field.name), before + field.name.replace("_", "-")
        if is_dataclass(value):
            _check_fields(value, before)
            continue
        check_value(option, hints[field.name], value)
        names = _find(hints[field.name], _literals, str)
        if value == () and names:
            raise DataError(f"{option} without a name; there are {', '.join(names)}")


def check_bounds(option: str, hint: Any, value: Any) -> None:
    """Refuses a number outside the bounds of its type.

    Raises:
      DataError: what it may be.
    """
    bounds = _find(hint, lambda each: getattr(each, "__metadata__", ()), Between)
    if bounds and value is not None:
        for each in value if isinstance(value, tuple) else (value,):
            _check_number(option, each, bounds[0])


def check_value(option: str, hint: Any, value: Any) -> None:
    """Refuses what a type that is written out does not allow, where nobody else has looked.

    Raises:
      DataError: a number outside its bounds or infinite, a name that is none of its, more or fewer
        values than it has.
    """
    check_bounds(option, hint, value)
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"{option} {value}; give a finite number")
    names = _find(hint, _literals, str)
    if isinstance(value, str) and names:
        check_name(f"value {option}", value, names)
    parts = typing.get_args(hint) if typing.get_origin(hint) is tuple else ()
    if parts and Ellipsis not in parts and isinstance(value, tuple) and len(parts) != len(value):
        raise DataError(f"{option} {value}; give {len(parts)} values")


def in_words(settings: Any) -> str:
    """A dataclass's fields by name, as a report shows them; what is None is left out."""
    return said_in_words({field.name: getattr(settings, field.name) for field in fields(settings)})


def said_in_words(values: Mapping[str, Any]) -> str:
    """Values by name, as a report shows them; what is None is left out."""
    return ", ".join(
        f"{name.replace('_', ' ')} {_shown(value)}"
        for name, value in values.items()
        if value is not None
    )


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(map(_shown, value))
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _check_number(option: str, value: float, bounds: Between) -> None:
    # Written so that NaN is refused.
    if not value >= bounds.least:
        raise DataError(f"{option} {value}; give {bounds.least:g} or more")
    if not value <= bounds.most:
        raise DataError(f"{option} {value}; give {bounds.most:,} or less")


def _literals(hint: Any) -> tuple:
    return typing.get_args(hint) if typing.get_origin(hint) is Literal else ()


def _find(hint: Any, look: Any, kind: type) -> list[Any]:
    """Return all parts of one kind anywhere in a type."""
    found = [each for each in look(hint) if isinstance(each, kind)]
    for argument in typing.get_args(hint):
        found += _find(argument, look, kind)
    return found


def check_methods(asked: Sequence[str] | None, known: Iterable[str]) -> None:
    """Refuses names of methods that there are not, and an option without any.

    Raises:
      DataError: which, the nearest ones, and what there is.
    """
    if asked is None:
        return
    names = list(known)
    if not asked:
        raise DataError(f"--methods without a name; there are {', '.join(map(repr, names))}")
    for name in asked:
        check_name("method", name, names)


def check_name(what: str, name: str, known: Sequence[str]) -> None:
    """Refuses a name that there is not.

    Raises:
      DataError: with the nearest ones, and all that there are.
    """
    if name not in known:
        near = nearest_names(name, known)
        meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
        raise DataError(f"no {what} {name!a}{meant} There are {', '.join(map(repr, known))}.")


def nearest_names(name: str, known: Sequence[str]) -> list[str]:
    """Those that a name was probably meant for, at most three, the nearest first."""
    plain = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(name.casefold(), plain, n=3, cutoff=0.5)
    return [plain[each] for each in close]
