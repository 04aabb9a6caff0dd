"""Names that a user gives, checked against those that there are."""

import difflib
from collections.abc import Sequence

from everlight_data.errors import DataError


def check_name(what: str, name: str, known: Sequence[str]) -> None:
    """Refuse a name that does not exist.

    Args:
      what: noun for the message.
      name: as it was given.
      known: all names.

    Raises:
      DataError: the name is none of them; the message gives the nearest ones, and all if none is
        near or all are few.
    """
    if name not in known:
        near = nearest_names(name, known)
        meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
        # A long list would hide the nearest names.
        choices = f"are {', '.join(map(repr, known))}" if known else "is none"
        listed = "" if near and len(known) > 20 else f" There {choices}."
        raise DataError(f"no {what} {name!a}{meant}{listed}")


def nearest_names(name: str, known: Sequence[str]) -> list[str]:
    """Return the names that one was probably meant for, at most three, the nearest first.

    Names that begin like it come before those that are spelled alike.
    """
    plain = {word.casefold(): word for word in known}
    begun = [word for word in plain if name and word.startswith(name.casefold())]
    close = difflib.get_close_matches(name.casefold(), plain, n=3, cutoff=0.5)
    return [plain[word] for word in dict.fromkeys([*begun, *close])][:3]
