"""Messages that orbax leaves behind are dropped, and all others are reported as before."""

import asyncio
import gc
import logging
import sys
import warnings
from types import SimpleNamespace

import pytest

from everlight_data.runs.orbax_messages import silence_orbax, unawaited_unreported


def own_loop_closed():
    """Return the error of a user's code that uses a loop which it has closed."""
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed") as raised:
        loop.call_soon_threadsafe(print)
    return raised.value


def test_coroutines_that_an_error_of_orbax_holds_are_released_without_a_warning():
    reference = {}
    program = (
        "async def read(): pass\ndef fail():\n    held = read()\n    raise ValueError('damaged')"
    )
    exec(compile(program, "/packages/orbax/reading.py", "exec"), reference)
    with warnings.catch_warnings(record=True) as message:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="damaged"), unawaited_unreported():
            reference["fail"]()
        gc.collect()
    assert message == []


def test_other_errors_are_reported_as_before(monkeypatch, caplog):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda inputs: seen.append(inputs.exc_value))
    silence_orbax.__wrapped__()
    reporter = warnings._warn_unawaited_coroutine

    async def own():
        """Stand for a coroutine of the user's."""

    coroutine = own()
    another, of_own = RuntimeError("another"), ValueError("of a routine")
    for error, actual in ((own_loop_closed(), None), (another, None), (of_own, coroutine)):
        sys.unraisablehook(
            SimpleNamespace(exc_value=error, exc_traceback=error.__traceback__, object=actual)
        )
    coroutine.close()
    assert list(map(str, seen)) == ["Event loop is closed", "another", "of a routine"]
    reference = {}
    exec(compile("async def read(): pass", "/packages/orbax/reading.py", "exec"), reference)
    with warnings.catch_warnings(record=True) as message:
        warnings.simplefilter("always")
        with unawaited_unreported():
            for function in (reference["read"], own):
                function()
                gc.collect()
    assert [str(item.message).split("'")[1].split(".")[-1] for item in message] == ["own"]
    assert warnings._warn_unawaited_coroutine is reporter
    logging.getLogger("asyncio").error("Task exception was never retrieved: mine")
    logging.getLogger("absl").error("another remark")
    assert caplog.messages == ["Task exception was never retrieved: mine", "another remark"]
