"""The error of an argument that a function of the library refuses."""


class ArgumentError(ValueError):
    """Error about an argument or a value that is checked; the message names it and a remedy.

    Every check of the library raises it or a kind of it. Any other `ValueError` is a fault of a
    program, so commands show the traceback of that and the message of this.
    """
