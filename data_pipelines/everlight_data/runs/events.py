"""Files of events, one JSON object per line, as runs write them; a kill may cut the last line."""

import collections
import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from everlight_data.formats.files import read_text, refusing

PROGRESS = "progress"
"""Value of `event` in lines on training runs that are not finished."""
PART = "unit"
"""Key of a run's name in its events and checkpoints; stored run folders have it."""
_SCALES = frozenset({"task", "tasks", "epoch", "epochs", "step", "seconds", "diverged"})
"""Numbers of these lines that have no curve."""


def append_event(path: Path, event: dict[str, Any]) -> None:
    """Append an event, unless the file has it; infinite numbers and NaN become null.

    Args:
      path: file, which need not exist.
      event: values by name; arrays become lists.
    """
    line = json.dumps(plain_event(event))
    text = path.read_text(errors="replace") if path.exists() else ""
    if line not in text.splitlines():
        append_new_events(path, [event])


def append_new_events(path: Path, events: Sequence[Mapping[str, Any]]) -> None:
    """Append events as `append_event` does, without a look at the file's other lines."""
    lines = "".join(json.dumps(plain_event(event)) + "\n" for event in events)
    with path.open("a+b") as stream:
        if stream.tell():
            stream.seek(-1, os.SEEK_END)
            # A kill cut the last line short; the next event is a line of its own.
            lines = lines if stream.read() == b"\n" else "\n" + lines
        stream.write(lines.encode())


def plain_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event as it is read back: numbers of Python, lists, null for infinite and NaN."""
    return json.loads(json.dumps(event, default=_plain), parse_constant=lambda name: None)


def whole_events(text: str) -> list[Any]:
    """Return the events of a file's text without lines that a kill cut short.

    Raises:
      ValueError, RecursionError: numbers or nesting that are too large.
    """
    events = []
    for line in text.splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            events.append(json.loads(line))
    return events


def read_scalars(path: Path, remedy: str) -> Iterator[tuple[str, int, float]]:
    """Yield tag, step and value of every number of a file of events, as `scalars_of` does.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file has no events, or numbers or nesting that are too large; the message ends
        with `remedy`.
    """
    text, steps = read_text(path, remedy), collections.Counter()
    with refusing(path, remedy):
        events = whole_events(text)
        if not all(isinstance(event, dict) for event in events):
            raise ValueError("a line is not an event")
        if text and not events:
            raise ValueError("no line is an event")
        for event in events:
            yield from scalars_of(event, steps)


def scalars_of(
    event: Mapping[str, Any], steps: collections.Counter[str]
) -> Iterator[tuple[str, int, float]]:
    """Yield tag, step and value of every number of an event, a list's one by one.

    A tag is the event's texts and the number's name, and `steps` counts its numbers. Other values,
    such as an infinite loss, are left out but take a step. On the progress of a run, a tag is the
    run's name and the number's, and the step is the optimizer's.
    """
    if event.get("event") == PROGRESS:
        curves = {name: value for name, value in event.items() if name not in _SCALES}
        for name, value in curves.items():
            if isinstance(value, int | float):
                yield f"{event[PART]}/{name}", event["step"], float(value)
        return
    label = [value for value in event.values() if isinstance(value, str)]
    for name, value in event.items():
        tag = "/".join([*label, name])
        numbers = value if isinstance(value, int | float | list) else []
        for number in np.ravel(np.array(numbers, dtype=object)):
            if isinstance(number, int | float):
                yield tag, steps[tag], float(number)
            steps[tag] += isinstance(number, int | float | None)


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    return array.item() if array.ndim == 0 else array.tolist()
