"""Checks of the names that a user gives."""

import difflib
from collections import Counter
from collections.abc import Sequence

from everlight_data.errors import DataError
from everlight_data.texts import one_line

MAX_NAMED = 5
"""Default limit on the items that a message names."""


def check_name(what: str, name: str, known: Sequence[str]) -> None:
    """Refuse a name that does not exist.

    Args:
      what: noun for the message.
      name: name to look up.
      known: all names.

    Raises:
      DataError: the name is none of them; the message gives the nearest ones, and all if none is
        near or all are few.
    """
    if name not in known:
        hint = did_you_mean(name, known)
        # A long list would hide the nearest names.
        choices = f"are {', '.join(map(repr, known))}" if known else "is none"
        listed = "" if hint and len(known) > 20 else f" There {choices}."
        raise DataError(f"no {what} {name!a}{hint or '.'}{listed}")


def repeated_names(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return the question whether one of the nearest names was meant; empty if none is near."""
    near = nearest_names(name, known)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def nearest_names(name: str, known: Sequence[str]) -> list[str]:
    """Return the names that one was probably meant for, at most three, the nearest first.

    Names that begin like it come before those that are spelled alike.
    """
    plain = {word.casefold(): word for word in known}
    begun = [word for word in plain if name and word.startswith(name.casefold())]
    close = difflib.get_close_matches(name.casefold(), plain, n=3, cutoff=0.5)
    return [plain[word] for word in dict.fromkeys([*begun, *close])][:3]


def name_first(items: Sequence[object], most: int = MAX_NAMED) -> str:
    """Return the first items in one line, and how many more there are, as in `a, b and 3 more`."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(map(one_line, items[:most])) + more
