"""Nets that a run kept (`--keep-nets`), read back with all that predicts with them.

net = load_net("runs/continual-run-digits-demo", "ER", seed=0, task=4)
best = net.predict(images).argmax(axis=1)
net = load_net("runs/continual-grid-demo", "ER", seed=0, task=4, benchmark="digits")
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
from everlight.continual.engine.evaluation import over_samples
from everlight_data.errors import DataError, MissingDataError
from everlight_data.files import read_json, refusing
from everlight_experiments.common.checkpoint import open_existing
from everlight_experiments.common.run_config import name_differences
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import check_name
from everlight_experiments.continual.benchmark import Draw, RunData
from everlight_experiments.continual.grid import WIDENING as OF_GRIDS
from everlight_experiments.continual.grid import GridRun, settings_of
from everlight_experiments.continual.own_strategy import load_strategy
from everlight_experiments.continual.plan import WIDENING
from everlight_experiments.continual.run import rows_of
from everlight_experiments.continual.runner import (
    NETS,
    Runner,
    are_images,
    nets_folder,
    stored_images,
)
from everlight_experiments.continual.table import BENCHMARKS, ContinualRun

_WAY_OUT = "Name the folder of a `continual run` or `continual grid` with --keep-nets."


@dataclass(frozen=True)
class KeptNet:
    """A net as it was after a task."""

    class_names: tuple[str, ...]
    """Empty where the benchmark has no names."""
    task_classes: Bool[np.ndarray, "t c"]
    """The classes of each task."""
    learner: Learner
    """Parameters, batch statistics and the classes seen; without the optimizer's state."""
    memory: Memory
    """Of the strategy, from which some predict."""
    _build: Build
    _data: RunData
    _size: int
    _masked: bool

    def predict(
        self, images: Shaped[np.ndarray, "n *shape"], task: int | None = None
    ) -> Float[np.ndarray, "n c"]:
        """Scores of the classes, the greatest of which is predicted.

        Of several labels a sample those with scores above 0 are; where outputs are embeddings of
        facts, they are what is given.

        Args:
          images: as the benchmark holds them, uint8 `[n, h, w, c]`, or the features learnt from.
          task: that the images are said to be of, from 0; None tells none.

        Returns:
          `[n, c]`; of classes not seen yet, or not of the task that is told, minus infinity.

        Raises:
          DataError: images of another shape, or a task that there is not.
        """
        images, stored = np.asarray(images), stored_images(self._data.shared)
        dtype = stored.pieces.dtype
        wrong = images.shape[1:] != stored.shape or not len(images)
        if wrong or images.dtype.kind != dtype.kind:
            taken = ", ".join(map(str, stored.shape))
            raise DataError(
                f"images are {images.dtype} of {images.shape}; this net takes {dtype} of "
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
    """Reads the net that a run with `--keep-nets` left after a task.

    The run's settings and data are read again, since a net alone does not say how its inputs are
    normalised; where its data or your own strategy's file have changed since, it is refused.

    Args:
      run: the folder.
      method: as the report calls it.
      seed: from the run's `--seed` on, one a row of `results.npz`.
      task: after which it is taken, from 0, as in the rows of the accuracy matrices.
      setting: task-incremental, class-incremental, online or the benchmark's own scenario; None
        where the run has one.
      benchmark: of a grid, by its name there, as in icifar:small; None where it has one.

    Raises:
      MissingDataError: the folder, the run's data or its nets are not there.
      DataError: a benchmark, method, seed, task or setting that was not kept, with those that
        were; a net that is damaged, or of other data.
    """
    run = Path(run)
    settings, part, opened = _asked(run, benchmark)
    kept = run / NETS / part
    if not kept.is_dir():
        raise MissingDataError(f"{run} holds no nets; give its command --keep-nets and a --tag")
    scenarios = _there(kept)
    if setting is None and len(scenarios) > 1:
        raise DataError(f"{run} has several settings; give one: {', '.join(scenarios)}")
    scenario = scenarios[0] if setting is None else setting
    check_name("setting", scenario, scenarios)
    labels = _there(kept / scenario)
    check_name("net of method", method, [label.partition("@")[0] for label in labels])
    loaded = BENCHMARKS[settings.benchmark](settings)
    if loaded.prepare is not None:
        loaded = loaded.opened(opened())
    own = [load_strategy(asked) for asked in settings.strategy]
    # Those of earlier starts, too.
    every = dataclasses.replace(settings, methods=None, published=True)
    rows = rows_of(loaded, every, own)
    row = next((each for each in rows if each.name == method), None)
    if row is None or row.label not in labels:
        raise DataError(f"{run}: its {method} is of another version of your file")
    seeds = _there(kept / scenario / row.label)
    check_name("seed", str(seed), seeds)
    checkpoints = open_existing(nets_folder(run, part, scenario, row, seed))
    check_name("task", str(task), [str(number) for number in checkpoints.numbers()])
    runner = Runner(None, loaded, settings.seed)
    draw = Draw("reported", settings.seed, seed - settings.seed)
    sequence = loaded.sequence(scenario, row, draw)
    facts = checkpoints.facts(task)
    own_facts = {"scenario": scenario, "method": row.name, "order": draw.order}
    changed = name_differences(
        facts,
        {**own_facts, "hyperparameter": facts["hyperparameter"], **loaded.facts(scenario, row)},
    )
    if changed:
        raise DataError(f"{checkpoints.folder} is of other data or settings ({changed})")
    net = checkpoints.restore(task, runner.net(scenario, row)).state
    return KeptNet(
        () if loaded.images is None else tuple(loaded.images.class_names),
        _classes_of_tasks(sequence),
        *net,
        runner.build(scenario, row),
        RunData(
            loaded.shared(scenario, row), loaded.own(scenario, sequence, facts["hyperparameter"])
        ),
        loaded.protocol(scenario, row).evaluation_batch,
        "class scores" in loaded.offers(scenario),
    )


def _classes_of_tasks(sequence: TaskSequence) -> Bool[np.ndarray, "t c"]:
    """Return the classes among which each task's samples are scored, or those that it brings."""
    if sequence.test_classes is not None:
        return np.asarray(sequence.test_classes)
    class_task = np.asarray(sequence.class_task)
    return class_task == np.arange(class_task.max() + 1)[:, None]


class _Asked(NamedTuple):
    """One of a folder's benchmarks."""

    settings: ContinualRun
    part: str
    """Its name among several."""
    opened: Callable[[], RunFolder]


def _asked(run: Path, benchmark: str | None) -> _Asked:
    settings = _settings(run)
    if isinstance(settings, GridRun):
        every, name, widening = settings_of(settings), "grid", OF_GRIDS
    else:
        every, name, widening = (
            {settings.benchmark: settings},
            f"run-{settings.benchmark}",
            WIDENING,
        )
    if benchmark is None:
        if len(every) > 1:
            raise DataError(f"{run} has several benchmarks; give one: {', '.join(every)}")
        (benchmark,) = every
    check_name("benchmark", benchmark, list(every))
    part = benchmark if isinstance(settings, GridRun) else ""
    return _Asked(every[benchmark], part, partial(_opened, run, name, settings, widening))


def _settings(run: Path) -> ContinualRun | GridRun:
    """As the run was begun with, wherever its folder lies now."""
    path = run / "config.json"
    stored = read_json(path, _WAY_OUT)
    with refusing(path, _WAY_OUT):
        given = {**stored["settings"], "runs": run.parent}
        if given.get("images") is not None:
            given["images"] = Path(given["images"])
        plain = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
        if "benchmarks" in plain:
            return GridRun(**plain)
        return ContinualRun(**{"benchmark": "digits", **plain})


def _opened(
    run: Path, name: str, settings: ContinualRun | GridRun, widening: Sequence[str]
) -> RunFolder:
    folder = RunFolder("continual", name, settings, True, widening)
    if folder.path.resolve() != run.resolve():
        folder.remove_empty()
        raise DataError(f"{run} was {folder.path.name}; give it its name again")
    return folder


def _there(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@partial(jax.jit, static_argnums=(0, 1, 2))
def _predicted(
    build: Build,
    size: int,
    told: bool,
    data: RunData,
    images: Shaped[Array, "n *shape"],
    learner: Learner,
    memory: Memory,
    task: Int[Array, ""],
) -> Float[Array, "n c"]:
    """Scores of other images than those that were learnt from, normalised as these."""
    strategy = build(data)[1]
    others = jax.tree.map(
        lambda part: part.with_images(images) if are_images(part) else part,
        data.shared,
        is_leaf=are_images,
    )
    setup = build(data._replace(shared=others))[0]

    def forward(inputs: Float[Array, "s *shape"]) -> Float[Array, "s c"]:
        if told and strategy.predict_task is not None:
            return strategy.predict_task(memory, learner, inputs, task)
        return strategy.predict(memory, learner, inputs)

    count = images.shape[0]
    every = Samples(jnp.arange(count), jnp.zeros((count, 1), int), jnp.ones(count, bool))
    return over_samples(setup, forward, every, size)
