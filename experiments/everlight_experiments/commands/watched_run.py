"""The state of a run, from the lines of its metrics.jsonl and from its locks."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from everlight_data.errors import DataError
from everlight_data.locks import LOCK, try_lock
from everlight_data.runs.claims import Claims
from everlight_data.runs.events import PART, PROGRESS
from everlight_experiments.report.cells import in_time
from everlight_experiments.run_folder.folder import (
    COMPILED,
    COMPILING,
    ESTIMATE,
    METRICS,
    claimed_in,
)
from everlight_experiments.terminal import aligned_rows

SILENT = 5.0
"""Seconds without a line after which a run in training must hold the lock of its part."""
LONG_SILENT = 60.0
"""Seconds without a line after which any run that is no longer compiling must hold a lock."""
HEADER = ("method", "runs", "task", "step", "loss", "score", "steps/s", "left")
_NOT_SHOWN = frozenset(
    {"event", PART, "method", "task", "tasks", "epoch", "epochs", "step", "loss", "validation"}
    | {"seconds", "steps_per_second", "diverged"}
)
"""Keys of a line on progress beside the score, whose name depends on the benchmark."""
State = Literal["training", "finished", "stopped", "unknown"]


@dataclass
class WatchedMethod:
    """Runs of a method in a column."""

    planned: int = 0
    """Runs that were left at the start; 0 where this is not known."""
    seconds: float | None = None
    """Estimated seconds of these runs."""
    last: Mapping[str, Any] = field(default_factory=dict)
    """Newest line on progress."""
    score: str = "–"
    """Name and value of the newest score."""
    epochs: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Finished and all epochs of every run that has a line."""

    @property
    def done(self) -> float:
        """Number of runs that are trained, with fractions."""
        return sum(epoch / epochs for epoch, epochs in self.epochs.values())

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until all runs are trained; None where this is not known."""
        if self.seconds is None:
            return None
        return self.seconds * max(0.0, 1 - self.done / self.planned)

    def add(self, event: Mapping[str, Any]) -> None:
        """Take a line on progress into account."""
        self.last = event
        reached = event["epochs"] if event["diverged"] else event["epoch"]
        self.epochs[event[PART]] = reached, event["epochs"]
        for name in event.keys() - _NOT_SHOWN:
            if event[name] is not None:
                self.score = f"{name} {event[name]:.3f}"

    def cells(self, name: str) -> tuple[str, ...]:
        """Return the method's row under `HEADER`."""
        finished = sum(epoch == epochs for epoch, epochs in self.epochs.values())
        runs = f"{finished}/{max(self.planned, len(self.epochs))}"
        left = "–" if self.seconds_left is None else in_time(self.seconds_left)
        if not self.last:
            return name, runs, "–", "–", "–", "–", "–", left
        last = self.last
        # Tasks differ in size, so the total is exact only at the end.
        about = "~" if last["epoch"] < last["epochs"] else ""
        steps = round(last["step"] * last["epochs"] / max(1, last["epoch"]))
        loss = "diverged" if last["diverged"] else _in_digits(last["loss"])
        return (
            name,
            runs,
            f"{last['task'] + 1}/{last['tasks']}",
            f"{last['step']:,}/{about}{steps:,}",
            loss,
            self.score,
            _rate(last["steps_per_second"]),
            left,
        )


def _rate(steps: float) -> str:
    return f"{steps:,.0f}" if steps >= 10 else f"{steps:.2g}"


def _in_digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


class WatchedRun:
    """A run's folder, whose new lines are read at every call of `read`."""

    def __init__(self, folder: Path):
        """Begin at the first line."""
        self.folder = folder
        self._begin()

    def _begin(self) -> None:
        self._read = 0
        self.methods: dict[str, WatchedMethod] = {}
        self.last: Mapping[str, Any] = {}

    def read(self) -> list[dict[str, Any]]:
        """Return the whole lines that are new; a file that became shorter is read again."""
        path = self.folder / METRICS
        size = path.stat().st_size if path.exists() else 0
        if size < self._read:
            self._begin()
        if size == self._read:
            return []
        with path.open("rb") as stream:
            stream.seek(self._read)
            complete, end, _ = stream.read().rpartition(b"\n")
        self._read += len(complete + end)
        events = [event for line in complete.splitlines() if (event := _parsed(line)) is not None]
        for event in events:
            self._add(event)
        return events

    def _add(self, event: Mapping[str, Any]) -> None:
        self.last = event
        if event.get("event") == PROGRESS:
            self.methods.setdefault(event["method"], WatchedMethod()).add(event)
        elif event.get("event") == ESTIMATE:
            # A later start counts the runs that are left then.
            self.methods = {
                row["method"]: WatchedMethod(row["runs"], row["seconds"])
                for row in event["methods"]
            }

    def table(self) -> list[str]:
        """Return the lines of a table of methods."""
        rows = [HEADER, *(method.cells(name) for name, method in self.methods.items())]
        return aligned_rows(rows, left=1)

    def status(self, silent: float) -> str:
        """Return what the run is doing, in a line.

        Args:
          silent: seconds since the last line.
        """
        if self.last.get("event") == COMPILING:
            return f"compiling {self.last['method']} for {in_time(silent)}"
        left = [method.seconds_left for method in self.methods.values()]
        known = [seconds for seconds in left if seconds is not None]
        total = f"about {in_time(sum(known))} of training left; " if known else ""
        what = "last line" if self.last else "no line yet; started"
        return f"{total}{what} {in_time(silent)} ago"

    def state(self, silent: float) -> State:
        """Return whether a process works on the run, as far as locks tell.

        Args:
          silent: seconds since the last line.
        """
        config, report = self.folder / "config.json", self.folder / "report.html"
        if report.exists() and report.stat().st_mtime >= config.stat().st_mtime:
            return "finished"
        compiles = not self.last or self.last.get("event") in (COMPILING, COMPILED)
        limit = SILENT if self.last.get("event") == PROGRESS else LONG_SILENT
        if silent < limit:
            return "training"
        held = _is_locked(self.folder)
        if held is None or (compiles and not held):
            return "unknown"
        return "training" if held else "stopped"


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return a line's event; None for one that a kill cut short."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _is_locked(folder: Path) -> bool | None:
    """Return True if a process works in a run's folder; None if that cannot be seen."""
    claims = Claims()
    try:
        if any(map(claims.is_elsewhere, claimed_in(folder))):
            return True
        if not (folder / LOCK).exists():
            return False
        lock = try_lock(folder / LOCK)
    except DataError:
        # A folder of somebody else's.
        return None
    if lock is not None:
        lock.release()
    return lock is None
