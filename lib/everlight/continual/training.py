"""One call that trains a network on a sequence of tasks, with all seeds in one program."""

import inspect
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Shaped

from everlight.checks import (
    Between,
    NonNegativeInt,
    PositiveInt,
    UnitInterval,
    check_finite,
    checked,
)
from everlight.continual.base import (
    Learner,
    Memory,
    Outputs,
    Samples,
    Setup,
    Strategy,
    TaskSequence,
)
from everlight.continual.engine import (
    Build,
    Protocol,
    Run,
    Runs,
    SequenceState,
    StoredImages,
    diverged,
    drive_runs,
    flax_setup,
    operations_per_step,
    predict_samples,
)
from everlight.continual.objectives import softmax_objective
from everlight.continual.strategies import naive
from everlight.metrics import (
    WEIGHTINGS,
    Costs,
    cl_score,
    counted_model_memory,
    final_average_accuracy,
    forgetting,
    measure_criteria,
)
from everlight.metrics.accuracy_matrix import accuracy_over_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RATE = 1e-3
"""Learning rate of Adam, the default optimizer."""
_WHEN_TRAINING = frozenset({"train", "training", "is_training"})
_WHEN_NOT = frozenset({"deterministic", "use_running_average"})
_A_NET = (
    "give a Flax module called as net(images), net(images, train) or net(images, deterministic), "
    "which returns logits or Outputs"
)


class TrainedScores(NamedTuple):
    """Metrics of each seed; NaN if it diverged."""

    accuracy: Float[np.ndarray, "seeds"]
    """Final average accuracy (`metrics.final_average_accuracy`)."""
    forgetting: Float[np.ndarray, "seeds"]
    """Forgetting (`metrics.forgetting`)."""
    cl_score: Float[np.ndarray, "seeds"]
    """CL score with the equal weights W1 of Díaz-Rodríguez et al. 2018."""


