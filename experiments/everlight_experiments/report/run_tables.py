"""Numbers of a finished run as tidy tables: data frames of pandas, or arrays without it.

run = load_run("runs/run-digits-demo")
run.scores[run.scores["metric"] == "final accuracy"]
run.matrix("ER").mean(axis=0)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from everlight.metrics import backward_transfer, forgetting, student_interval
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_data.runs.configs import read_any_config
from everlight_data.runs.descriptions import read_described
from everlight_data.runs.finished_runs import (
    BY_TASK,
    OVER_TIME,
    PROVENANCE,
    REMEDY,
    USAGE_OVER_TIME,
    ResultKey,
    check_contents,
    matrix_name,
    read_results,
    score_names,
)
from everlight_experiments.report.cells import LEVEL, deviation
from everlight_experiments.report.over_time import (
    criteria_names,
    learns_at_once,
    mean_over_time,
    nan_before_only_task,
    score_matrices,
)

WAIT = "Wait for the run's end, or run it again."
LABELS = "setting", "method", "seed"
COSTS = "parameters", "parameter_copies", "memory_bytes", "sample_bytes", "batch_size", "operations"
"""Costs that are one number per method."""
USAGE = *USAGE_OVER_TIME, "seconds", "diverged_at"
"""Numbers of every training run that are no metrics."""
Table = Any
"""A `pandas.DataFrame` if pandas is installed, else a NumPy record array with the same columns."""
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class LoadedRun:
    """Numbers of a finished run of methods.

    Every table has one number or one training run per row. Seeds are those of `--seed`, and tasks
    count from 0. Columns: setting (or a paper's column), method, seed, and the ones named.
    """

    folder: Path
    arrays: Mapping[str, np.ndarray]
    """Contents of results.npz, by `setting/method/metric`."""
    first_seed: int
    has_metrics_option: bool = False
    """True if the run's command has the option --metrics."""

    @property
    def scores(self) -> Table:
        """One number per training run: metric, value.

        They are the final score, its mean over time, forgetting, backward transfer, and the
        metrics of a whole run.
        """
        criteria = run_criteria(self.arrays)
        whole_run = {
            name: array
            for name, array in metric_arrays(self.arrays)
            if array.ndim == 1 and name not in criteria
        }
        return self._long(criteria | whole_run, ())

    @property
    def curves(self) -> Table:
        """Metrics after every task: task, metric, value; NaN before joint training's only one."""
        arrays = {name: array for name, array in arrays_over_time(self.arrays) if array.ndim == 2}
        return self._long(arrays, ("task",))

    @property
    def matrices(self) -> Table:
        """Score after a task on the test samples of another: task, tested_on, metric, value.

        Values before joint training's only task are NaN.
        """
        return self._long(self._matrix_arrays(), ("task", "tested_on"))

    @property
    def costs(self) -> Table:
        """Costs of every training run, one per column.

        They are parameters, bytes, operations per step, optimizer steps, samples stored during the
        last task, seconds, and whether the run diverged.
        """
        blocks = []
        for key in steps_keys(self.arrays):
            values = {name: self.arrays[key.sibling(name)] for name in COSTS}
            steps, stored, seconds, diverged_at = (
                self.arrays[key.sibling(name)]
                for name in ("steps", "stored_samples", "seconds", "diverged_at")
            )
            seeds = len(steps)
            blocks.append(
                self._labels(key, np.arange(seeds))
                | {name: np.full(seeds, value) for name, value in values.items()}
                | {"steps": steps[:, -1], "stored_samples": stored[:, -1], "seconds": seconds}
                | {"diverged": diverged_at[:, 0] >= 0}
            )
        others = ("steps", "stored_samples", "seconds", "diverged")
        return as_table(blocks, (*LABELS, *COSTS, *others))

    @property
    def intervals(self) -> Table:
        """Mean over seeds of the numbers of a whole run: setting, method, metric, seeds, mean, ...

        `deviation` is the sample standard deviation, `low` and `high` Student's 95% interval, which
        is not cut at 0 or 1. Values are NaN where a run diverged or one seed gives none.
        """
        blocks = []
        for name, values in run_criteria(self.arrays).items():
            key, (mean, half) = ResultKey.parse(name), student_interval(values, LEVEL)
            texts = {"setting": key.column, "method": key.method, "metric": key.metric}
            numbers = {"mean": mean, "deviation": deviation(values), "low": mean - half}
            row = texts | {"seeds": len(values)} | numbers | {"high": mean + half}
            blocks.append({column: np.array([value]) for column, value in row.items()})
        names = ("setting", "method", "metric", "seeds", "mean", "deviation", "low", "high")
        return as_table(blocks, names)

    @property
    def methods(self) -> dict[str, list[str]]:
        """Methods by setting, in the order of the report."""
        methods: dict[str, list[str]] = {}
        for key in steps_keys(self.arrays):
            methods.setdefault(key.column, []).append(key.method)
        return methods

    def matrix(
        self, method: str, setting: str | None = None, metric: str | None = None
    ) -> Float[np.ndarray, "seeds t t"]:
        """Return the accuracy matrices of a method, one per seed; NaN before joint training's task.

        Args:
          method: name in the report.
          setting: setting of the matrices; None where the run has one.
          metric: name of the score; None is the run's own.

        Raises:
          DataError: there is no such method, setting or matrix.
        """
        settings = list(self.methods)
        if setting is None and len(settings) > 1:
            raise DataError(f"{self.folder} has several settings; give one: {', '.join(settings)}")
        setting = settings[0] if setting is None else setting
        check_name("setting", setting, settings)
        check_name("method", method, self.methods[setting])
        stored = self._matrix_arrays()
        keys = [ResultKey.parse(name) for name in stored]
        metrics = dict.fromkeys(key.metric.removesuffix(BY_TASK) for key in keys)
        metric = score_names(self.arrays)[0] if metric is None else metric
        check_name("metric with a matrix", metric, list(metrics))
        return stored[str(ResultKey(setting, method, matrix_name(metric)))]

    def losses(self) -> Table:
        """Read the loss of every epoch of the evaluation seeds: task, epoch, loss.

        `unit` is the name of the training run. Tasks without optimizer steps have no rows: joint
        training has those of the last task alone.

        Raises:
          DataError: a file of a training run is damaged.
        """
        return self._stored("losses", ("task", "epoch"), "loss")

    def predictions(self) -> Table:
        """Read the class predicted for every test sample: task, sample, predicted.

        It is the class's number, or -1 for samples that were not evaluated. `unit` is the name of
        the training run. The table has a row per task and test sample of every run; joint training
        has those after the last task alone.

        Raises:
          DataError: the run kept no predicted classes, or a file of a training run is damaged.
        """
        table = self._stored("predicted", ("task", "sample"), "predicted")
        if not len(table):
            advice = "; give its command --metrics confusion" if self.has_metrics_option else ""
            raise DataError(f"{self.folder} kept no predicted classes{advice}")
        return table

    def _matrix_arrays(self) -> dict[str, np.ndarray]:
        return {
            name: array
            for name, array in arrays_over_time(self.arrays)
            if array.ndim == 3 and name.endswith(BY_TASK)
        }

    def _labels(self, key: ResultKey, seeds: np.ndarray) -> dict[str, np.ndarray]:
        texts = (np.full(len(seeds), text) for text in (key.column, key.method))
        return dict(zip(LABELS, (*texts, self.first_seed + seeds), strict=True))

    def _long(self, arrays: Mapping[str, np.ndarray], axes: Sequence[str]) -> Table:
        """Return a row per number of arrays whose first axis is over seeds."""
        blocks = []
        for name, array in arrays.items():
            key = ResultKey.parse(name)
            seeds, *places = np.indices(array.shape).reshape(array.ndim, -1)
            blocks.append(
                self._labels(key, seeds)
                | dict(zip(axes, places, strict=True))
                | {"metric": np.full(array.size, key.metric), "value": array.ravel()}
            )
        return as_table(blocks, (*LABELS, *axes, "metric", "value"))

    def _stored(self, name: str, axes: tuple[str, str], value: str) -> Table:
        """Return a row per number of an array of every evaluation run, whose first axis is tasks.

        Joint training's only task stands for the last one.
        """
        blocks, texts = [], ("unit", *LABELS)
        for unit, (key, seed), arrays in self._evaluation_runs():
            array = arrays.get(name, np.zeros(0))
            if array.ndim == 2 and array.dtype.kind in "iuf":
                steps = self.arrays[str(key)][seed - self.first_seed]
                tasks = len(steps) - len(array) + np.arange(len(array))
                keep = np.isin(tasks, tasks_with_values(name, steps))
                array, tasks = array[keep], tasks[keep]
                rows, places = np.indices(array.shape).reshape(2, -1)
                values = (unit, key.column, key.method, seed)
                blocks.append(
                    {text: np.full(array.size, x) for text, x in zip(texts, values, strict=True)}
                    | dict(zip(axes, (tasks[rows], places), strict=True))
                    | {value: array.ravel()}
                )
        return as_table(blocks, (*texts, *axes, value))

    def _evaluation_runs(
        self,
    ) -> Iterator[tuple[str, tuple[ResultKey, int], dict[str, np.ndarray]]]:
        """Yield name, key of the steps and seed, and arrays of every run behind the results.

        The folder may have others: of methods or seeds that a later call left out.
        """
        keys = {key[:2]: key for key in steps_keys(self.arrays)}
        for path in sorted((self.folder / "units").glob("*.npz")):
            column = column_of_unit(path.stem, list(self.methods))
            if not column:
                continue
            fingerprint, arrays = read_described(path, path.stem, WAIT)
            key, seed = keys.get((column, fingerprint.get("method"))), fingerprint.get("order")
            if key and seed in self.first_seed + np.arange(len(self.arrays[str(key)])):
                yield path.stem, (key, seed), arrays


def load_run(folder: Path | str) -> LoadedRun:
    """Read the numbers of a finished run of methods.

    Raises:
      MissingDataError: results.npz or config.json does not exist.
      DataError: one of them is damaged, edited, or of another kind of run.
    """
    folder = Path(folder)
    path = folder / "results.npz"
    arrays = read_results(path, REMEDY)
    check_contents(path, arrays, ("draws", "measure"))
    settings = read_any_config(folder / "config.json", REMEDY)["settings"]
    # A user's Benchmark has no configuration.
    config = settings.get("config") or {}
    return LoadedRun(folder, arrays, settings.get("seed", 0), "metrics" in config)


def steps_keys(arrays: Mapping[str, np.ndarray]) -> list[ResultKey]:
    """Return the keys of the methods' steps, one per setting and method."""
    keys = map(ResultKey.parse, arrays)
    return [key for key in keys if key.metric == "steps" and key.method]


def metric_arrays(arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield numeric arrays with a value per seed that are no costs or grids."""
    others = {*COSTS, *USAGE, *PROVENANCE}
    seeds = {key[:2]: len(arrays[str(key)]) for key in steps_keys(arrays)}
    for name, array in arrays.items():
        key = ResultKey.parse(name)
        is_metric = key[:2] in seeds and key.metric not in others and array.dtype.kind in "iuf"
        if is_metric and array.shape[:1] == (seeds[key[:2]],):
            yield name, array


def arrays_over_time(arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield metrics with a value per seed and task learned; NaN before joint training's one."""
    metric_names = arrays.get(OVER_TIME)
    for name, array in metric_arrays(arrays):
        key = ResultKey.parse(name)
        steps = arrays[key.sibling("steps")]
        # Runs of earlier versions have no names of such metrics.
        if metric_names is None:
            is_over_time = array.shape[:2] == steps.shape
        else:
            is_over_time = key.metric in metric_names
        if is_over_time:
            yield name, nan_before_only_task(array, steps)


def tasks_with_values(name: str, steps: Int[np.ndarray, "t"]) -> Int[np.ndarray, "tasks"]:
    """Return the tasks after which a training run has losses or predictions worth reading."""
    if name == "losses":
        return np.flatnonzero(np.diff(steps, prepend=0))
    first = len(steps) - 1 if learns_at_once(steps[None]) else 0
    return np.arange(first, len(steps))


def column_of_unit(unit: str, columns: Sequence[str]) -> str:
    """Return the column of a training run, with which its name begins; empty if it has none."""

    def hyphenated(name: str) -> str:
        return name.replace(", ", "-").replace(" ", "-")

    candidates = [name for name in columns if hyphenated(unit).startswith(f"{hyphenated(name)}-")]
    return max(candidates, key=len, default="")


def as_table(blocks: Iterable[Columns], names: Sequence[str]) -> Table:
    """Return columns below one another, as a data frame if pandas is installed."""
    blocks = list(blocks)
    columns = {
        name: np.concatenate([block[name] for block in blocks]) if blocks else np.zeros(0)
        for name in names
    }
    try:
        from pandas import DataFrame
    except ImportError:
        return np.rec.fromarrays(list(columns.values()), names=list(columns))
    return DataFrame(columns)


def run_criteria(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the numbers of the report's first tables, one per run, by name like the arrays."""
    scores, criteria = score_names(arrays), {}
    for name, values in arrays.items():
        key = ResultKey.parse(name)
        score = key.metric
        matrices, steps = (
            arrays.get(key.sibling(other)) for other in (matrix_name(score), "steps")
        )
        # The baselines of facts are not trained: they have scores and no steps.
        if score not in scores or matrices is None or steps is None or not key.method:
            continue
        names = map(key.sibling, criteria_names(score, scores[0]))
        by_task = matrices, steps, np.isnan(values[:, -1])
        numbers = (
            values[:, -1],
            mean_over_time(values, steps),
            score_matrices(forgetting, *by_task),
            score_matrices(backward_transfer, *by_task),
        )
        criteria |= dict(zip(names, numbers, strict=True))
    return criteria
