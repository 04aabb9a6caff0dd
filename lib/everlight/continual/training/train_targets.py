"""One call that trains a network on targets of any kind, such as several labels per image."""

from collections.abc import Callable, Hashable, Iterator
from types import FunctionType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from everlight.base import Learner, Memory, Setup, Strategy, TaskSequence
from everlight.checks import NonNegativeInt, OpenUnitInterval, PositiveInt, checked
from everlight.continual.engine import (
    Build,
    Protocol,
    Runs,
    StoredImages,
    diverged_runs,
    network_setup,
)
from everlight.continual.engine.setups.network_setup import Net
from everlight.continual.methods.registry import METHODS
from everlight.continual.objectives import target_objective
from everlight.continual.training.adapted_net import adapt_to_any_width
from everlight.continual.training.labelled_images import (
    read_images,
    read_labels,
    refuse_masked,
    refuse_unstorable,
    store_normalized,
    warn_of_repeated,
)
from everlight.continual.training.saved_net import predict_images
from everlight.continual.training.train import RATE, build_checked, final_state
from everlight.continual.training.trained import predict_seeds
from everlight.data_checks import Scale, check_tests, scale_of
from everlight.errors import ArgumentError, describe_error
from everlight.scenarios import experience_sequence
from everlight.trees import stacked

TargetLoss = Callable[[Float[Array, "c"], PyTree], Float[Array, ""]]
"""Function from the network's outputs for one image and the image's target to its loss."""
_STRATEGIES = "everlight.continual.strategies."
_PARTS = frozenset(f"{_STRATEGIES}parts.{name}" for name in ("quadratic", "merging", "frozen"))
"""Parts of strategies that read no class."""
_NAMED_PARTS = {f"{_STRATEGIES}parts.random_ridge": "RanPAC or ACIL"}
"""Strategies whose functions are those of a part."""


class TrainedTargets(NamedTuple):
    """Result of `train_targets`; the first axis of every array is over seeds."""

    task_names: tuple[Hashable, ...]
    """Tasks in the order in which they were trained."""
    losses: Float[np.ndarray, "seeds t t"]
    """Mean objective of the test images, `[i, j]` after task i on task j; NaN for a seed that
    diverged."""
    diverged: Bool[np.ndarray, "seeds"]
    """True for seeds whose training diverged."""
    learner: Learner
    """Learner after the last task: parameters and batch statistics."""
    memory: Memory
    """Memory of the strategy after the last task; some strategies predict from it."""
    scores: Callable[[Learner, Memory, Array], Float[Array, "n c"]]
    """Function from one seed's learner, its memory and images to the network's outputs."""
    image_shape: tuple[int, ...]
    image_dtype: np.dtype
    image_offset: tuple[float, ...]
    """Number for each channel or column that is subtracted in float64; () is none."""
    image_scale: Scale
    """Measures of the values of the training images (`data_checks.Scale`)."""

    def __repr__(self) -> str:
        seeds, tasks, _ = self.losses.shape
        final = ", ".join(f"{value:.3g}" for value in self.final_loss)
        return (
            f"TrainedTargets({tasks} tasks, {seeds} seeds; final loss {final}; losses, "
            "predict(images))"
        )

    @property
    def final_loss(self) -> Float[np.ndarray, "seeds"]:
        """Mean over tasks of the loss after the last one, for each seed."""
        return self.losses[:, -1].mean(axis=1)

    def predict(self, images: Any) -> Float[np.ndarray, "seeds n c"]:
        """Return outputs of each seed's network after the last task, without a sigmoid or softmax.

        Args:
          images: images or features of the training shape, type and scale, `[n, ...]`.

        Returns:
          Outputs, `[seeds, n, c]`; NaN for a seed that diverged.

        Raises:
          ValueError: images have another shape or type, or there are none.
        """
        return predict_seeds(self, images)


class _TargetData(NamedTuple):
    """Data of a run: stored images, and their targets in the same order."""

    images: StoredImages
    targets: PyTree


class _Split(NamedTuple):
    """Training images, then test images, with the targets and the task of each."""

    images: Shaped[np.ndarray, "n *shape"]
    targets: PyTree
    task: Int[np.ndarray, "n"]
    trained: int
    """Number of training images."""
    task_names: tuple[Hashable, ...]


