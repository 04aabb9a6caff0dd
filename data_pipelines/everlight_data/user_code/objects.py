"""Objects of a user's own Python files, named as FILE.py:NAME."""

import importlib.util
import sys
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import flax.linen as nn

from everlight.continual.engine.setups.network_setup import Net, argument_names
from everlight.continual.training.adapted_net import check_outputs
from everlight.models import Network
from everlight_data.errors import DataError
from everlight_data.formats.files import read_bytes
from everlight_data.names import did_you_mean
from everlight_data.texts import one_line
from everlight_data.user_code.checksums import PACKAGES, sources_checksum

_MOST_BYTES = 10_000_000


class Loaded(NamedTuple):
    """An object of a user's file."""

    value: Any
    module: ModuleType
    version: str
    """Checksum of the file and of the user's own modules that it imports."""


def load_object(reference: str, option: str, form: str) -> Loaded:
    """Run a file and return an object of it.

    Args:
      reference: FILE.py:NAME.
      option: of the command line, for messages.
      form: sentence on what to give, for messages.

    Raises:
      MissingDataError: there is no such file.
      DataError: the file cannot be run, or lacks the name.
    """
    path, colon, name = reference.rpartition(":")
    if not colon or not path or not name.isidentifier():
        raise DataError(f"{option} {reference!a}; {form}")
    content = read_bytes(Path(path), _MOST_BYTES, f"For {option} {form}.")
    spec = importlib.util.spec_from_file_location(f"own_file_{zlib.crc32(content):08x}", path)
    if spec is None:
        raise DataError(f"{path} is not a Python file; {form}")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look there for the names in their annotations.
    sys.modules[spec.name] = module
    try:
        # The loader would run stale bytecode of a file that was changed within a second.
        exec(compile(content, path, "exec"), vars(module))
        # A module's own `__getattr__` is run too.
        value, is_there = getattr(module, name, None), hasattr(module, name)
    # Anything may fail in a user's code, which may also leave.
    except (Exception, SystemExit) as error:
        raise DataError(
            f"{path} cannot be run ({type(error).__name__}: {one_line(error)}); correct the file"
        ) from error
    if not is_there:
        hint = did_you_mean(name, list(vars(module))) or "."
        raise DataError(f"{path} has no {name!r}{hint} For {option} {form}.")
    return Loaded(value, module, sources_checksum(content, _MOST_BYTES))


def place_in(module: ModuleType, error: BaseException) -> str | None:
    """Return the line of a user's file from which an error came, in words; None if none did.

    Errors of what the file's functions call are theirs, as of JAX. Of calls of everlight the words
    have the line that raised the error too.
    """
    frames = [
        (frame.f_globals.get("__name__", ""), line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    last = max((n for n, (name, _) in enumerate(frames) if name == module.__name__), default=None)
    if last is None:
        return None
    place = f"{Path(module.__file__).name}, line {frames[last][1]}"
    library_frames = [frame for frame in frames[last:] if frame[0].partition(".")[0] in PACKAGES]
    return (
        f"{place}; raised in {library_frames[-1][0]}, line {library_frames[-1][1]}"
        if library_frames
        else place
    )


def load_network(reference: str, option: str, classes: int, shape: tuple[int, ...]) -> Network:
    """Return the network of a user's file, which is run.

    One trace checks its outputs and finds the layers that methods read by name.

    Args:
      reference: FILE.py:NAME, a function from the number of classes to a linen module; or from it
        and an argument `rngs` to an NNX module, or `key` to an Equinox module, as `network_setup`
        has.
      option: of the command line, for messages.
      classes: number of outputs.
      shape: shape of one input.

    Raises:
      MissingDataError: there is no such file.
      DataError: the file cannot be run or lacks the function, the function returns no network or
        one with other inputs or outputs, or Equinox is not installed.
    """
    form = (
        "give FILE.py:NAME, a function from the number of classes to a linen module, from it and "
        "rngs to an NNX module, or from it and key to an Equinox module"
    )
    loaded = load_object(reference, option, form)
    # Anything may fail in a user's code, which may also leave.
    try:
        net = _build_network(loaded.value, classes)
    except (Exception, SystemExit) as error:
        message = f"{type(error).__name__}: {one_line(error)}"
        raise DataError(f"{option} {reference} cannot be built ({message}); {form}") from error
    try:
        layers = check_outputs(net, shape, classes)
    except SystemExit as error:
        raise DataError(f"{option} {reference} ends the process ({error.code}); {form}") from error
    except Exception as error:
        raise DataError(f"{option} {reference}: {error}") from error
    path, _, name = reference.rpartition(":")
    note = f"{name} of {Path(path).name}"
    return Network(net, note, layers.hidden, layers.head, classes, loaded.version)


def _build_network(make: Callable[..., Any], classes: int) -> Net:
    """Return the linen module of a user's function, or the function of rngs or key alone."""
    arguments = argument_names(make)
    if "rngs" in arguments:
        return lambda rngs: make(classes, rngs=rngs)
    if "key" in arguments:
        return lambda key: make(classes, key=key)
    net = make(classes)
    if not isinstance(net, nn.Module):
        raise TypeError(f"it returned {type(net).__name__}")
    return net
