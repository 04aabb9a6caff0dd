"""The tests that a GPU is for, counted as they end: the selection of `make test-gpu`."""

import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu.cases import Setting, Unavailable

ROOT = Path(__file__).parents[2]
TARGET = "test-gpu"
LEAST = ("tests/metrics/test_angular.py",)
OUTCOME = re.compile(r"\b(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")
OFTEN = 25
"""Tests between two results."""


def selection(setting: Setting) -> Iterator[dict]:
    """Yield the number of tests by outcome so far, and the names of those that failed."""
    words = LEAST if setting.small else selected_tests()
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *words]
    counts, failed = Counter(), []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            # The summary at the end names tests again, without the percentage.
            if "::" not in line or "%]" not in line or not (outcome := OUTCOME.search(line)):
                continue
            counts[outcome[1].lower()] += 1
            if outcome[1] in ("FAILED", "ERROR"):
                failed.append(re.sub(r"\[ *(?:gw)?\d+%?\]", "", OUTCOME.sub("", line)).strip())
            if sum(counts.values()) % OFTEN == 0:
                yield {**counts, "failed tests": failed}
    yield {**counts, "failed tests": failed, "exit status": process.returncode}


def selected_tests() -> list[str]:
    """Return pytest's arguments in the Makefile's target `test-gpu`, the one place of them.

    Raises:
      Unavailable: there is no such target, or no `make`.
    """
    try:
        command = ["make", "--dry-run", "--always-make", TARGET]
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Unavailable("make is not installed") from error
    lines = [line for line in answer.stdout.splitlines() if "-m pytest" in line]
    if not lines:
        raise Unavailable(f"the Makefile has no target {TARGET} that runs pytest")
    return shlex.split(lines[-1].partition("-m pytest")[2])