@checked
def train_targets(
    net: Net,
    images: Any,
    targets: PyTree,
    tasks: Any,
    strategy: Callable[[Setup], Strategy],
    objective: TargetLoss,
    seeds: PositiveInt = 5,
    test: OpenUnitInterval | tuple = 0.2,
    epochs: PositiveInt = 5,
    batch_size: PositiveInt = 32,
    optimizer: optax.GradientTransformation | None = None,
    seed: NonNegativeInt = 0,
) -> TrainedTargets:
    """Train a network on targets of any kind, such as several labels, soft labels or numbers.

    It is `train` where an image has no single class. The tasks follow each other in sorted order.
    Each seed has a different initialization and sample order; all seeds are one compiled program.
    Strategies whose row has `takes_targets`, such as `naive`, `experience_replay`, `ewc`, `si` and
    `mas`, learn any targets; the others read classes and are refused. A strategy of your own is
    taken: the label of a sample is its row among training and test images.

    Args:
      net: network with any number of outputs, as `train` takes it.
      images: images, `[n, h, w, c]`, or features of any shape, `[n, ...]`.
      targets: target of each image: an array or a tree of arrays, `[n, ...]`. Of an array `[n]` the
        objective gets one number, which JAX broadcasts over all outputs: give a network of one
        output, targets `[n, c]`, or an objective that selects an output.
      tasks: task of each image, `[n]`, of any comparable type such as numbers or text; none is
        missing.
      strategy: function from a setup to a strategy, such as `naive` or
        `lambda setup: experience_replay(setup, buffer_size=200)`.
      objective: JAX function `(outputs, target) -> loss` of one image. Outputs are `[c]`, without a
        sigmoid or softmax.
      seeds: number of seeds.
      test: share of every task's images, drawn at random, for the test set; or separate test
        images, targets and tasks, of the type and scale of the training images.
      epochs: epochs per task; the last one is kept.
      batch_size: samples per step.
      optimizer: optimizer, reset at every task; None is Adam at `RATE`.
      seed: first random seed; the others follow consecutively.

    Raises:
      ImportError: `net` makes an Equinox module, and Equinox is not installed.
      ValueError: images, targets and tasks differ in number; a number is not finite, or has more
        than 32 bits; an entry is masked; a task is missing, or cannot be compared; there are fewer
        than two tasks; a task has no image to train or to test; test images have another scale; the
        network or the objective cannot be called; or the strategy reads classes.
    """
    split = _split_targets(images, targets, tasks, test, np.random.default_rng(seed))
    called, width = adapt_to_any_width(net, split.images.shape[1:])
    _check_objective(objective, width, split.targets)
    stored = store_normalized(split.images, split.trained)
    data = _TargetData(stored, jax.tree.map(jnp.asarray, split.targets))
    protocol = Protocol(epochs=epochs, batch_size=batch_size, select="last")
    build = _build_with(
        called, optax.adam(RATE) if optimizer is None else optimizer, strategy, objective
    )
    # Before it is traced, the refusal of a strategy is one line.
    build(data)
    keys = jnp.stack([jax.random.key(number) for number in range(seed, seed + seeds)])
    sequences = stacked([_sequence(split)] * seeds)
    last = final_state(Runs(build, protocol, data, sequences, keys), epochs)
    is_diverged = diverged_runs(protocol, last)
    losses = np.asarray(last.result.evaluation)

    def scores(learner: Learner, memory: Memory, images: Array) -> Float[Array, "n c"]:
        return predict_images(build, protocol.evaluation_batch, data, images, learner, memory)

    return TrainedTargets(
        task_names=split.task_names,
        losses=np.where(is_diverged[:, None, None], np.nan, losses),
        diverged=is_diverged,
        learner=last.result.learner,
        memory=last.result.memory,
        scores=scores,
        image_shape=stored.shape,
        image_dtype=np.dtype(stored.pieces.dtype),
        image_offset=stored.offset,
        image_scale=scale_of(split.images[: split.trained]),
    )


