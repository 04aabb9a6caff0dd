"""Filter of messages that orbax and asyncio print when a checkpoint cannot be used.

`Checkpoints` raises one error then. The other reads and writes that were under way end later, when
their event loop is closed, and each would print a traceback of its own.
"""

import functools
import gc
import logging
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import CoroutineType
from typing import Any

_NEVER_RETRIEVED = re.compile(r"\w+ exception was never retrieved")
"""Message about a task, a future, or several that are gathered."""
_TENSORSTORE = ("tensorstore", "OCDBT database")
# A second thread could restore the report of the first one.
_UNREPORTED = threading.RLock()


@functools.cache
def silence_orbax() -> None:
    """Drop tracebacks of orbax's late reads and writes and two of its remarks, from now on.

    The remarks are on metadata, and on folders that are only read.

    All else that Python, asyncio and absl report is printed as before.
    """
    before = sys.unraisablehook

    def report(unraisable: Any) -> None:
        if not _is_of_a_read(unraisable):
            before(unraisable)

    # They come from other threads and from the garbage collector, so for the process's life.
    sys.unraisablehook = report
    logging.getLogger("asyncio").addFilter(lambda record: not _is_of_a_task(record))
    logging.getLogger("absl").addFilter(lambda record: not _is_of_orbax_log(record))


@contextmanager
def unawaited_unreported() -> Iterator[None]:
    """Drop Python's warnings about orbax's coroutines that nobody awaits, inside the context.

    Where orbax fails inside, the coroutines that its error holds are released at the end.
    """
    with _UNREPORTED:
        # Called with every such coroutine; a filter of warnings would not see its file.
        warn = warnings._warn_unawaited_coroutine

        def warn_of_others(coroutine: CoroutineType) -> None:
            if not _is_orbax(coroutine.cr_code.co_filename):
                warn(coroutine)

        warnings._warn_unawaited_coroutine = warn_of_others
        try:
            yield
        except Exception as error:
            _release_frames(error)
            raise
        finally:
            warnings._warn_unawaited_coroutine = warn


def _release_frames(error: BaseException) -> None:
    """Empty the ended frames of an error and of those before it, and what they held in circles."""
    before: BaseException | None = error
    while before is not None:
        traceback.clear_frames(before.__traceback__)
        before = before.__cause__ or before.__context__
    gc.collect()


def _is_of_a_read(unraisable: Any) -> bool:
    origin, error = unraisable.object, unraisable.exc_value
    if isinstance(origin, CoroutineType):
        return _is_orbax(origin.cr_code.co_filename)
    # Tensorstore's threads give results to a loop that orbax has closed, without Python's frames.
    outer = unraisable.exc_traceback
    return (
        isinstance(error, RuntimeError)
        and str(error) == "Event loop is closed"
        and outer is not None
        and outer.tb_frame.f_code.co_name == "call_soon_threadsafe"
    )


def _is_of_a_task(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    where = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
    # A task's text names its function's file; a future's is its error alone.
    is_of_orbax = _is_orbax(text) or _is_orbax(where) or any(part in text for part in _TENSORSTORE)
    return bool(_NEVER_RETRIEVED.match(text)) and is_of_orbax


def _is_of_orbax_log(record: logging.LogRecord) -> bool:
    is_of_a_write = "/futures/" in record.pathname.replace("\\", "/")
    # A folder that is opened to be read only is meant to be.
    is_known = record.getMessage().startswith("Given directory is read only")
    return _is_orbax(record.pathname) and (
        is_of_a_write or is_known or "metadata" in record.pathname
    )


def _is_orbax(path: str) -> bool:
    return "/orbax/" in path.replace("\\", "/")
