"""Cases one after another within a given time, each in a process of its own that may be stopped."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.gpu.case_process import MARK
from benchmarks.gpu.cases import Case

ROOT = Path(__file__).parents[2]
SOURCES = ("lib", "data_pipelines", "experiments", "benchmarks")
GRACE = 10
"""Seconds that a stopped process has to keep a checkpoint."""
DESCRIPTION_S = 120
"""Seconds that the first process has to find the device."""
LAST_LINES = 8
"""Lines of the output of a case that failed."""
COMPLETE = "complete"


def measure(cases: Sequence[Case], seconds: float, output: Path, small: bool) -> None:
    """Run cases and write the results of each into a file when it ends.

    Complete cases of the same device, versions and sources in the file are not run again. A case
    that takes longer than its limit or than is left is stopped, and what it measured is written. A
    case that is expected to take longer than is left is not begun.

    Raises:
      ValueError: the file is of something else.
      RuntimeError: the device cannot be described.
    """
    end = time.monotonic() + seconds
    results = read_results(output)
    setup = _setup(min(seconds, DESCRIPTION_S), small)
    print(", ".join(f"{name} {value}" for name, value in setup.items()), flush=True)
    known = {one["case"] for one in results if one["setup"] == setup and one["state"] == COMPLETE}
    for case in cases:
        left = end - time.monotonic() - GRACE
        if case.name in known:
            print(f"{case.name}: is in {output}", flush=True)
            continue
        expected = 1 if small else case.expected
        if left < expected:
            print(
                f"{case.name}: skipped, {expected} s expected, {max(0, left):.0f} s left",
                flush=True,
            )
            continue
        result = {
            "case": case.name,
            "setup": setup,
            **run_case_process(case, min(case.limit, left), output, small),
        }
        others = [one for one in results if (one["case"], one["setup"]) != (case.name, setup)]
        results = [*others, result]
        _write(output, results)
        print(f"{case.name}: {summary(result)}", flush=True)


def run_case_process(case: Case, seconds: float, output: Path, small: bool) -> dict:
    """Return what a case measured in a process of its own, and how it ended."""
    folder = str(output.with_suffix(".runs").resolve())
    words = [case.target, folder, json.dumps(small), json.dumps(case.arguments)]
    command = [sys.executable, "-m", "benchmarks.gpu.case_process", *words]
    begin, log = time.monotonic(), output.with_suffix(".log")
    with log.open("w+", encoding="utf-8", errors="replace") as stream:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _stop(process)
        stream.seek(0)
        lines = stream.read().splitlines()
    marked = [line.partition(MARK)[2] for line in lines if MARK in line]
    values = json.loads(marked[-1]) if marked else {}
    timing = {
        "seconds": time.monotonic() - begin,
        "ended": datetime.now(UTC).isoformat("T", "seconds"),
    }
    if "skipped" in values:
        return {"state": "skipped", "reason": values["skipped"], **timing}
    if status is None:
        return {"state": "stopped", "values": values, **timing}
    if status:
        return {
            "state": "failed",
            "values": values,
            "reason": "\n".join(lines[-LAST_LINES:]),
            **timing,
        }
    return {"state": COMPLETE, "values": values, **timing}


def read_results(output: Path) -> list[dict]:
    """Return the results in a file, none where it does not exist.

    Raises:
      ValueError: the file is of something else.
    """
    if not output.exists():
        return []
    try:
        return json.loads(output.read_text(encoding="utf-8"))["results"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{output} is not a file of this command; give another one") from error


def summary(result: dict) -> str:
    """Return a line with the numbers of a case."""
    cells = [result["state"], f"{result['seconds']:.0f} s"]
    if "reason" in result:
        cells.append(result["reason"].splitlines()[-1] if result["reason"] else "no output")
    for name, value in result.get("values", {}).items():
        cells.append(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}")
    return "; ".join(cells)


def _setup(seconds: float, small: bool) -> dict:
    """Return what results depend on: the device, the versions and the sources."""
    command = [sys.executable, "-m", "benchmarks.gpu.device"]
    try:
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError("the device was not found in time") from error
    if answer.returncode:
        raise RuntimeError(f"the device was not found: {answer.stderr.strip()[-300:]}")
    return {**json.loads(answer.stdout), "sources": sources(), "commit": _commit(), "small": small}


def sources() -> str:
    """Return a short SHA-256 of the programs that are measured."""
    total = hashlib.sha256()
    for path in sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")):
        total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return total.hexdigest()[:12]


def _commit() -> str | None:
    """Return the commit of the checkout, with a plus sign if it was changed; None without one."""
    git = ["git", "-C", str(ROOT)]
    try:
        name = subprocess.run(
            [*git, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True
        )
        changes = subprocess.run(
            [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True
        )
    except FileNotFoundError:
        return None
    if name.returncode or changes.returncode:
        return None
    return name.stdout.strip() + ("+" if changes.stdout.strip() else "")


def _stop(process: subprocess.Popen) -> None:
    """End a process and those that it started."""
    for number, patience in ((signal.SIGTERM, GRACE - 2), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
        except ProcessLookupError:
            process.wait()
        except subprocess.TimeoutExpired:
            continue


def _write(output: Path, results: list[dict]) -> None:
    partial = output.with_suffix(".part")
    partial.write_text(json.dumps({"results": results}, indent=1) + "\n", encoding="utf-8")
    partial.replace(output)
