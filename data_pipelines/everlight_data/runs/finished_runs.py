"""Results of finished runs of methods, read from their folders."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from everlight_data.errors import DataError
from everlight_data.formats.files import refusing
from everlight_data.runs.configs import read_any_config
from everlight_data.sets.data_checksums import DataChecksums
from everlight_data.texts import printable
from everlight_data.writing import read_sealed

REMEDY = "Name the folder of a finished run of methods, such as `everlight run`."
MEASURES = "measure", "second_measure"
"""Arrays of results with the name of the score, and of the second one where there is one."""
PROVENANCE = {"draws", "orders", "data", "hyperparameters", "tried", "hyperparameter", "flat"}
"""Numbers of results that are no scores or costs: checksums, and selected hyper-parameters."""
OVER_TIME = "over_time"
"""Array of results with the names of metrics whose second axis is over the tasks learned."""
BY_TASK = " by task"
"""Ending of the name of a metric that is a matrix: after the task of the row, on the column's."""
USAGE_OVER_TIME = "steps", "stored_samples", "samples"
"""Numbers of every training run whose second axis is over the tasks learned."""


class ResultKey(NamedTuple):
    """Name of an array of results; column and method are empty where it is of the whole run."""

    column: str
    method: str
    metric: str

    @classmethod
    def parse(cls, name: str) -> "ResultKey":
        """Return the parts of `column/method/metric`; another name is a metric as a whole."""
        before, _, metric = name.rpartition("/")
        column, _, method = before.partition("/")
        return cls(column, method, metric) if method else cls("", "", name)

    def __str__(self) -> str:
        return f"{self.column}/{self.method}/{self.metric}" if self.method else self.metric

    def sibling(self, metric: str) -> str:
        """Return the name of another metric of the method."""
        return str(self._replace(metric=metric))


class Number(NamedTuple):
    """A number of results; fields are empty where its array is of no method, seed or task."""

    method: str
    setting: str
    seed: int | str
    task: int | str
    tested_on: int | str
    metric: str
    value: Any


class FinishedRun(NamedTuple):
    """Results of a run."""

    name: str
    """Name of its folder."""
    checksums: DataChecksums
    """Checksums of the data."""
    draws: Int[np.ndarray, "seeds"]
    """Checksum of the order of samples, for each seed."""
    orders: Int[np.ndarray, "seeds"] | None
    """Checksum of the tasks and test samples of each seed; None in runs of earlier versions."""
    score: str
    """Name of the metric in `finals`."""
    finals: dict[str, dict[str, Float[np.ndarray, "_"]]]
    """Final scores of the seeds by column and method; NaN where a run diverged."""
    options: dict[str, Any]
    """Options by name, those of the configuration too."""


def read_finished_run(folder: Path) -> FinishedRun:
    """Return the results of a run's folder.

    Raises:
      MissingDataError: results.npz or config.json does not exist.
      DataError: one of them is damaged, edited, or of another kind of run.
    """
    path = folder / "results.npz"
    arrays = read_results(path, REMEDY)
    check_contents(path, arrays, ("draws", "data", "measure"))
    score = str(arrays["measure"])
    finals: dict[str, dict[str, np.ndarray]] = {}
    for name, values in arrays.items():
        key = ResultKey.parse(name)
        if key.metric == score and key.method:
            finals.setdefault(key.column, {})[key.method] = values[:, -1]
    config = folder / "config.json"
    stored = read_any_config(config, REMEDY)
    with refusing(config, REMEDY):
        options = _flat("", stored["settings"])
    checksums = DataChecksums.from_stored(arrays["data"])
    name = printable(folder.resolve().name)
    draws, orders = arrays["draws"], arrays.get("orders")
    return FinishedRun(name, checksums, draws, orders, score, finals, options)


def read_results(path: Path, remedy: str) -> dict[str, np.ndarray]:
    """Return the arrays of a results.npz by name, with scores and steps of the shapes they need.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file has changed since it was written, or an array has another type or shape.
    """
    arrays = read_sealed(path, remedy)
    with refusing(path, remedy):
        for name in set(MEASURES) & set(arrays):
            _check(name, arrays[name], "U", arrays[name].shape == ())
        scores = score_names(arrays)
        matrices = set(map(matrix_name, scores))
        # Steps come first, as scores must have their shape.
        for name, array in sorted(arrays.items(), key=lambda item: not item[0].endswith("/steps")):
            key = ResultKey.parse(name)
            steps = arrays.get(key.sibling("steps"), array).shape
            if name == OVER_TIME:
                _check(name, array, "U", array.ndim == 1)
            elif name == "data":
                DataChecksums.from_stored(array)
            elif name == "draws":
                _check(name, array, "iu", array.ndim == 1 and array.size > 0)
            elif name == "orders":
                _check(name, array, "iu", array.shape == arrays.get("draws", array).shape)
            elif not key.method:
                continue
            elif key.metric == "steps":
                _check(name, array, "iu", array.ndim == 2 and array.size > 0)
            elif key.metric in scores:
                fits = array.ndim == 2 and array.size > 0 and array.shape == steps
                _check(name, array, "f", fits)
            elif key.metric in matrices and key.sibling("steps") in arrays:
                _check(name, array, "f", array.shape == (*steps, steps[-1]))
    return arrays


