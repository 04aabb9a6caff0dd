"""`everlight watch RUN`: what a run is training, in a terminal.

    everlight watch runs/run-digits-demo
    everlight watch runs/run-digits-demo --tensorboard

It reads the run's folder alone, and may be started and stopped at any time.
"""

import collections
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from everlight_data.optional_packages import import_package
from everlight_data.runs.configs import read_any_config
from everlight_data.runs.events import scalars_of
from everlight_experiments.commands.watched_run import WatchedRun
from everlight_experiments.report.cells import in_time
from everlight_experiments.report.export import NAME_A_RUN, as_tag, empty_folder
from everlight_experiments.run_folder.folder import METRICS, TENSORBOARD
from everlight_experiments.run_folder.interruption import StoppedError
from everlight_experiments.terminal import CURSOR_UP

POLL = 1.0
"""Seconds between two looks at the folder."""
UNKNOWN = 1_800.0
"""Seconds without a line after which a run that may be compiling is no longer watched."""
Note = Callable[[Sequence[Mapping[str, Any]]], None]


@dataclass(frozen=True)
class WatchOptions:
    """Show what a run is training: task, steps, loss, score, steps per second and time left.

    Start it in another terminal than the run; it ends with the run, or by Ctrl-C, which does not
    stop the run. Runs of `run`, `grid` and papers on continual learning have these lines.
    """

    run: tyro.conf.Positional[Path]
    """Folder of the run, as in the run's first line."""
    tensorboard: bool = False
    """Write TensorBoard's event files into `tensorboard/` in the run's folder as well, while the
    run is trained (`tensorboard --logdir RUN/tensorboard`). They replace those of an earlier
    call."""


def watch(options: WatchOptions) -> None:
    """Follow a run until it ends.

    Raises:
      DataError: there is no run in the folder, or tensorboardX is not installed.
      SystemExit: the run was stopped before its end.
    """
    read_any_config(options.run / "config.json", NAME_A_RUN)
    run, table = WatchedRun(options.run), _Table()
    try:
        with ExitStack() as open_files:
            note = _event_writer(options.run, open_files) if options.tensorboard else _ignore
            while True:
                note(run.read())
                silent = _silent_seconds(options.run)
                state = run.state(silent)
                table.show(run.table(), run.status(silent))
                if state == "finished":
                    print(f"finished: {options.run / 'report.html'}")
                    return
                if state == "stopped":
                    sys.exit(
                        f"no process trains {options.run} any more, whose last line was written "
                        f"{silent:.0f} s ago; the command that started it continues it"
                    )
                if state == "unknown" and silent > UNKNOWN:
                    sys.exit(
                        f"no line of {options.run} since {in_time(silent)}; it is compiling, or "
                        "was killed"
                    )
                time.sleep(POLL)
    except StoppedError:
        print("no longer watched; the run is not stopped by this")


class _Table:
    """Table that is written over itself in a terminal; elsewhere only changed rows are written."""

    def __init__(self) -> None:
        self._shown: list[str] = []

    def show(self, rows: Sequence[str], status: str) -> None:
        """Show the rows, and the status below them in a terminal."""
        if sys.stdout.isatty():
            width = shutil.get_terminal_size().columns - 1
            lines = [line[:width].ljust(width) for line in (*rows, status)]
            sys.stdout.write(CURSOR_UP * len(self._shown))
            print(*lines, sep="\n", flush=True)
            self._shown = lines
            return
        changed = [row for row in rows if row not in self._shown]
        # Without a method there is nothing but the header.
        if changed and len(rows) > 1:
            print(*changed, sep="\n", flush=True)
            self._shown = list(rows)


def _ignore(events: Sequence[Mapping[str, Any]]) -> None:
    """Do nothing with new events."""


def _event_writer(run: Path, open_files: ExitStack) -> Note:
    """Return a function that writes new events for TensorBoard."""
    package = import_package("tensorboardX")
    folder, steps = run / TENSORBOARD, collections.Counter[str]()
    empty_folder(folder, "events.*")
    writer = open_files.enter_context(package.SummaryWriter(str(folder)))

    def write(events: Sequence[Mapping[str, Any]]) -> None:
        for event in events:
            for tag, step, value in scalars_of(event, steps):
                writer.add_scalar(as_tag(tag), value, step)
        if events:
            writer.flush()

    return write


def _silent_seconds(run: Path) -> float:
    """Return the seconds since the last line of a run, or since its start."""
    path = run / METRICS
    path = path if path.exists() else run / "config.json"
    return max(0.0, time.time() - path.stat().st_mtime)
