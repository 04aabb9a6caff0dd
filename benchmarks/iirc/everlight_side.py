"""Everlight's runs: the benchmark of `everlight run iirc` on the archive that both sides read."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PyTree

from benchmarks.iirc.cases import CASES, Case
from benchmarks.iirc.inputs import DATA, Workload
from everlight.continual import (
    Protocol,
    Run,
    Runs,
    Setup,
    Strategy,
    TaskSequence,
    drive_runs,
)
from everlight.continual.methods.method import Method, StrategyArguments
from everlight.continual.objectives.multilabel import label_scores
from everlight.metrics.multilabel import TaskMeans
from everlight_data.iirc.sets import IIRCData
from everlight_experiments.continual.benchmarks.benchmark import Benchmark
from everlight_experiments.continual.benchmarks.run_data import RunData, SequenceId
from everlight_experiments.iirc.benchmark import iirc_benchmark, load_inputs
from everlight_experiments.iirc.config import FORMS, IIRCConfig


class Curve(NamedTuple):
    """Scores of a run."""

    scores: Float[np.ndarray, "t"]
    """pw-JS on the test samples of all tasks so far, after every task."""
    by_task: Float[np.ndarray, "t t"]
    """pw-JS after task i on the test samples of task j."""
    seconds: float


def config_of(workload: Workload) -> IIRCConfig:
    """Return the benchmark's configuration with a workload's settings."""
    protocol = Protocol(
        epochs=workload.epochs,
        first_epochs=2 * workload.epochs,
        batch_size=workload.batch_size,
        plateau_factor=0.1,
    )
    return IIRCConfig(
        data=DATA,
        side=32,
        protocol=protocol,
        net=f"resnet:{workload.blocks}",
        learning_rate=workload.learning_rate,
        weight_decay=workload.weight_decay,
        exemplars_per_class=workload.exemplars_per_class,
    )


def make_run(
    data: IIRCData, workload: Workload, folder: Path, case: Case, seed: int
) -> tuple[Run, TaskSequence]:
    """Return a method's run on one seed, and its tasks."""
    config = config_of(workload)
    benchmark = iirc_benchmark(config, load_inputs(config, data, folder), 0)
    if not workload.augment:
        training = benchmark.training._replace(setup=_without_augmentation(benchmark))
        benchmark = benchmark._replace(training=training)
    method = FORMS[case.name]
    sequence = benchmark.data.sequence(method, SequenceId("evaluation", 0, 0))
    (hyperparameter,) = method.hyperparameters or (0.0,)

    def build(run_data: RunData) -> tuple[Setup, Strategy]:
        setup, arguments = benchmark.training.setup(method, run_data)
        return setup, method.make(setup, arguments._replace(hyperparameter=hyperparameter))

    run_data = benchmark.run_data(method, sequence, hyperparameter)
    protocol = benchmark.training.protocol(method)
    return Run(build, protocol, run_data, sequence, jax.random.key(seed)), sequence


def parameter_shapes(data: IIRCData, workload: Workload, folder: Path) -> list[tuple[int, ...]]:
    """Return the shapes of the parameters of the network with a linear head."""
    run, _ = make_run(data, workload, folder, CASES[0], 0)
    params, _ = jax.eval_shape(lambda key: run.setup_and_strategy()[0].init(key), run.key)
    return [leaf.shape for leaf in jax.tree.leaves(params)]


def _without_augmentation(benchmark: Benchmark) -> Callable:
    def begin(method: Method, run_data: RunData) -> tuple[Setup, StrategyArguments]:
        setup, arguments = benchmark.training.setup(method, run_data)
        return setup._replace(gather=lambda index, key: setup.gather(index, None)), arguments

    return begin


def train_seeds(
    data: IIRCData, workload: Workload, folder: Path, case: Case, seeds: Iterable[int]
) -> Iterator[Curve]:
    """Train a method once per seed with one compiled program; yield the scores of every seed."""
    run, sequence = make_run(data, workload, folder, case, 0)
    for seed in seeds:
        begin = time.perf_counter()
        seeded = dataclasses.replace(run, key=jax.random.key(seed))
        for state in drive_runs(Runs.of(seeded), chunk=2 * workload.epochs):
            last = state
        evaluation = jax.tree.map(lambda leaf: np.asarray(leaf[0]), last.result.evaluation)
        means = label_scores_of(data, sequence, evaluation)
        scores, by_task = (
            np.asarray(score.precision_weighted_jaccard) for score in (means.union, means.by_task)
        )
        yield Curve(scores, by_task, time.perf_counter() - begin)


def label_scores_of(data: IIRCData, sequence: TaskSequence, predicted: PyTree) -> TaskMeans:
    """Return the mean scores after every task."""
    return label_scores(sequence, np.asarray(predicted), data.superclass(0)).means
