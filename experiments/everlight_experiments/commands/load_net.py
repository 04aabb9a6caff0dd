"""Networks that a run kept (`--keep-nets`), read back with all that predicts with them.

net = load_net("runs/run-digits-demo", "ER", seed=0, task=4)
best = net.predict(images).argmax(axis=1)
net = load_net("runs/grid-demo", "ER", seed=0, task=4, benchmark="digits")
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from everlight.continual import Build, Learner, TaskSequence
from everlight.continual.base import Memory, Samples
from everlight.continual.engine.costs import are_images, stored_images
from everlight.continual.engine.evaluation import over_samples
from everlight.continual.registry import Method
from everlight_data.errors import DataError, MissingDataError
from everlight_data.files import read_json
from everlight_experiments.commands.benchmarks import load
from everlight_experiments.commands.grid import WIDENING as OF_GRIDS
from everlight_experiments.commands.grid import runs_of
from everlight_experiments.commands.options import WIDENING, GridOptions, RunOptions
from everlight_experiments.commands.own_strategy import load_strategy
from everlight_experiments.commands.parsing import read_options
from everlight_experiments.commands.run import rows_of
from everlight_experiments.common.checkpoint import open_existing
from everlight_experiments.common.run_config import name_differences
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import check_name
from everlight_experiments.continual.benchmark import Benchmark, Draw, RunData
from everlight_experiments.continual.kept_nets import NETS, nets_folder
from everlight_experiments.continual.runner import Runner

_WAY_OUT = "Name the folder of an `everlight run` or `everlight grid` with --keep-nets."


@dataclass(frozen=True)
class KeptNet:
    """A network as it was after a task."""

    class_names: tuple[str, ...]
    """Names of the classes; empty where the benchmark has none."""
    task_classes: Bool[np.ndarray, "t c"]
    """The classes of each task."""
    learner: Learner
    """Parameters, batch statistics and the classes seen; without the optimizer's state."""
    memory: Memory
    """The strategy's memory, from which some predict."""
    _build: Build
    _data: RunData
    _size: int
    _masked: bool

    def predict(
        self, images: Shaped[np.ndarray, "n *shape"], task: int | None = None
    ) -> Float[np.ndarray, "n c"]:
        """Return the scores of the classes; the class with the highest score is predicted.

        Where samples have several labels, those with scores above 0 are predicted. Where outputs
        are embeddings of facts, the result is the embeddings.

        Args:
          images: as the benchmark has them, uint8 `[n, h, w, c]`, or the features learned from.
          task: task identity that is given at test, from 0; None gives none.

        Returns:
          `[n, c]`; minus infinity for classes not seen yet, or not of the given task.

        Raises:
          DataError: images of another shape, or a task that does not exist.
        """
        images, stored = np.asarray(images), stored_images(self._data.shared)
        dtype = stored.pieces.dtype
        wrong = images.shape[1:] != stored.shape or not len(images)
        if wrong or images.dtype.kind != dtype.kind:
            taken = ", ".join(map(str, stored.shape))
            raise DataError(
                f"images are {images.dtype} of {images.shape}; this network takes {dtype} of "
                f"(n, {taken})"
            )
        tasks = len(self.task_classes)
        if task is not None and not 0 <= task < tasks:
            raise DataError(f"task {task}; give 0 to {tasks - 1}")
        how = self._build, self._size, task is not None
        net = self.learner, self.memory, jnp.int32(task or 0)
        given = jnp.asarray(images, dtype)
        scores = np.array(_predicted(*how, self._data, given, *net))
        if self._masked:
            possible = np.array(self.learner.seen)
            if task is not None:
                possible &= self.task_classes[task]
            scores[:, ~possible] = -np.inf
        return scores


