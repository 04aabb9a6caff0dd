"""Refusals in one line."""

import pytest


def refused(message, make):
    """Check that a function without arguments raises ValueError with this message in one line."""
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