def _build_with(
    net: Net,
    optimizer: optax.GradientTransformation,
    strategy: Callable[[Setup], Strategy],
    objective: TargetLoss,
) -> Build:
    def build(data: _TargetData) -> tuple[Setup, Strategy]:
        def target(rows: Int[Array, "b"]) -> PyTree:
            return jax.tree.map(lambda values: values[rows], data.targets)

        setup = network_setup(net, data.images, target_objective(objective, target), optimizer)
        result = build_checked(strategy, setup)
        refuse_class_readers(result)
        return setup, result

    return build


def refuse_class_readers(strategy: Strategy) -> None:
    """Refuse a strategy of the registry that reads classes.

    Raises:
      ValueError: functions of such a strategy are among those of the given one.
    """
    takers = {row.factory.__module__ for row in METHODS.values() if row.takes_targets}
    modules = {function.__module__ for function in _functions(tuple(strategy), set())}
    readers = {name for name in modules - takers - _PARTS if name.startswith(_STRATEGIES)}
    if readers:
        rows = [name for name, row in METHODS.items() if row.factory.__module__ in readers]
        names = rows or [_NAMED_PARTS.get(name, name) for name in sorted(readers)]
        taken = [name for name, row in METHODS.items() if row.takes_targets]
        raise ArgumentError(
            f"strategy is {' or '.join(names)}, which reads the class of each label, and targets "
            f"are no classes; give one of {', '.join(taken)}, or your own"
        )


def _functions(value: Any, visited: set[FunctionType]) -> Iterator[FunctionType]:
    """Yield the functions in a tuple, and those that those use."""
    if isinstance(value, tuple):
        for part in value:
            yield from _functions(part, visited)
    elif isinstance(value, FunctionType) and value not in visited:
        visited.add(value)
        yield value
        yield from _functions(
            tuple(cell.cell_contents for cell in value.__closure__ or ()), visited
        )


def _check_objective(objective: TargetLoss, width: int, targets: PyTree) -> None:
    outputs = jax.ShapeDtypeStruct((width,), jnp.float32)
    first = jax.tree.map(
        lambda values: jax.ShapeDtypeStruct(values.shape[1:], values.dtype), targets
    )
    shapes = ", ".join(str(leaf.shape) for leaf in jax.tree.leaves(first))
    form = f"give a JAX function of one image's outputs, ({width},), and its target, {shapes}"
    try:
        loss = jax.eval_shape(objective, outputs, first)
    # An objective may raise any exception about its arguments.
    except Exception as error:
        raise ArgumentError(
            f"objective cannot be called ({describe_error(error)}); {form}"
        ) from error
    shape, dtype = getattr(loss, "shape", None), getattr(loss, "dtype", None)
    if shape != () or not jnp.issubdtype(dtype, jnp.floating):
        described = type(loss).__name__ if shape is None else f"{dtype} of shape {shape}"
        raise ArgumentError(f"objective returns {described} for one image, not one number; {form}")


def _sequence(split: _Split) -> TaskSequence:
    """Return the tasks; the label of a sample is its row."""
    row, is_train = np.arange(len(split.task)), np.arange(len(split.task)) < split.trained
    count = len(split.task_names)
    train, test = (
        [row[which & (split.task == task)] for task in range(count)]
        for which in (is_train, ~is_train)
    )
    sequence = experience_sequence(train, train, test, test, classes=len(row))
    # Scores are never masked to a task: outputs are no classes.
    return sequence._replace(test_classes=None)


