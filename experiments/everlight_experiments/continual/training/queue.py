"""The queue of a run: its methods on its benchmarks, trained one after another, and its results."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from everlight.base import TaskSequence
from everlight.continual.methods.method import Method, incompatibility
from everlight.continual.methods.registry import METHODS
from everlight.trees import checksums_of, tree_bytes
from everlight_data.errors import DataError
from everlight_data.runs.finished_runs import MEASURES, OVER_TIME, PROVENANCE, matrix_name
from everlight_data.writing import amount
from everlight_experiments.continual.benchmarks.benchmark import Benchmarks, Data
from everlight_experiments.continual.benchmarks.metric import Metrics
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.continual.training.outcome import (
    RESERVED,
    Outcome,
    Outcomes,
    arrays_of,
)
from everlight_experiments.continual.training.programs import Builds, MethodPrograms
from everlight_experiments.continual.training.runner import CHECKPOINT_OVERHEAD_BYTES, Runner
from everlight_experiments.report.over_time import criteria_names
from everlight_experiments.run_folder.folder import NETS, RunFolder


class Job(NamedTuple):
    """A method on a benchmark."""

    column: str
    """Name of the benchmark among those of the run."""
    method: Method
    seeds: int


def runners_of(
    folder: RunFolder,
    benchmarks: Benchmarks,
    seed: int,
    validation_seeds: int,
    keep_nets: bool = False,
) -> dict[str, Runner]:
    """Return a runner for every benchmark, prepared in the folder; they share compiled programs.

    Raises:
      DataError: a setting has a slash in its name, or a metric the name of another number of the
        results.
    """
    for benchmark in benchmarks.values():
        if "/" in benchmark.setting.name:
            raise DataError(
                f"the setting {benchmark.setting.name!a} has a /, which separates names in "
                "results.npz; rename it"
            )
        check_metric_names(benchmark.setting.metrics)
    builds: Builds = {}
    prepared = {column: benchmark.prepared(folder) for column, benchmark in benchmarks.items()}
    return {
        column: Runner(folder, MethodPrograms(benchmark, builds), seed, validation_seeds, keep_nets)
        for column, benchmark in prepared.items()
    }


def check_metric_names(metrics: Metrics) -> None:
    """Refuse metrics that would replace other numbers of results, and scores without a matrix.

    Raises:
      DataError: a name occurs twice, has a slash, or is that of a number that results have or
        exports derive from the scores; or the matrix of a score has another name.
    """
    names = [metric.name for metric in metrics.all]
    first = metrics.score.name
    derived = {name for score in metrics.scores for name in criteria_names(score, first)}
    for name in names:
        reason = None
        if name in derived:
            reason = "has the name of a number that exports derive from the score"
        elif name in RESERVED | PROVENANCE:
            reason = "has the name of another number of the results"
        elif names.count(name) > 1:
            reason = "is there twice"
        elif "/" in name:
            reason = "has a /, which separates names in results.npz"
        if reason is not None:
            raise DataError(f"the metric {name!a} {reason}; rename it")
    for score in metrics.scores:
        if matrix_name(score) not in names:
            raise DataError(
                f"the score {score!a} has no metric {matrix_name(score)!a}; give its matrix this "
                "name"
            )


def jobs_of(benchmarks: Benchmarks, methods: Sequence[Method], seeds: int) -> list[Job]:
    """Return every method on every benchmark that it applies to; see `programs.method_on`.

    Settings follow each other within a method: they may share programs.
    """
    return [
        Job(column, method, seeds)
        for method in methods
        for column, benchmark in benchmarks.items()
        if incompatibility(method, benchmark.setting.capabilities) is None
    ]


def check_jobs(runners: Mapping[str, Runner], jobs: Sequence[Job]) -> None:
    """Refuse jobs that cannot be trained to their end.

    Raises:
      DataError: a method has no score on the benchmark's validation tasks, or has no samples there.
    """
    for job in jobs:
        runners[job.column].check(job.method)


def train_jobs(runners: Mapping[str, Runner], jobs: Sequence[Job]) -> Outcomes:
    """Train all jobs; those that other processes are training come last.

    Returns:
      outcomes by column and method, in the order of the runners and jobs.
    """
    by_job: dict[tuple[str, str], Outcome] = {}
    left = list(jobs)
    while left:
        free = (job for job in left if not runners[job.column].is_elsewhere(job.method, job.seeds))
        job = next(free, left[0])
        left.remove(job)
        outcome = runners[job.column].outcome(job.method, job.seeds)
        by_job[job.column, job.method.name] = outcome
        score = f"{outcome.score} {outcome.final.mean():.3f}"
        print(f"{job.column}, {job.method.name}: final {score}", flush=True)
    outcomes: dict[str, dict[str, Outcome]] = {column: {} for column in runners}
    for job in jobs:
        outcomes[job.column][job.method.name] = by_job[job.column, job.method.name]
    return outcomes


def print_size_of_nets(runners: Mapping[str, Runner], jobs: Sequence[Job], path: str) -> None:
    """Print, before anything is trained, how much space the kept networks take."""
    needed = 0
    for job in jobs:
        programs = runners[job.column].programs
        size = CHECKPOINT_OVERHEAD_BYTES + tree_bytes(programs.saved_shapes(job.method))
        needed += job.seeds * programs.run(job.method).tasks * size
    print(f"--keep-nets: about {amount(needed)} in all, in {path}/{NETS}", flush=True)


def save_outcomes(
    folder: RunFolder,
    benchmarks: Benchmarks,
    seed: int,
    seeds: int,
    outcomes: Outcomes,
    others: Mapping[str, np.ndarray] = {},
) -> None:
    """Save all metrics as `column/method/name`, checksums for `compare`, and other arrays."""
    ids = [SequenceId("evaluation", seed, number) for number in range(seeds)]
    sequences = sequences_of(benchmarks, ids)
    first = next(iter(benchmarks.values()))
    folder.save_results(
        draws=np.array([_checksum_of_samples(items) for items in sequences]),
        orders=order_checksums(benchmarks, ids, sequences),
        data=np.array(first.data.checksums),
        tested=np.array(first.setting.tested),
        **dict(zip(MEASURES, map(np.array, first.setting.metrics.scores), strict=False)),
        **names_over_time(benchmarks),
        **arrays_of(outcomes),
        **others,
    )


def names_over_time(benchmarks: Benchmarks) -> dict[str, np.ndarray]:
    """Return the array of results with the names of metrics that are over the tasks learned."""
    metrics = [metric for bench in benchmarks.values() for metric in bench.setting.metrics.all]
    names = sorted({metric.name for metric in metrics if metric.axes[:1] == ("time",)})
    return {OVER_TIME: np.array(names)}


def sequences_of(benchmarks: Benchmarks, ids: Sequence[SequenceId]) -> list[list[TaskSequence]]:
    """Return the sequences of all benchmarks, for each of the identities."""
    return [
        [bench.data.sequence(METHODS["naive"], seq_id) for bench in benchmarks.values()]
        for seq_id in ids
    ]


def order_checksums(
    benchmarks: Benchmarks, ids: Sequence[SequenceId], sequences: Sequence[Sequence[TaskSequence]]
) -> Int[np.ndarray, "sequences"]:
    """Return a checksum of each sequence's tasks and test samples, equal where scores are paired.

    It covers the classes that each task brings and trains on, the test samples with their labels,
    the transform of the inputs, and options that mix the tasks. The training samples of the classes
    are left out, so options may differ that set them apart for validation. Of several sequences
    with equal tasks the first of one run is equal to the first of another, and so on.
    """
    tasks = [
        _checksum_of_tasks(benchmarks, seq_id, items)
        for seq_id, items in zip(ids, sequences, strict=True)
    ]
    earlier = [tasks[:number].count(tasks[number]) for number in range(len(tasks))]
    return np.array([checksums_of(np.array(pair))[0] for pair in zip(tasks, earlier, strict=True)])


def _checksum_of_tasks(
    benchmarks: Benchmarks, seq_id: SequenceId, sequences: Sequence[TaskSequence]
) -> int:
    """Return the checksum of the tasks of all settings; those with equal tasks count once."""
    by_setting = {
        _task_checksums(benchmark.data, seq_id, sequence)
        for benchmark, sequence in zip(benchmarks.values(), sequences, strict=True)
    }
    return checksums_of(np.array(sorted(by_setting)))[0]


def _task_checksums(data: Data, seq_id: SequenceId, sequence: TaskSequence) -> tuple[int, ...]:
    train, test = jax.tree.map(np.asarray, (sequence.tasks.train, sequence.test))
    task, place = np.nonzero(train.mask)
    labels = train.labels[task, place]
    learned = np.zeros((len(train.mask), len(sequence.class_task) + 1), bool)
    # The missing labels of a sample are -1: the last column.
    learned[task[:, None], labels] = True
    options = {**data.stream, "seed": seq_id.seed} if data.draws_stream else data.stream
    return checksums_of(
        sequence.class_task,
        learned[:, :-1],
        test.index[test.mask],
        test.labels[test.mask],
        np.asarray(sequence.test_member)[:, test.mask],
        *jax.tree.leaves(sequence.test_classes),
        np.frombuffer(json.dumps(options, sort_keys=True).encode(), np.uint8),
    )


def _checksum_of_samples(sequences: Sequence[TaskSequence]) -> int:
    """Return the checksum of all samples in their order, which pairs runs without `orders`."""
    leaves = checksums_of(*map(np.asarray, jax.tree.leaves(sequences)))
    return checksums_of(np.array(leaves))[0]
