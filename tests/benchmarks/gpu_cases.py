"""Cases that try the schedule of `benchmarks.gpu`."""

import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.gpu.cases import Setting, Unavailable


def quick(setting: Setting, value: float) -> Iterator[dict]:
    yield {"value": value}


def slow(setting: Setting) -> Iterator[dict]:
    """Start a process, yield its number, and wait longer than any test."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield {"first": 1, "process": other.pid}
    time.sleep(600)


def broken(setting: Setting) -> Iterator[dict]:
    yield {"first": 1}
    raise MemoryError("too large")


def lacking(setting: Setting) -> Iterator[dict]:
    raise Unavailable("no such thing here")
    yield {}
