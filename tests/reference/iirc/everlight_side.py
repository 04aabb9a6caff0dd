"""Everlight's runs: the benchmark of `everlight run iirc` on the archive that both sides read."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from everlight.continual import Protocol, Run, Runs, Setup, Strategy, drive_runs
from everlight_data.images.iirc_sets import IIRCData
from everlight_experiments.continual.benchmark import Benchmark, Draw, RunData
from everlight_experiments.iirc.benchmark import iirc_benchmark, label_scores, learn
from everlight_experiments.iirc.config import FORMS, Config
from tests.reference.iirc.cases import Case
from tests.reference.iirc.material import DATA, Plan

Adapt = Callable[[Setup], Setup]


class Curve(NamedTuple):
    """Scores of a run."""

    scores: Float[np.ndarray, "t"]
    """pw-JS on the test samples of all tasks so far, after every task."""
    by_task: Float[np.ndarray, "t t"]
    """pw-JS after task i on the test samples of task j."""
    seconds: float


def config_of(plan: Plan) -> Config:
    """Return the benchmark's configuration with a plan's settings."""
    protocol = Protocol(
        epochs=plan.epochs,
        first_epochs=2 * plan.epochs,
        batch_size=plan.batch_size,
        plateau_factor=0.1,
    )
    return Config(
        data=DATA,
        side=32,
        protocol=protocol,
        net=f"resnet:{plan.blocks}",
        learning_rate=plan.learning_rate,
        weight_decay=plan.weight_decay,
        exemplars_per_class=plan.exemplars_per_class,
    )


def make_benchmark(data: IIRCData, plan: Plan, folder: Path) -> Benchmark:
    """Return the benchmark of a plan."""
    config = config_of(plan)
    # The task configuration leaves classes out, for which the head has no outputs.
    learned = learn(config, data, folder)
    return iirc_benchmark(config, learned, 0)


def train_seeds(
    data: IIRCData, plan: Plan, folder: Path, case: Case, seeds: range
) -> Iterator[Curve]:
    """Train a method once per seed with one compiled program; yields the scores of every seed."""
    benchmark, method = make_benchmark(data, plan, folder), FORMS[case.name]
    draw = Draw("evaluation", 0, 0)
    sequence = benchmark.sequence(method, draw)
    (hyperparameter,) = method.hyperparameters or (0.0,)

    def build(given: RunData) -> tuple[Setup, Strategy]:
        setup, needs = benchmark.begin(method, given)
        return setup, method.make(setup, needs._replace(hyperparameter=hyperparameter))

    given = RunData(benchmark.shared(method), benchmark.own(sequence, hyperparameter))
    for seed in seeds:
        begin = time.perf_counter()
        run = Run(build, benchmark.protocol(method), given, sequence, jax.random.key(seed))
        for state in drive_runs(Runs.of(run), chunk=2 * plan.epochs):
            last = state
        result = jax.tree.map(lambda leaf: np.asarray(leaf[0]), last.result)
        means = label_scores(sequence, result.evaluation, data.superclass(0)).means
        scores, by_task = (
            np.asarray(each.precision_weighted_jaccard) for each in (means.union, means.by_task)
        )
        yield Curve(scores, by_task, time.perf_counter() - begin)
