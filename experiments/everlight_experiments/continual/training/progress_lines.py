"""Lines of metrics.jsonl on the progress of runs, which `everlight watch` reads.

They are written by Python between two calls of compiled programs, so that results do not depend on
them. A resumed run writes no line again.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Bool, Int

from everlight.continual import Protocol, SequenceResult, SequenceState
from everlight.continual.engine.run_states import epochs_done, result_of_run
from everlight.meshes import fetch
from everlight_data.runs.events import PART, PROGRESS, plain_event
from everlight_experiments.continual.benchmarks.metric import refuse_other_than_shares
from everlight_experiments.run_folder.folder import RunFolder

WITHIN_TASK = 10.0
"""Seconds after which a task that has not ended has a line at the end of an epoch."""
TIMES = frozenset({"seconds", "steps_per_second"})
"""Keys whose values differ when an epoch is repeated after an interruption."""


class LinesOfRun(NamedTuple):
    """Names and score of the lines of one run."""

    part: str
    """Name of the run's part of the folder."""
    method: str
    """Method with its column."""
    score_name: str = ""
    score: Callable[[SequenceResult], Sequence[float]] | None = None
    """Function to the score after every task, from a result that may lack the last tasks."""


class GroupLines:
    """Lines of runs that are trained together."""

    def __init__(
        self,
        folder: RunFolder,
        runs: Sequence[LinesOfRun],
        protocol: Protocol,
        tasks: int,
        mesh: Mesh,
    ):
        """Read the lines that are there, for runs that learn so many tasks on a mesh."""
        self._folder, self._runs, self._protocol, self._mesh = folder, runs, protocol, mesh
        self._sizes = {"tasks": tasks, "epochs": protocol.epochs_before(tasks)}
        parts = {run.part for run in runs}
        self._written = [
            _without_times(event)
            for event in folder.read_events()
            if event.get("event") == PROGRESS and event.get(PART) in parts
        ]
        self._learning = np.full(len(runs), True)
        self._time, self._steps = time.monotonic(), np.zeros(len(runs), int)

    @property
    def epochs(self) -> int:
        """Number of epochs of all tasks."""
        return self._sizes["epochs"]

    def place(self, epochs: int) -> str:
        """Return task and epoch after so many finished epochs, as users count them."""
        tasks = range(self._sizes["tasks"])
        task = max(task for task in tasks if self._protocol.epochs_before(task) <= epochs)
        return self.place_words(task, epochs - self._protocol.epochs_before(task))

    def place_words(self, task: int, epoch: int) -> str:
        """Return a task and its epoch, both from 0, as users count them."""
        of_task = self._protocol.epochs_of(int(task))
        return f"task {task + 1} of {self._sizes['tasks']}, epoch {epoch + 1} of {of_task}"

    def start(self, state: SequenceState | None) -> None:
        """Start the clock, from a state that runs continue from or from the beginning."""
        self._time = time.monotonic()
        if state is not None:
            self._steps = self._steps_of(state)

    def write(self, state: SequenceState, diverged: Bool[np.ndarray, "runs"]) -> float | None:
        """Write a line per run at the end of a task, and in long tasks every few seconds.

        A run that has diverged has one more line.

        Returns:
          Optimizer steps of a run per second, the mean over runs; None if no line is due.
        """
        ended, seconds = int(state.epoch) == 0, time.monotonic() - self._time
        # Joined processes have clocks of their own, and read the state together.
        late = seconds >= WITHIN_TASK and jax.process_count() == 1
        if not (ended or late or np.any(diverged & self._learning)):
            return None
        steps = self._steps_of(state)
        rates = (steps - self._steps) / max(seconds, 1e-9)
        events = self._events(state, diverged, ended, steps)
        events = [
            {**event, "seconds": seconds, "steps_per_second": rates[number]}
            for number, event in events.items()
            if event not in self._written
        ]
        self._folder.log_new(events)
        self._time, self._steps, self._learning = time.monotonic(), steps, ~diverged
        return float(rates.mean())

    def _steps_of(self, state: SequenceState) -> Int[np.ndarray, "runs"]:
        return fetch(state.result.learner.step)[: len(self._runs)].astype(int)

    def _events(
        self,
        state: SequenceState,
        diverged: Bool[np.ndarray, "runs"],
        ended: bool,
        steps: Int[np.ndarray, "runs"],
    ) -> dict[int, dict[str, Any]]:
        """Return the events of runs that learn, by position, without values of the clock."""
        task = int(state.task) - ended
        last = (self._protocol.epochs_of(task) if ended else int(state.epoch)) - 1
        losses, validation = fetch(state.result.losses), fetch(state.result.validation)
        events = {}
        for number in np.flatnonzero(self._learning).tolist():
            run, scores = self._runs[number], {}
            # Before joint training's only task nothing is learned.
            learned = steps[number] > 0
            if ended and learned and run.score is not None and not diverged[number]:
                over_time = run.score(result_of_run(state, number, self._mesh))
                # The only task of joint training stands for the last one.
                place = len(over_time) - losses.shape[1] + task
                refuse_other_than_shares(run.score_name, over_time[place])
                scores[run.score_name] = over_time[place]
            event = {
                "event": PROGRESS,
                PART: run.part,
                "method": run.method,
                "task": task,
                "epoch": epochs_done(self._protocol, state),
                "step": steps[number],
                **self._sizes,
                "loss": losses[number, task, last] if learned else None,
                "validation": validation[number, task, last],
                **scores,
                "diverged": diverged[number],
            }
            events[number] = plain_event(event)
        return events


def _without_times(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in TIMES}