def load_net(
    run: Path | str,
    method: str,
    seed: int,
    task: int,
    setting: str | None = None,
    benchmark: str | None = None,
) -> KeptNet:
    """Read the network that a run with `--keep-nets` kept after a task.

    The run's configuration and data are read again, as a network alone does not have the
    normalization of its inputs. A network is refused if the data or the file of your own strategy
    have changed since.

    Args:
      run: folder of the run.
      method: name in the report.
      seed: evaluation seed, from the run's `--seed` on, one per row of `results.npz`.
      task: number of the task after which the network was kept, from 0.
      setting: task-incremental, class-incremental, online or the benchmark's own; None where the
        run has one.
      benchmark: name in a grid, as in icifar:small; None where the grid has one.

    Raises:
      MissingDataError: the folder, the run's data or its networks are not there.
      DataError: a benchmark, method, seed, task or setting that was not kept, with those that
        were; a network that is damaged, or of other data.
    """
    run = Path(run)
    options, part, opened = _stored(run, benchmark)
    kept = run / NETS / part
    if not kept.is_dir():
        raise MissingDataError(f"{run} holds no nets; give its command --keep-nets and a --tag")
    settings = _names(kept)
    if setting is None and len(settings) > 1:
        raise DataError(f"{run} has several settings; give one: {', '.join(settings)}")
    setting = settings[0] if setting is None else setting
    check_name("setting", setting, settings)
    labels = _names(kept / setting)
    check_name("net of method", method, [label.partition("@")[0] for label in labels])
    # Settings of earlier starts are there too.
    asked = None if options.setting is None else (setting,)
    loaded = load(dataclasses.replace(options, setting=asked))[setting]
    if loaded.prepare is not None:
        loaded = loaded.opened(opened())
    row = _row(loaded, options, method)
    if row is None or row.label not in labels:
        raise DataError(f"{run}: its {method} is of another version of your file")
    seeds = _names(kept / setting / row.label)
    check_name("seed", str(seed), seeds)
    checkpoints = open_existing(nets_folder(run, part, setting, row, seed))
    check_name("task", str(task), [str(number) for number in checkpoints.numbers()])
    runner = Runner(None, loaded, options.seed)
    draw = Draw("evaluation", options.seed, seed - options.seed)
    sequence, stored = loaded.sequence(row, draw), checkpoints.facts(task)
    hyperparameter = stored["hyperparameter"]
    own = {"setting": setting, "method": row.name, "order": draw.order}
    facts = own | {"hyperparameter": hyperparameter} | loaded.facts(row)
    if changed := name_differences(stored, facts):
        raise DataError(f"{checkpoints.folder} is of other data or settings ({changed})")
    net = checkpoints.restore(task, runner.net(row)).state
    return KeptNet(
        () if loaded.images is None else tuple(loaded.images.class_names),
        _classes_of_tasks(sequence),
        *net,
        runner.build(row),
        RunData(loaded.shared(row), loaded.own(sequence, hyperparameter)),
        loaded.protocol(row).evaluation_batch,
        "class scores" in loaded.capabilities,
    )


def _row(benchmark: Benchmark, options: RunOptions, method: str) -> Method | None:
    """Return the method's row, also one of an earlier start of the run."""
    own = [load_strategy(asked) for asked in options.strategy]
    every = dataclasses.replace(options, methods=None, published=True)
    return next((each for each in rows_of(benchmark, every, own) if each.name == method), None)


def _classes_of_tasks(sequence: TaskSequence) -> Bool[np.ndarray, "t c"]:
    """Return the classes among which each task's samples are scored, or those that it brings."""
    if sequence.test_classes is not None:
        return np.asarray(sequence.test_classes)
    class_task = np.asarray(sequence.class_task)
    return class_task == np.arange(class_task.max() + 1)[:, None]


class _Stored(NamedTuple):
    """One of a folder's benchmarks."""

    options: RunOptions
    part: str
    """Its name among several."""
    opened: Callable[[], RunFolder]


def _stored(run: Path, benchmark: str | None) -> _Stored:
    """Return the options that a run was begun with, wherever its folder lies now."""
    path = run / "config.json"
    is_grid = "benchmarks" in read_json(path, _WAY_OUT).get("settings", {})
    options = read_options(GridOptions if is_grid else RunOptions, path)
    options = dataclasses.replace(options, runs=run.parent)
    if is_grid:
        every, parts = runs_of(options), ("grid", "", OF_GRIDS)
    else:
        every = {options.benchmark: options}
        parts = "run", options.benchmark, WIDENING
    if benchmark is None:
        if len(every) > 1:
            raise DataError(f"{run} has several benchmarks; give one: {', '.join(every)}")
        (benchmark,) = every
    check_name("benchmark", benchmark, list(every))
    part = benchmark if is_grid else ""
    return _Stored(every[benchmark], part, partial(_opened, run, options, *parts))


def _opened(
    run: Path, options: RunOptions | GridOptions, paper: str, name: str, widening: Sequence[str]
) -> RunFolder:
    folder = RunFolder(paper, name, options, True, widening)
    if folder.path.resolve() != run.resolve():
        folder.remove_empty()
        raise DataError(f"{run} was {folder.path.name}; give it its name again")
    return folder


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@partial(jax.jit, static_argnums=(0, 1, 2))
def _predicted(
    build: Build,
    size: int,
    task_given: bool,
    data: RunData,
    images: Shaped[Array, "n *shape"],
    learner: Learner,
    memory: Memory,
    task: Int[Array, ""],
) -> Float[Array, "n c"]:
    """Return the scores of images that are normalized as those that were learned from."""
    strategy = build(data)[1]
    others = jax.tree.map(
        lambda part: part.with_images(images) if are_images(part) else part,
        data.shared,
        is_leaf=are_images,
    )
    setup = build(data._replace(shared=others))[0]

    def forward(inputs: Float[Array, "s *shape"]) -> Float[Array, "s c"]:
        if task_given and strategy.predict_task is not None:
            return strategy.predict_task(memory, learner, inputs, task)
        return strategy.predict(memory, learner, inputs)

    count = images.shape[0]
    every = Samples(jnp.arange(count), jnp.zeros((count, 1), int), jnp.ones(count, bool))
    return over_samples(setup, forward, every, size)
