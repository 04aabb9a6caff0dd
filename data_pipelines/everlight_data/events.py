"""Files of events, one JSON object per line, as runs write them; a kill may cut the last line."""

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np


def append_event(path: Path, event: dict[str, Any]) -> None:
    """Append an event, unless the file has it; infinite numbers and NaN become null.

    Args:
      path: file, which need not exist.
      event: values by name; arrays become lists.
    """
    text = json.dumps(event, default=_plain)
    line = json.dumps(json.loads(text, parse_constant=lambda name: None)) + "\n"
    with path.open("a+") as stream:
        stream.seek(0)
        lines = stream.readlines()
        if lines and not lines[-1].endswith("\n"):
            # A kill cut it short; the next event is a line of its own.
            stream.write("\n")
        if line not in lines:
            stream.write(line)


def whole_events(text: str) -> list[Any]:
    """Return the events of a file's text without lines that a kill cut short."""
    events = []
    for line in text.splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            events.append(json.loads(line))
    return events


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    return array.item() if array.ndim == 0 else array.tolist()
