"""The study of plasticity: which method keeps the ability to learn, task after task.

    everlight plasticity regression
    everlight plasticity permuted-labels --data fashion-mnist --tasks 200 --methods naive CBP
    everlight plasticity regression --tasks 100 --samples 10000 --hyperparameters CBP=1e-4

All seeds of a method are one program whose tasks are drawn inside it. The paper has 100 tasks of
10,000 samples in regression (Dohare et al. 2024, Nature).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array

from everlight.checks import Between
from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_experiments.continual.training.hyperparameters import read_hyperparameters
from everlight_experiments.plasticity.config import CONFIGS, READERS, PlasticityConfig
from everlight_experiments.plasticity.problems import (
    Problem,
    learn_problem,
    load_problem,
    refuse_unfit,
    values_of,
)
from everlight_experiments.plasticity.report import write_plasticity_report
from everlight_experiments.report.cells import in_time
from everlight_experiments.run_folder.config_options import with_config
from everlight_experiments.run_folder.folder import COMPILED, COMPILING, RunFolder
from everlight_experiments.run_folder.memory import refuse_large
from everlight_experiments.run_folder.options import FolderOptions, Seed, refuse_unread

MethodName = Literal["naive", "CBP", "ReDo", "shrink and perturb", "L2 Init"]


@dataclass(frozen=True)
class PlasticityOptions(FolderOptions):
    """Compare methods against the loss of plasticity on a stream of many tasks.

    Problems: regression (slowly changing, generated), permuted (another order of the pixels in
    every task), permuted-labels (other names of the classes) and class-pairs (two classes per task,
    as in continual ImageNet). The defaults below are those of the named problem, or of regression
    if none is named.
    """

    run_selectors = ("methods", "hyperparameters")
    problem: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PROBLEM")] = ""
    """Name of the problem: regression, permuted, permuted-labels or class-pairs."""
    methods: tuple[MethodName, ...] = ("naive", "CBP", "ReDo", "shrink and perturb", "L2 Init")
    """Methods to compare; naive is plain backpropagation."""
    hyperparameters: tuple[str, ...] = ()
    """Values to run instead of those of the methods' grids, as in CBP=1e-5,1e-4. Each value is a
    row of its own; none is selected."""
    seed: Seed = 0
    """Random seed of tasks, samples and training."""
    seeds: Annotated[int, Between(1, 1000)] = 10
    """Number of runs, with different tasks and initial weights. Those of permuted share the orders
    of the pixels, which --seed draws."""


def plasticity_options(arguments: list[str]) -> type:
    """Return the command's options, with the sizes of the problem that the arguments name.

    Raises:
      DataError: a problem that does not exist.
    """
    name = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    if name:
        check_name("problem", name, list(CONFIGS))
    return with_config(PlasticityOptions, CONFIGS[name or "regression"])


def run_plasticity(options: PlasticityOptions) -> Path:
    """Train the methods on a problem; returns the report's path.

    Raises:
      DataError: no problem; data, a network or hyper-parameters that cannot be used; or runs that
        need more memory than is free.
    """
    if not options.problem:
        raise DataError(f"name a problem first; there are {', '.join(CONFIGS)}")
    variant = "regression" if options.problem == "regression" else "problems of images"
    description = f"the problem is {options.problem}"
    refuse_unread(options.config, READERS, {variant}, description, CONFIGS[options.problem])
    rows = [METHODS[name] for name in dict.fromkeys(options.methods)]
    grids = read_hyperparameters(options.hyperparameters, rows)
    names = [row_name(row, value) for row in rows for value in grids.get(row.name, ())]
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"--hyperparameters has two values that are named {name}; give one")
    problem = load_problem(options.problem, options.config, options.seed)
    refuse_unfit(problem, rows)
    keys = jax.random.split(jax.random.key(options.seed), options.seeds)
    programs = {row.name: _program(problem, options.config, row, keys) for row in rows}
    # Every row is kept when it ends, so that a killed command continues after it.
    folder = RunFolder("plasticity", options.problem, options)
    values = {row.name: grids.get(row.name, row.hyperparameters) or (0.0,) for row in rows}
    table = _train_rows(folder, problem, programs, rows, values, keys)
    folder.save_results(
        **{
            f"{name}/{key}": values
            for name, scores in table.items()
            for key, values in scores.items()
        }
    )
    return write_plasticity_report(folder.path, options.problem, options.config, problem, table)


def _program(problem: Problem, config: PlasticityConfig, method: Method, keys: Array) -> Callable:
    """Return the compiled training of all seeds, which must fit into memory."""
    learn = partial(learn_problem, problem, config, method)
    program = jax.jit(jax.vmap(learn, in_axes=(None, 0, None)))
    state = jax.eval_shape(program, problem.images, keys, jnp.float32(0))
    refuse_large(state, "--net", "--seeds")
    return program


def _train_rows(
    folder: RunFolder,
    problem: Problem,
    programs: Mapping[str, Callable],
    methods: Sequence[Method],
    values: Mapping[str, Sequence[float]],
    keys: Array,
) -> dict[str, dict[str, np.ndarray]]:
    """Return the scores of every method and value by name of the row; finished rows are read."""
    count = sum(map(len, values.values()))
    table: dict[str, dict[str, np.ndarray]] = {}

    @cache
    def program(method: str) -> Callable:
        return _compiled(folder, method, programs[method], problem, keys)

    for method in methods:
        for value in values[method.name]:
            name = row_name(method, value)
            trained = partial(program, method.name)
            compute = partial(_train_row, folder, problem, trained, keys, name, value)
            fingerprint = {"value": value, "images": problem.checksums, **problem.net.fingerprint()}
            table[name] = folder.computed(name, fingerprint, compute)
            last = np.mean(table[name][problem.score][:, -1])
            print(
                f"row {len(table)} of {count}, {name}: {problem.score} {last:.3f} in the last task"
                f"{_time_left(folder, count - len(table))}",
                flush=True,
            )
    return table


def _compiled(
    folder: RunFolder, method: str, program: Callable, problem: Problem, keys: Array
) -> Callable:
    """Compile a method's program, and state how long it took."""
    folder.log(event=COMPILING, method=method)
    print(f"compiling {method} ... ", end="", flush=True)
    began = time.monotonic()
    compiled = program.lower(problem.images, keys, jnp.float32(0)).compile()
    seconds = time.monotonic() - began
    folder.log(event=COMPILED, method=method, seconds=seconds)
    print(f"{seconds:.1f} s", flush=True)
    return compiled


def _train_row(
    folder: RunFolder,
    problem: Problem,
    program: Callable[[], Callable],
    keys: Array,
    name: str,
    value: float,
) -> dict[str, np.ndarray]:
    train = program()
    began = time.monotonic()
    result = jax.block_until_ready(train(problem.images, keys, jnp.float32(value)))
    folder.log_part(name, seconds=time.monotonic() - began)
    return values_of(problem, result)


def _time_left(folder: RunFolder, rows: int) -> str:
    """Return how long so many rows take if all are as long as the mean of those so far."""
    seconds = [value for value in folder.seconds_of_parts().values() if value]
    return f"; about {in_time(rows * np.mean(seconds))} left" if rows and seconds else ""


def row_name(method: Method, value: float) -> str:
    """Return a row's name, with the hyper-parameter and its value where there is one."""
    if not method.hyperparameters:
        return method.name
    return f"{method.name}, {method.tunes.replace('_', ' ')} {value:g}"
