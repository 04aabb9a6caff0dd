"""Options of runs, and the bounds that their types state."""

import math
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from everlight.checks import Between, NotEmpty, check_fields
from everlight.errors import Argument, ArgumentError
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_experiments.usage import name_options

Preset = Literal["demo", "small", "paper"]
ProtocolPreset = Literal["der", "ocl", "three-scenarios"]
TEXTS = ("chosen", "features_chosen")
"""Fields of configurations that state for the report how values were chosen."""
LARGEST = 2**31 - 1
"""Largest integer of an array on the device."""
Seed = Annotated[int, Between(0, LARGEST)]
"""Random seed: keys are made of 32 bits, and runs count up from it."""
Count = Annotated[int, Between(1, 1_000_000)]
"""Number of runs, samples or draws."""
Counts = Annotated[tuple[Count, ...], NotEmpty]
"""One count or more."""
Rate = Annotated[float, Between(1e-9, 100)]
"""Learning rate of an optimizer."""
Bytes = Annotated[int, Between(1, 2**50)]
"""Bytes of memory."""
Distributed = Annotated[
    str | None,
    tyro.conf.arg(
        help="Make this process one of several that share a run. Give cluster under Slurm, Open "
        "MPI, Kubernetes or Cloud TPU. Elsewhere give NUMBER/PROCESSES@HOST:PORT, as in "
        "0/2@10.0.0.1:1234, with the address of process 0. None is a run of one process."
    ),
]
"""Option of the commands whose runs several processes can share."""


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """Options of every command that writes a folder with a report."""

    run_selectors: ClassVar[tuple[str, ...]] = ()
    """Fields that select parts of a run, such as its seeds, and change none of them. Their values
    may differ from those of the first start."""
    paths: ClassVar[tuple[str, ...]] = ()
    """Fields with paths, which a later start may spell otherwise, such as relatively."""
    tag: str = ""
    """Suffix added to the name of the run's folder."""
    runs: Path = Path("runs")
    """Folder in which run folders are created."""

    def __post_init__(self):
        check_options(self)
        if "\0" in str(self.runs):
            raise DataError(f"--runs {str(self.runs)!a} is not the name of a folder; leave out NUL")
        if Path(self.tag).name != self.tag or not self.tag.isprintable():
            raise DataError(
                f"--tag {self.tag!a} becomes part of a folder's name; leave out / and what cannot "
                "be printed"
            )


@dataclass(frozen=True)
class ExperimentOptions(FolderOptions):
    """Options of every run."""

    preset: Preset = "demo"
    """Size of the experiment: demo, small or paper. The first takes minutes and needs no data,
    small is for two cores, and paper has the paper's own settings."""
    seed: Seed = 0
    """Random seed of data, initialization and training. A run of several seeds counts up from
    it."""


def check_options(options: Any, before: str = "") -> None:
    """Refuse values outside the bounds of a field's type, by the name of its option.

    Args:
      options: dataclass instance; dataclasses in its fields, and in their mappings and tuples, are
        checked too.
      before: text before a field's name on the command line, such as `mid-scale.`.

    Raises:
      DataError: the message names the option and its allowed values.
    """
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    hints = typing.get_type_hints(type(options), include_extras=True)
    for value in values.values():
        for key, part in _dataclasses_of(value):
            check_options(part, f"{before}{key}.".replace("_", "-") if key else before)
    try:
        check_fields(options)
        for name, value in values.items():
            _check_value(name, value, hints[name])
    except ArgumentError as error:
        names = [f"{before}{name}".replace("_", "-") for name in values]
        raise DataError(name_options(error, names)) from error


def _dataclasses_of(value: Any) -> list[tuple[str, Any]]:
    """Return the dataclasses of a field's value, with their keys if it is a mapping."""
    if isinstance(value, Mapping):
        parts = list(value.items())
    else:
        parts = [("", part) for part in (value if isinstance(value, tuple) else (value,))]
    return [(key, part) for key, part in parts if is_dataclass(part)]


def _check_value(name: str, value: Any, hint: Any) -> None:
    """Refuse what a type does not exclude: numbers too large for the device, and no name at all."""
    parts = list(_parts(hint))
    names = [part for part in parts if isinstance(part, str)]
    if value == () and names:
        raise ArgumentError(
            Argument(name, ()), " has no name", remedy=(f"there are {', '.join(names)}",)
        )
    if value == () and NotEmpty in parts:
        raise ArgumentError(
            Argument(name, ()), " has no number", remedy=("give one or leave out the option",)
        )
    is_bounded = any(isinstance(part, Between) and part.maximum < math.inf for part in parts)
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, int) and number > LARGEST and not is_bounded:
            raise ArgumentError(Argument(name, number), remedy=(f"give {LARGEST:,} or less",))
        if isinstance(number, float) and not math.isfinite(number):
            raise ArgumentError(Argument(name, number), remedy=("give a finite number",))


def _parts(hint: Any) -> Iterator[Any]:
    """Yield a type and all parts of it: bounds, and the names that it is written out with."""
    yield hint
    for part in typing.get_args(hint):
        yield from _parts(part)


def refuse_unread(
    options: Any,
    readers: Mapping[str, str],
    variants: Collection[str],
    description: str,
    default: Any = None,
) -> None:
    """Refuse options that another variant of the command reads, and this one would ignore.

    Args:
      options: dataclass instance.
      readers: variants that read an option, in words, by field; others are read by all.
      variants: those of these words that hold for this one.
      description: clause that names this variant, for messages.
      default: values that are not the user's; None is the defaults of the options' class.

    Raises:
      DataError: which option, and the variants that read it.
    """
    default = type(options) if default is None else default
    for name, reader in readers.items():
        if reader not in variants and getattr(options, name) != getattr(default, name):
            raise DataError(f"--{name.replace('_', '-')} is for {reader}, and {description}")


def in_words(values: Any) -> str:
    """Return a mapping's or a dataclass's values by name, without None, as a report shows them."""
    by_name = values if isinstance(values, Mapping) else vars(values)
    return ", ".join(
        f"{name.replace('_', ' ')} {_shown(value)}"
        for name, value in by_name.items()
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


def check_methods(selected: Sequence[str] | None, known: Iterable[str]) -> None:
    """Refuse unknown names of methods, and an option without names; None is allowed."""
    if selected is None:
        return
    names = list(known)
    if not selected:
        raise DataError(f"--methods without a name; there are {', '.join(map(repr, names))}")
    for name in selected:
        parts = name.split(",")
        if name not in names and set(parts) <= {*names}:
            raise DataError(f"--methods {name}: separate names by spaces, as in {' '.join(parts)}")
        check_name("method", name, names)
