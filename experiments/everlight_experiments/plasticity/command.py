"""The study of plasticity: which method keeps the ability to learn, task after task.

    everlight plasticity regression
    everlight plasticity permuted-labels --data fashion-mnist --tasks 200 --methods naive CBP
    everlight plasticity regression --tasks 100 --samples 10000 --hyperparameters CBP=1e-4

All seeds of a method are one program whose tasks are drawn inside it. The paper has 100 tasks of
10,000 samples in regression (Dohare et al. 2024, Nature).
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Float

from everlight.checks import Between
from everlight.continual.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_experiments.commands.load_and_train import given_hyperparameters
from everlight_experiments.continual.metrics import DIAGNOSTICS
from everlight_experiments.continual.report_tables import Measure, table_of
from everlight_experiments.plasticity.config import CONFIGS
from everlight_experiments.plasticity.problems import (
    ERROR,
    ONLINE,
    TESTED,
    Problem,
    learn_problem,
    load_problem,
    refuse_unfit,
    values_of,
)
from everlight_experiments.report.cells import spread
from everlight_experiments.report.plots import plot_curves
from everlight_experiments.report.writer import Figure, FirstScreen, Section, write_report
from everlight_experiments.run_folder.config_options import with_config
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.settings import FolderSettings, Seed

Name = Literal["naive", "CBP", "ReDo", "shrink and perturb", "L2 Init"]
POINTS = 50
"""Most points of a curve; each is a mean over equally many tasks."""
MEANINGS = {
    ERROR: "Mean squared error of every sample before it is learned",
    ONLINE: "Accuracy of every batch before it is learned",
    TESTED: "Accuracy on the test images of each task after it",
}


@dataclass(frozen=True)
class PlasticityOptions(FolderSettings):
    """Compare methods against the loss of plasticity on a stream of many tasks.

    Problems: regression (slowly changing, generated), permuted (another order of the pixels in
    every task), permuted-labels (other names of the classes) and class-pairs (two classes per task,
    as in continual ImageNet).
    """

    problem: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PROBLEM")] = ""
    """Name of the problem: regression, permuted, permuted-labels or class-pairs."""
    methods: tuple[Name, ...] = ("naive", "CBP", "ReDo", "shrink and perturb", "L2 Init")
    """Methods to compare; naive is plain backpropagation."""
    hyperparameters: tuple[str, ...] = ()
    """Values to run instead of those of the methods' grids, as in CBP=1e-5,1e-4. Each value is a
    row of its own; none is selected."""
    seed: Seed = 0
    """Random seed of tasks, samples and training."""
    seeds: Annotated[int, Between(1, 1000)] = 10
    """Number of runs, with different tasks and initial weights."""


def plasticity_options(arguments: list[str]) -> type:
    """Return the command's options, with the sizes of the problem that the arguments name.

    Raises:
      DataError: a problem that does not exist.
    """
    name = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    if name:
        check_name("problem", name, list(CONFIGS))
    return with_config(PlasticityOptions, CONFIGS[name or "regression"])


def run_plasticity(options: Any) -> Path:
    """Train the methods on a problem; returns the report's path.

    Raises:
      DataError: no problem; data, a network or hyper-parameters that cannot be used.
    """
    if not options.problem:
        raise DataError(f"name a problem first; there are {', '.join(CONFIGS)}")
    rows = [METHODS[name] for name in dict.fromkeys(options.methods)]
    given = given_hyperparameters(options.hyperparameters, rows)
    problem = load_problem(options.problem, options.config, options.seed)
    refuse_unfit(problem, rows)
    folder = RunFolder("plasticity", options.problem, options)
    keys = jax.random.split(jax.random.key(options.seed), options.seeds)
    found: dict[str, dict[str, np.ndarray]] = {}
    for method in rows:
        learn = partial(learn_problem, problem, options.config, method)
        train = jax.jit(jax.vmap(learn, in_axes=(None, 0, None)))
        for value in given.get(method.name, method.hyperparameters) or (0.0,):
            name = f"{method.name} {value:g}" if method.hyperparameters else method.name
            began = time.monotonic()
            result = jax.block_until_ready(train(problem.images, keys, jnp.float32(value)))
            folder.log(unit=name, seconds=time.monotonic() - began)
            found[name] = values_of(problem, result)
            last = np.mean(found[name][problem.score][:, -1])
            print(f"{name}: {problem.score} {last:.3f} in the last task", flush=True)
    folder.save_results(
        **{f"{name}/{key}": of for name, every in found.items() for key, of in every.items()}
    )
    title = f"Plasticity: {options.problem}"
    first = _first_screen(folder.path, problem.score, found)
    dead = "Share of the hidden units that never respond, mean over seeds."
    figure = _figure(folder.path, "dead", "dead units", dead, found)
    sections = [Section("Dead units", [], [figure])]
    return write_report(folder.path, title, _summary(options, problem), sections, first)


def _summary(options: Any, problem: Problem) -> list[tuple[str, str]]:
    config = options.config
    size = f"{config.tasks:,} tasks of {config.samples:,} samples"
    batches = f"SGD at {config.learning_rate:g} in batches of {config.batch_size}"
    return [
        ("Data", f"{problem.note}; {size}"),
        ("Training", f"{problem.net.note}, {batches}"),
        ("Seeds", f"{options.seeds}, with different tasks"),
        ("Selection rule", "none; every value of a hyper-parameter is a row"),
    ]


def _first_screen(
    folder: Path, score: str, found: Mapping[str, Mapping[str, Float[np.ndarray, "seeds t"]]]
) -> FirstScreen:
    """Return the question and its answer, the curves of the score, and the table of both ends."""
    part = max(1, next(iter(found.values()))[score].shape[1] // 10)

    def last(name: str) -> Measure:
        return Measure(name, lambda of: spread(of[name][:, -part:].mean(axis=1)), "last tenth")

    early = {name: of[score][:, :part].mean(axis=1) for name, of in found.items()}
    late = {name: of[score][:, -part:].mean(axis=1) for name, of in found.items()}
    best = (min if score == ERROR else max)(late, key=lambda name: late[name].mean())
    sentences = [
        "Which method keeps the ability to learn?",
        f"{best} has the {'lowest' if score == ERROR else 'highest'} {score} in the last tenth of "
        f"the tasks, {spread(late[best])}, and had {spread(early[best])} in the first tenth.",
    ]
    if "naive" in found and best != "naive":
        sentences.append(
            f"Plain backpropagation (naive) goes from {spread(early['naive'])} to "
            f"{spread(late['naive'])}."
        )
    first = Measure(score, lambda of: spread(of[score][:, :part].mean(axis=1)), "first tenth")
    caption = (
        f"{MEANINGS[score]}, and diagnostics, in the first and in the last tenth of the tasks: "
        "mean and standard deviation over seeds."
    )
    table = table_of(caption, found, [first, last(score), *map(last, DIAGNOSTICS)])
    caption_of = f"{MEANINGS[score]}: mean over seeds, with one standard deviation."
    return FirstScreen(tuple(sentences), _figure(folder, "score", score, caption_of, found), table)


def _figure(
    folder: Path,
    file: str,
    score: str,
    caption: str,
    found: Mapping[str, Mapping[str, Float[np.ndarray, "seeds t"]]],
) -> Figure:
    curves = {name: _thinned(of[score]) for name, of in found.items()}
    where = folder / f"{file}.png"
    return Figure(
        caption, plot_curves(where, {"": curves}, score, "part of the tasks", baseline="naive")
    )


def _thinned(values: Float[np.ndarray, "seeds t"]) -> Float[np.ndarray, "seeds p"]:
    """Return means over neighbouring tasks, at most `POINTS` of them."""
    parts = np.array_split(values, min(POINTS, values.shape[1]), axis=1)
    return np.stack([part.mean(axis=1) for part in parts], axis=1)
