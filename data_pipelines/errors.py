"""Errors about input from outside, each naming the file or argument and the way out."""


class DataError(ValueError):
    """A file or argument cannot be used as it is; the message names it and says what to do."""


class MissingDataError(DataError, FileNotFoundError):
    """A data set or file is not where it is expected."""