def _split_targets(
    images: Any, targets: PyTree, tasks: Any, test: float | tuple, rng: np.random.Generator
) -> _Split:
    if isinstance(test, tuple):
        if len(test) != 3:
            raise ArgumentError(
                f"test is a tuple of {len(test)}; give test=(images, targets, tasks)"
            )
        parts = _arrays("", images, targets, tasks), _arrays("test's ", *test)
        try:
            joined = jax.tree.map(
                lambda *values: np.concatenate(values), *(part[:2] for part in parts)
            )
        except (ValueError, TypeError) as error:
            raise ArgumentError(
                f"test and training data differ in form ({describe_error(error)}); give images and "
                "targets of the same shapes"
            ) from error
        is_test = np.arange(len(joined[0])) >= len(parts[0][0])
        names, task = _number_tasks([*parts[0][2], *parts[1][2]])
    else:
        *joined, values = _arrays("", images, targets, tasks)
        names, task = _number_tasks(values)
        is_test = np.zeros(len(task), bool)
        for number in range(len(names)):
            members = rng.permutation(np.flatnonzero(task == number))
            is_test[members[: min(max(1, round(test * len(members))), len(members) - 1)]] = True
    _check_tasks(names, task, is_test)
    if isinstance(test, tuple):
        # Joined images have one type.
        divided = parts[0][0], parts[1][0]
        check_tests("images", divided[0], "test's images", divided[1])
    else:
        divided = joined[0][~is_test], joined[0][is_test]
    warn_of_repeated(*divided)
    order = np.concatenate([np.flatnonzero(~is_test), np.flatnonzero(is_test)])
    ordered = jax.tree.map(lambda values: values[order], joined[1])
    return _Split(joined[0][order], ordered, task[order], int((~is_test).sum()), names)


def _number_tasks(tasks: list[Hashable]) -> tuple[tuple[Hashable, ...], Int[np.ndarray, "n"]]:
    """Return the names of the tasks in sorted order, and the position of each image's task."""
    values = [
        task.item() if isinstance(task, np.generic) and task.dtype.kind in "buifU" else task
        for task in tasks
    ]
    try:
        names = sorted(set(values))
    except TypeError as error:
        raise ArgumentError(
            f"tasks cannot be sorted ({describe_error(error)}); give numbers alone, or text alone, "
            "in the test data too"
        ) from error
    position = {name: number for number, name in enumerate(names)}
    return tuple(names), np.array([position[value] for value in values], int)


def _check_tasks(
    names: tuple[Hashable, ...], task: Int[np.ndarray, "n"], is_test: Bool[np.ndarray, "n"]
) -> None:
    if len(names) < 2:
        raise ArgumentError(f"tasks holds {len(names)} task; give two or more")
    for number, name in enumerate(names):
        for what, among in (("train", ~is_test), ("test", is_test)):
            if not np.any(among & (task == number)):
                raise ArgumentError(f"task {name!r} has no image to {what}; give one or more")


def _arrays(
    whose: str, images: Any, targets: PyTree, tasks: Any
) -> tuple[Shaped[np.ndarray, "n *shape"], PyTree, list[Hashable]]:
    """Return images and targets as arrays, and tasks as Python values, all of equal lengths."""
    pixels = read_images(f"{whose}images", images)
    groups = read_labels(f"{whose}tasks", tasks, "task")
    for leaf in jax.tree.leaves(targets):
        refuse_masked(f"{whose}targets", leaf)
    arrays = jax.tree.map(np.asarray, targets)
    leaves = jax.tree.leaves(arrays)
    for leaf in leaves:
        if leaf.ndim < 1 or leaf.dtype.kind not in "buif":
            raise ArgumentError(
                f"{whose}targets holds {leaf.dtype} of shape {leaf.shape}; give numbers, [n, ...]"
            )
        _refuse_wrapped(f"{whose}targets", leaf)
        refuse_unstorable(f"{whose}targets", leaf)
    counts = [len(pixels), *map(len, leaves), len(groups)]
    if not leaves or len(set(counts)) > 1:
        raise ArgumentError(
            f"{whose}images, targets and tasks hold {', '.join(map(str, counts))}; give one target "
            "and one task per image"
        )
    return pixels, arrays, groups


def _refuse_wrapped(name: str, leaf: Shaped[np.ndarray, "n ..."]) -> None:
    """Refuse integers that JAX would wrap, since by default it has 32 bits."""
    if leaf.dtype.kind not in "ui" or not leaf.size:
        return
    limits = np.iinfo(jax.dtypes.canonicalize_dtype(leaf.dtype))
    for value in (int(leaf.min()), int(leaf.max())):
        if not limits.min <= value <= limits.max:
            raise ArgumentError(
                f"{name} holds {value}; give integers from {limits.min} to {limits.max}"
            )
