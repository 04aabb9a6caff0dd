"""Slowly changing regression: which method keeps what backpropagation loses.

    everlight slowly-changing-regression
    everlight slowly-changing-regression --tasks 100 --samples 10000 --hyperparameters CBP=1e-4

All seeds of a method are one program whose tasks are drawn inside it. The paper has 100 tasks of
10,000 samples (Dohare et al. 2024, Nature).
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from everlight.checks import Between
from everlight.continual import (
    ComputedInputs,
    GeneratedResult,
    TaskGenerator,
    flax_setup,
    learn_generated,
    regression_objective,
)
from everlight.continual.method import Method, Needs
from everlight.continual.registry import METHODS
from everlight.metrics import diagnose_plasticity
from everlight.models import MLP, with_kaiming
from everlight.scenarios import (
    bits_of,
    change_slow_bits,
    draw_samples,
    draw_target_network,
    target_values,
)
from everlight_experiments.commands.load_and_train import given_hyperparameters
from everlight_experiments.continual.metrics import DIAGNOSTICS
from everlight_experiments.continual.report_tables import Measure, table_of
from everlight_experiments.report.cells import spread
from everlight_experiments.report.plots import plot_curves
from everlight_experiments.report.writer import Figure, Section, write_report
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.settings import Count, FolderSettings, Rate, Seed

Name = Literal["naive", "CBP", "ReDo", "shrink and perturb", "L2 Init"]
ERROR = "online error"
INPUTS, SLOW = 20, 15
POINTS = 50
"""Most points of a curve; each is a mean over equally many tasks."""


@dataclass(frozen=True)
class RegressionOptions(FolderSettings):
    """Compare methods against the loss of plasticity on slowly changing regression."""

    methods: tuple[Name, ...] = ("naive", "CBP", "ReDo", "shrink and perturb", "L2 Init")
    """Methods to compare; naive is plain backpropagation."""
    hyperparameters: tuple[str, ...] = ()
    """Values to run instead of those of the methods' grids, as in CBP=1e-5,1e-4. Each value is a
    row of its own; none is selected."""
    seed: Seed = 0
    """Random seed of the target network, the samples and training."""
    seeds: Annotated[int, Between(1, 1000)] = 10
    """Number of runs, with different target networks and initial weights."""
    tasks: Annotated[int, Between(2, 1_000_000)] = 50
    """Number of tasks. Compilation and memory do not grow with it."""
    samples: Count = 500
    """Samples per task, each learned once; the paper has 10,000."""
    hidden: Count = 5
    """Hidden units of the network that learns."""
    learning_rate: Rate = 0.01
    """Learning rate of gradient descent."""
    flips: Literal["one", "all"] = "one"
    """Bits that change between tasks: one of the slow bits, or all are drawn anew, as the authors'
    code does by default."""


def run_regression(options: RegressionOptions) -> Path:
    """Train the methods; returns the report's path.

    Raises:
      DataError: hyper-parameters that cannot be used.
    """
    rows = [METHODS[name] for name in dict.fromkeys(options.methods)]
    given = given_hyperparameters(options.hyperparameters, rows)
    folder = RunFolder("slowly-changing-regression", "", options)
    keys = jax.random.split(jax.random.key(options.seed), options.seeds)
    found: dict[str, dict[str, np.ndarray]] = {}
    for method in rows:
        train = jax.jit(jax.vmap(partial(learn_regression, options, method), in_axes=(0, None)))
        for value in given.get(method.name, method.hyperparameters) or (0.0,):
            name = f"{method.name} {value:g}" if method.hyperparameters else method.name
            began = time.monotonic()
            result = jax.block_until_ready(train(keys, jnp.float32(value)))
            folder.log(unit=name, seconds=time.monotonic() - began)
            found[name] = values_of(result)
            print(f"{name}: {ERROR} {np.mean(found[name][ERROR][:, -1]):.3f} in the last task")
    folder.save_results(
        **{f"{name}/{key}": of for name, every in found.items() for key, of in every.items()}
    )
    return write_report(
        folder.path, "Slowly changing regression", _summary(options), _sections(folder.path, found)
    )


def learn_regression(
    options: RegressionOptions, method: Method, key: PRNGKeyArray, value: Float[Array, ""]
) -> GeneratedResult:
    """Return the result of one run, as a pure function of its key and hyper-parameter."""
    of_target, of_run = jax.random.split(key)
    target = draw_target_network(of_target, INPUTS)
    objective = regression_objective(lambda number: target_values(target, bits_of(number))[:, None])
    net, optimizer = MLP(1, (options.hidden,)), optax.sgd(options.learning_rate)
    setup = flax_setup(net, ComputedInputs(bits_of, (INPUTS,)), objective, optimizer)
    setup = with_kaiming(setup)._replace(measure=diagnose_plasticity)
    needs = Needs(
        options.tasks,
        classes=1,
        exemplars_per_class=1,
        hyperparameter=value,
        implicit_rate=options.learning_rate,
        layers=("hidden1",),
    )
    generator = TaskGenerator(
        begin=lambda key: jax.random.bernoulli(key, shape=(SLOW,)),
        next_task=lambda bits, key: change_slow_bits(bits, key, options.flips),
        draw=lambda bits, count, key: draw_samples(bits, count, INPUTS, key),
    )
    strategy = method.make(setup, needs)
    return learn_generated(setup, strategy, generator, options.tasks, options.samples, of_run)


def values_of(result: GeneratedResult) -> dict[str, Float[np.ndarray, "seeds t"]]:
    """Return error and diagnostics of all seeds and tasks by name."""
    measured = zip(DIAGNOSTICS, result.measured, strict=True)
    return {ERROR: np.asarray(result.losses), **{name: np.asarray(of) for name, of in measured}}


def _summary(options: RegressionOptions) -> list[tuple[str, str]]:
    size = f"{options.tasks:,} tasks of {options.samples:,} samples"
    learner = f"{options.hidden} hidden units, SGD at {options.learning_rate:g}"
    return [
        ("Data", f"{size}; {INPUTS} bits, of which {SLOW} stay during a task"),
        ("Training", f"{learner}, one sample per step"),
        ("Seeds", f"{options.seeds}, with different target networks"),
        ("Selection rule", "none; every value of a hyper-parameter is a row"),
    ]


def _sections(
    folder: Path, found: Mapping[str, Mapping[str, Float[np.ndarray, "seeds t"]]]
) -> list[Section]:
    """Return the table of first and last tasks, and the curves of error and dead units."""
    part = max(1, next(iter(found.values()))[ERROR].shape[1] // 10)

    def last(name: str) -> Measure:
        return Measure(name, lambda of: spread(of[name][:, -part:].mean(axis=1)), "last tenth")

    first = Measure(ERROR, lambda of: spread(of[ERROR][:, :part].mean(axis=1)), "first tenth")
    caption = (
        "Mean squared error of every sample before it is learned, and diagnostics, in the first "
        "and in the last tenth of the tasks: mean and standard deviation over seeds."
    )
    table = table_of(caption, found, [first, last(ERROR), *map(last, DIAGNOSTICS)])
    figures = [
        Figure(
            f"{title}, mean over seeds.",
            plot_curves(
                folder / f"{file}.png",
                {"": {name: _thinned(of[key]) for name, of in found.items()}},
                key,
                "part of the tasks",
            ),
        )
        for title, file, key in (
            ("Online error", "error", ERROR),
            ("Share of units that never respond", "dead", "dead units"),
        )
    ]
    return [Section("Result", [], [table, *figures])]


def _thinned(values: Float[np.ndarray, "seeds t"]) -> Float[np.ndarray, "seeds p"]:
    """Return means over neighbouring tasks, at most `POINTS` of them."""
    parts = np.array_split(values, min(POINTS, values.shape[1]), axis=1)
    return np.stack([part.mean(axis=1) for part in parts], axis=1)
