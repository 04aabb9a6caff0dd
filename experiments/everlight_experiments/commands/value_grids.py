"""Grids of named values: combinations of what texts list, and the edges on which a choice lies."""

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from everlight.errors import ArgumentError


def read_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return lists of values by name from texts of the form NAME=VALUE,VALUE.

    Values are Python's literals, or texts where they are none; _ in names becomes -.

    Raises:
      ValueError: a text is not of this form; a name, or a value of a name, occurs twice.
    """
    grids: dict[str, list] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.replace("_", "-")
        if not (name and equals and values):
            raise ArgumentError(
                f"{text!a}; give NAME=VALUE,... with commas and no spaces, as in "
                "learning-rate=0.01,0.03"
            )
        if name in grids:
            raise ArgumentError(f"has {name} twice; give all its values at once")
        grids[name] = _values(values)
        if len(set(map(repr, grids[name]))) < len(grids[name]):
            raise ArgumentError(f"{text!a} has a value twice; give it once")
    return grids


def _values(text: str) -> list:
    try:
        return ast.literal_eval(f"[{text}]")
    # A thousand minus signs are too deep for Python's parser.
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text.split(",")


def combinations(grids: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield every combination of one value per name; the last name's values change fastest."""
    for values in itertools.product(*grids.values()):
        yield dict(zip(grids, values, strict=True))


def label_of(values: Mapping[str, Any]) -> str:
    """Return values by name as text, different for different values."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def edges_of(candidates: Sequence[Mapping[str, Any]], best: int) -> list[str]:
    """Return the names of numbers of which the best combination has the least or the greatest.

    Names with a single value, and values that are not numbers, have no edge.

    Args:
      candidates: combinations of values by name.
      best: position of the best one.
    """
    names = []
    for name, value in candidates[best].items():
        values = {combination[name] for combination in candidates}
        numbers = all(
            isinstance(number, (int, float)) and not isinstance(number, bool) for number in values
        )
        if numbers and len(values) > 1 and value in (min(values), max(values)):
            names.append(name)
    return names
