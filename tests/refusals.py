"""Refusals in one line."""

import pytest


def refused(message, make, error=ValueError):
    """Return the one line with which a function without arguments raises an error.

    `message` is a pattern that it has; None for any.
    """
    with pytest.raises(error, match=message) as caught:
        make()
    line = str(caught.value)
    assert "\n" not in line
    return line
