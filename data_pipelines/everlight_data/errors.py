"""Errors about input from outside; each names the file or argument and a remedy."""


class DataError(ValueError):
    """Error about an unusable file or argument; the message names it and says what to do."""


class MissingDataError(DataError, FileNotFoundError):
    """Error about a missing data set or file."""


class MissingPackageError(DataError):
    """Error about a missing package that every file of a list needs."""
