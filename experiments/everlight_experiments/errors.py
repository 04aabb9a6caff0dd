"""The error of words on the command line."""

from everlight_data.errors import DataError


class UsageError(DataError):
    """Words of the command line that cannot be parsed; the command ends with status 2."""