class Trained(NamedTuple):
    """Result of `train`; the first axis of every array is over seeds."""

    class_names: tuple[Hashable, ...]
    """Labels in the order of the network's outputs."""
    class_task: Int[np.ndarray, "seeds c"]
    """Task that introduces each class."""
    class_incremental_matrices: Float[np.ndarray, "seeds t t"]
    """Accuracies among all classes seen so far, R[i, j] after task i on task j; NaN for a seed that
    diverged."""
    task_masked_matrices: Float[np.ndarray, "seeds t t"]
    """Accuracies with the scores masked to the classes of the image's own task (the "Task-IL" of
    Buzzega et al. 2020)."""
    costs: Costs
    diverged: Bool[np.ndarray, "seeds"]
    """True for seeds whose training diverged."""
    learner: Learner
    """Learner after the last task: parameters and batch statistics."""
    memory: Memory
    """Memory of the strategy after the last task; some strategies predict from it."""
    scores: Callable[[Learner, Memory, Array], Float[Array, "n c"]]
    """Function from one seed's learner, its memory and images to class scores."""
    image_shape: tuple[int, ...]
    image_dtype: np.dtype

    def __repr__(self) -> str:
        seeds, tasks, _ = self.class_incremental_matrices.shape
        final = ", ".join(f"{_spread(each.accuracy)} {name}" for name, each in self._settings())
        return (
            f"Trained({len(self.class_names)} classes in {tasks} tasks, {seeds} seeds; accuracy "
            f"{final}; table(), plot(), predict(images))"
        )

    def predict(self, images: Any) -> Float[np.ndarray, "seeds n c"]:
        """Return class scores of each seed's network after the last task; the greatest predicts.

        Args:
          images: images or features of the training shape and type, `[n, ...]`.

        Returns:
          Scores, `[seeds, n, c]`, with classes in the order of `class_names`; NaN for a seed that
          diverged.

        Raises:
          ValueError: images have another shape or type, or there are none.
        """
        given = np.asarray(images)
        integers = self.image_dtype == np.uint8
        wrong = given.shape[1:] != self.image_shape or not len(given)
        if wrong or (given.dtype == np.uint8) != integers or given.dtype.kind not in "buif":
            taken = ", ".join(map(str, self.image_shape))
            raise ValueError(
                f"images are {given.dtype} of shape {given.shape}; give "
                f"{'uint8' if integers else 'numbers'} of (n, {taken}), as in training"
            )
        check_finite("images", given)
        each = jax.jit(jax.vmap(self.scores, in_axes=(0, 0, None)))
        found = each(self.learner, self.memory, jnp.asarray(given.astype(self.image_dtype)))
        return np.where(self.diverged[:, None, None], np.nan, np.asarray(found))

    @property
    def class_incremental(self) -> TrainedScores:
        """Metrics of `class_incremental_matrices`: accuracy among all classes seen so far."""
        return _scores(self.class_incremental_matrices, self.costs)

    @property
    def task_masked(self) -> TrainedScores:
        """Metrics of `task_masked_matrices`: trained class-incrementally, masked to a task at test.

        This is not task-incremental accuracy, for which the task is known in training too.
        """
        return _scores(self.task_masked_matrices, self.costs)

    def _settings(self) -> tuple[tuple[str, TrainedScores], ...]:
        return (
            ("class-incremental", self.class_incremental),
            ("task-masked", self.task_masked),
        )

    def table(self) -> str:
        """Return mean and sample standard deviation over seeds as text; the mean for one seed."""
        rows = [("setting", *(name.replace("_", " ") for name in TrainedScores._fields))]
        for name, scores in self._settings():
            rows.append((name, *map(_spread, scores)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Plot the accuracy on the tasks so far after every task; needs matplotlib.

        Args:
          axes: axes of the plot; None creates a figure.
        """
        # Nothing else here needs matplotlib.
        from everlight.plots import plot_accuracy_over_time

        panels = {
            "class-incremental": self.class_incremental_matrices,
            "task-masked": self.task_masked_matrices,
        }
        over_time = jax.vmap(accuracy_over_time)
        curves = {name: np.asarray(over_time(each)) for name, each in panels.items()}
        return plot_accuracy_over_time(curves, axes)


class _Split(NamedTuple):
    """Training images, then test images, in one array; labels are class numbers."""

    images: Shaped[np.ndarray, "n *shape"]
    train_labels: Int[np.ndarray, "n"]
    test_labels: Int[np.ndarray, "m"]
    class_names: tuple[Hashable, ...]


@checked
def train(
    net: nn.Module,
    images: Any,
    labels: Any,
    strategy: Callable[[Setup], Strategy],
    tasks: Annotated[int, Between(2)] = 5,
    seeds: PositiveInt = 5,
    test: UnitInterval | tuple = 0.2,
    epochs: PositiveInt = 5,
    batch_size: PositiveInt = 32,
    optimizer: optax.GradientTransformation | None = None,
    seed: NonNegativeInt = 0,
) -> Trained:
    """Train a network class-incrementally on labelled images, once per seed.

    Each seed has a different class order, initialization and sample order. All seeds are one
    compiled program, distributed over all devices. One head has all classes, and training does not
    use task identity. Channels are normalised by the training images.

    Args:
      net: Flax module with one output per class. Its first argument is the images; a second one may
        be `train`, `training`, `deterministic` or similar. If it returns logits alone, strategies
        that compare features use the logits.
      images: images, `[n, h, w, c]`, or features of any shape, `[n, ...]`; a NumPy or JAX array or
        a list.
      labels: label of each image, of any comparable type such as numbers or text.
      strategy: function from a setup to a strategy, such as `naive` or
        `lambda setup: ewc(setup, regularization=100.0)`.
      tasks: number of tasks among which the classes are divided as equally as possible.
      seeds: number of seeds.
      test: share of every class's images, drawn at random, for the test set; or separate test
        images and labels.
      epochs: epochs per task; the last one is kept.
      batch_size: samples per step.
      optimizer: optimizer, reset at every task; None is Adam at `RATE`.
      seed: first random seed; the others follow consecutively.

    Raises:
      ValueError: images and labels differ in number; a class has one image; there are more tasks
        than classes; the network cannot be called or its outputs do not fit; or `strategy` does not
        return a strategy.
    """
    split = _split(images, labels, test, np.random.default_rng(seed))
    classes, trained = len(split.class_names), len(split.train_labels)
    if tasks > classes:
        raise ValueError(f"tasks={tasks} of {classes} classes; give {classes} or fewer")
    called = _adapted(net, split.images.shape[1:], classes)
    rule = optax.adam(RATE) if optimizer is None else optimizer
    stored = _stored(split.images, trained)
    protocol = Protocol(epochs=epochs, batch_size=batch_size, select="last")

    def build_with(strategy: Callable[[Setup], Strategy]) -> Build:
        def build(stored: StoredImages) -> tuple[Setup, Strategy]:
            setup = flax_setup(called, stored, softmax_objective(), rule)
            return setup, _made(strategy, setup)

        return build

    build = build_with(strategy)
    copies = build(stored)[1].parameter_copies
    sequences = _sequences(split, tasks, range(seed, seed + seeds))
    keys = [jax.random.key(number) for number in range(seed, seed + seeds)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *sequences)
    runs = Runs(build, protocol, stored, stacked, jnp.stack(keys))
    for state in drive_runs(runs, chunk=epochs):
        last = state
    # Off the runs' mesh, so that a mesh of the caller has no effect; NaN are missing validations.
    with jax.debug_nans(False):
        last = jax.tree.map(jnp.asarray, jax.device_get(last))
    operations, of_naive = (
        operations_per_step(Run(each, protocol, stored, sequences[0], keys[0]))
        for each in (build, build if strategy is naive else build_with(naive))
    )
    costs = _costs(last, sequences, batch_size, operations, of_naive, copies)

    def scores(learner: Learner, memory: Memory, images: Array) -> Float[Array, "n c"]:
        setup, made = build(stored.with_images(images))
        count = len(images)
        every = Samples(jnp.arange(count), jnp.zeros((count, 1), int), jnp.ones(count, bool))
        return predict_samples(setup, made, memory, learner, every, protocol.evaluation_batch)

    gone = diverged(protocol, last)
    return _trained(split.class_names, sequences, last, costs, gone, scores, stored)


def _split(images: Any, labels: Any, test: float | tuple, rng: np.random.Generator) -> _Split:
    images, labels = _labelled("images", images, "labels", labels)
    if isinstance(test, tuple):
        if len(test) != 2:
            raise ValueError(f"test is a tuple of {len(test)}; give test=(images, labels)")
        of_test, test_labels = _labelled("test[0]", test[0], "test[1]", test[1])
        if of_test.shape[1:] != images.shape[1:]:
            raise ValueError(
                f"test[0] holds images of shape {of_test.shape[1:]}, images those of "
                f"{images.shape[1:]}; give one shape"
            )
        class_names, number = _numbered(labels)
        known = {name: place for place, name in enumerate(class_names)}
        unknown = [label for label in test_labels if label not in known]
        if unknown:
            raise ValueError(f"test[1] holds {unknown[0]!r}, which is not among labels")
        tested = np.array([known[label] for label in test_labels])
        return _Split(np.concatenate([images, of_test]), number, tested, class_names)
    class_names, number = _numbered(labels)
    chosen = np.zeros(len(number), bool)
    for label, name in enumerate(class_names):
        members = rng.permutation(np.flatnonzero(number == label))
        if len(members) < 2:
            raise ValueError(
                f"labels holds {name!r} once; give two images per class, to train and to test"
            )
        chosen[members[: min(max(1, round(test * len(members))), len(members) - 1)]] = True
    parts = np.concatenate([np.flatnonzero(~chosen), np.flatnonzero(chosen)])
    return _Split(images[parts], number[~chosen], number[chosen], class_names)


def _labelled(
    name: str, images: Any, name_of_labels: str, labels: Any
) -> tuple[Shaped[np.ndarray, "n *shape"], list[Hashable]]:
    """Return images as an array, and labels as a list of Python values."""
    images = np.asarray(images)
    if images.ndim < 2 or images.dtype.kind not in "buif":
        raise ValueError(
            f"{name} is {images.dtype} of shape {images.shape}; give numbers, [n, h, w, c] or "
            "features [n, f]"
        )
    if getattr(labels, "ndim", 1) != 1:
        raise ValueError(f"{name_of_labels} has shape {labels.shape}; give one label per image")
    if not isinstance(labels, Iterable):
        raise ValueError(f"{name_of_labels} is {type(labels).__name__}; give one label per image")
    values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    if len(values) != len(images):
        raise ValueError(
            f"{name} holds {len(images)}, {name_of_labels} {len(values)}; give one label per "
            "image, test images included, or separate test data as test=(images, labels)"
        )
    wrong = [value for value in values if not isinstance(value, Hashable) or value != value]
    if wrong:
        raise ValueError(f"{name_of_labels} holds {wrong[0]!r}, which cannot be compared")
    return images, values


def _numbered(labels: list[Hashable]) -> tuple[tuple[Hashable, ...], Int[np.ndarray, "n"]]:
    names = set(labels)
    if len(names) < 2:
        raise ValueError(f"labels holds {len(names)} class; give two or more")
    try:
        ordered = sorted(names)
    # Numbers and text together have no common order.
    except TypeError:
        ordered = sorted(names, key=lambda name: (type(name).__name__, str(name)))
    place = {name: number for number, name in enumerate(ordered)}
    return tuple(ordered), np.array([place[label] for label in labels])


def _stored(images: Shaped[np.ndarray, "n *shape"], trained: int) -> StoredImages:
    check_finite("images", images)
    axes = tuple(range(images.ndim - 1)) if images.ndim == 4 else None
    mean = images[:trained].mean(axis=axes, dtype=np.float64)
    deviation = images[:trained].std(axis=axes, dtype=np.float64)
    values = images if images.dtype == np.uint8 else images.astype(np.float32)
    # A channel that is the same everywhere stays 0.
    scale = np.where(deviation > 0, deviation, 1)
    return StoredImages.of(values, jnp.asarray(mean, jnp.float32), jnp.asarray(scale, jnp.float32))


def _sequences(split: _Split, tasks: int, seeds: range) -> list[TaskSequence]:
    # Its folder is made of this one's types.
    from everlight.scenarios import class_incremental, same_shapes

    classes = len(split.class_names)
    orders = [np.random.default_rng(number).permutation(classes) for number in seeds]
    cut = [[part.tolist() for part in np.array_split(order, tasks)] for order in orders]
    labels = split.train_labels, split.test_labels
    return same_shapes([class_incremental(*labels, each, classes, 0.0) for each in cut])


def _made(strategy: Callable[[Setup], Strategy], setup: Setup) -> Strategy:
    made = strategy(setup)
    if not isinstance(made, Strategy):
        raise ValueError(
            f"strategy returned {type(made).__name__}; give a function from a Setup to a Strategy, "
            "such as naive, or lambda setup: ewc(setup, regularization=100.0)"
        )
    return made


class _Called(nn.Module):
    """Wrapper with the engine's call signature; the network's parameters keep their names."""

    net: nn.Module
    flag: str | None
    """Name of the network's argument for training or evaluation mode, if any."""

    def setup(self) -> None:
        nn.share_scope(self, self.net)

    def __call__(self, images: Float[Array, "b *shape"], train: bool) -> Outputs:
        value = not train if self.flag in _WHEN_NOT else train
        given = self.net(images) if self.flag is None else self.net(images, **{self.flag: value})
        return given if isinstance(given, Outputs) else Outputs(given, given)


def _adapted(net: nn.Module, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the network with the engine's call signature, after checking its outputs."""
    _, _, *others = inspect.signature(type(net).__call__).parameters.values()
    plain = [each for each in others if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    flags = [each.name for each in plain if each.name in _WHEN_TRAINING | _WHEN_NOT]
    unknown = [each.name for each in plain if each.default is each.empty and each.name not in flags]
    if unknown or len(flags) > 1:
        wanted = ", ".join(unknown or flags)
        raise ValueError(f"net needs {wanted} besides its images; {_A_NET}")
    called = _Called(net, flags[0] if flags else None)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    try:
        given, variables = jax.eval_shape(
            lambda: called.init_with_output(keys, jnp.zeros((2, *shape)), True)
        )
    # A network may raise any exception about its inputs.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"net cannot be called with images of shape {shape} "
            f"({type(error).__name__}: {reason}); {_A_NET}"
        ) from error
    logits = getattr(given.logits, "shape", None)
    if logits != (2, classes):
        found = f"of shape {logits}" if logits else f"of type {type(given.logits).__name__}"
        raise ValueError(
            f"net returns outputs {found} for 2 images of {classes} classes; give one whose logits "
            f"have the shape (2, {classes})"
        )
    extra = sorted(set(variables) - {"params", "batch_stats"})
    if extra:
        raise ValueError(
            f"net has {', '.join(extra)} besides parameters and batch_stats; remove them"
        )
    return called


def _costs(
    state: SequenceState,
    sequences: list[TaskSequence],
    batch_size: int,
    operations: float,
    of_naive: float,
    copies: int,
) -> Costs:
    usage = state.result.usage
    runs, tasks = usage.steps.shape
    parameters = sum(leaf.size // runs for leaf in jax.tree.leaves(state.result.learner.params))
    samples = jnp.stack([jnp.sum(each.tasks.train.mask, axis=1) for each in sequences])
    model = counted_model_memory(parameters, copies, tasks)
    return Costs(
        model_memory=jnp.broadcast_to(model, (runs, tasks)),
        sample_memory=usage.stored_samples.astype(jnp.float32),
        lifetime_memory=jnp.sum(samples, axis=1).astype(jnp.float32),
        operations=operations * jnp.diff(usage.steps, axis=1, prepend=0).astype(jnp.float32),
        pass_operations=of_naive * jnp.ceil(samples / batch_size),
    )


def _trained(
    class_names: tuple[Hashable, ...],
    sequences: list[TaskSequence],
    state: SequenceState,
    costs: Costs,
    gone: Bool[np.ndarray, "seeds"],
    scores: Callable[[Learner, Memory, Array], Float[Array, "n c"]],
    stored: StoredImages,
) -> Trained:
    matrices = [
        np.where(gone[:, None, None], np.nan, np.asarray(each))
        for each in (
            state.result.evaluation.class_incremental,
            state.result.evaluation.task_masked,
        )
    ]
    class_task = np.stack([np.asarray(each.class_task) for each in sequences])
    result = state.result
    return Trained(
        class_names,
        class_task,
        *matrices,
        costs,
        gone,
        result.learner,
        result.memory,
        scores,
        stored.shape,
        np.dtype(stored.pieces.dtype),
    )


def _scores(matrices: Float[np.ndarray, "seeds t t"], costs: Costs) -> TrainedScores:
    given = jnp.asarray(matrices, jnp.float32)
    criteria = jax.vmap(measure_criteria)(given, costs)
    each = [
        float(cl_score({name: value[run] for name, value in criteria.items()}, WEIGHTINGS["W1"]))
        for run in range(len(matrices))
    ]
    plain = (np.asarray(jax.vmap(metric)(given)) for metric in (final_average_accuracy, forgetting))
    return TrainedScores(*plain, np.array(each))


def _spread(values: Float[np.ndarray, "seeds"]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{values.mean():.3f} ± {values.std(ddof=1):.3f}"