def score_names(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Return the names of the scores in a results.npz, the first one first."""
    return [str(arrays[name]) for name in MEASURES if name in arrays]


def matrix_name(score: str) -> str:
    """Return the name of the metric that is a score after each task on each task."""
    return score + BY_TASK


def check_contents(path: Path, arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> None:
    """Refuse a results.npz without arrays of these names.

    Raises:
      DataError: the message has the names.
    """
    if missing := set(names) - set(arrays):
        raise DataError(f"{path} lacks {', '.join(sorted(missing))}. {REMEDY}")


def _check(name: str, array: np.ndarray, kinds: str, fits: bool) -> None:
    if array.dtype.kind not in kinds or not fits:
        raise ValueError(f"{name} has dtype {array.dtype} and shape {array.shape}")


def check_comparable(runs: Sequence[FinishedRun], ignored: Collection[str] = ()) -> None:
    """Refuse runs that cannot be paired with the first one.

    Args:
      runs: runs to compare.
      ignored: options that change no number, which the message leaves out.

    Raises:
      DataError: a run is on other data, has another score, or shares no seed with the first.
    """
    first = runs[0]
    for other in runs[1:]:
        # Images of another size, or generated from another seed, have other checksums.
        seeds = {run.options.get("seed") for run in (first, other)}
        compared = other.checksums
        if len(seeds) == 1:
            compared = compared._replace(images=first.checksums.images)
        if compared != first.checksums or other.score != first.score:
            raise DataError(
                f"{other.name} has other data than {first.name}; they cannot be paired. Give runs "
                "of one benchmark, on the same images and labels."
            )
        pair = _seed_checksums(first, other)
        if not len(np.intersect1d(*pair)):
            options = name_other_options([first, other], ignored)
            # Runs of earlier versions have checksums of all samples alone.
            by_samples = pair[0] is first.draws
            shared = "learn no samples in the same order" if by_samples else "share no tasks"
            images = "validation" if by_samples else "test"
            raise DataError(
                f"{other.name} and {first.name} {shared}; they differ in {options}. Give runs "
                f"whose seeds (--seed, --seeds) overlap, with the same tasks and {images} images."
            )


def differences(
    first: FinishedRun, other: FinishedRun, column: str
) -> dict[str, Float[np.ndarray, "seeds"]]:
    """Return final scores minus those of the first run on the seeds that both have, by method."""
    base, compared = (run.finals.get(column, {}) for run in (first, other))
    checksums, by_method = _seed_checksums(first, other), {}
    for name in base.keys() & compared.keys():
        # A method of a paper's run may have fewer seeds than the others.
        lengths = len(base[name]), len(compared[name])
        pair = [values[:end] for values, end in zip(checksums, lengths, strict=True)]
        _, rows, other_rows = np.intersect1d(*pair, return_indices=True)
        if len(rows):
            by_method[name] = compared[name][other_rows] - base[name][rows]
    return by_method


def _seed_checksums(
    first: FinishedRun, other: FinishedRun
) -> tuple[Int[np.ndarray, "a"], Int[np.ndarray, "b"]]:
    """Return a checksum for each seed of both runs; seeds of equal ones are paired."""
    if first.orders is None or other.orders is None:
        return first.draws, other.draws
    return first.orders, other.orders


def name_other_options(runs: Sequence[FinishedRun], ignored: Collection[str] = ()) -> str:
    """Return each option that differs between runs, with its values in their order, as text."""
    names = sorted({name for run in runs for name in run.options}.difference(ignored))
    differing = []
    for name in names:
        values = [run.options.get(name) for run in runs]
        if any(value != values[0] for value in values):
            differing.append(f"{name}: {' | '.join(printable(str(value)) for value in values)}")
    return "; ".join(differing) or "none"


def list_numbers(arrays: Mapping[str, np.ndarray], first_seed: int) -> Iterator[Number]:
    """Yield every number of a results.npz, 0 for False and 1 for True; texts are left out.

    Places along other axes stand in brackets behind the metric, as in `tried[2]`.
    """
    for name, array in arrays.items():
        if array.dtype.kind in "biuf":
            yield from _numbers(name, arrays, first_seed)


def _numbers(name: str, arrays: Mapping[str, np.ndarray], first: int) -> Iterator[Number]:
    key, shape = ResultKey.parse(name), arrays[name].shape
    steps = arrays.get(key.sibling("steps")) if key.method else None
    if steps is None:
        key, of_seeds = ResultKey("", "", name), False
    else:
        # The grid of a hyper-parameter has no seeds.
        of_seeds = shape[:1] == steps.shape[:1] and key.metric not in ("hyperparameters", "tried")
    count = task_axes(key.metric, shape, steps.shape[1], arrays.get(OVER_TIME)) if of_seeds else 0
    for place, value in np.ndenumerate(arrays[name]):
        seed = first + place[0] if of_seeds else ""
        task, tested = [*place[1 : 1 + count], "", ""][:2]
        left = ",".join(map(str, place[of_seeds + count :]))
        metric = key.metric + (f"[{left}]" if left else "")
        number = int(value) if value.dtype.kind == "b" else value
        yield Number(key.method, key.column, seed, task, tested, metric, number)


def task_axes(metric: str, shape: Sequence[int], tasks: int, over_time: np.ndarray | None) -> int:
    """Return the number of axes after the seeds' that are over tasks: learned, then tested."""
    if over_time is None:
        # Runs of earlier versions have no names of such metrics.
        return len(list(itertools.takewhile(lambda size: size == tasks, shape[1:3])))
    if metric not in (*over_time, *USAGE_OVER_TIME):
        return 0
    return 2 if metric.endswith(BY_TASK) and shape[2:3] == (tasks,) else 1


def _flat(name: str, part: Any) -> dict[str, Any]:
    """Return options by name, those of parts after a dot and those of the configuration alone.

    A paper's configuration has that of its benchmark as a part, whose options have equal names.
    """
    if not isinstance(part, dict):
        return {name: part}
    before = "" if name in ("", "config", "benchmark") else f"{name}."
    options: dict[str, Any] = {}
    for key, value in part.items():
        options |= _flat(f"{before}{key}", value)
    return options
