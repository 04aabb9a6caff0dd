"""One call that trains a network on a sequence of tasks, with all seeds in one program."""

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from everlight.base import Learner, Memory, Setup, Strategy, TaskSequence
from everlight.checks import Between, NonNegativeInt, OpenUnitInterval, PositiveInt, checked
from everlight.continual.engine import (
    Build,
    Protocol,
    Run,
    Runs,
    StoredImages,
    diverged_runs,
    drive_runs,
    network_setup,
    operations_per_step,
)
from everlight.continual.engine.run import SequenceState
from everlight.continual.engine.setups.network_setup import Net
from everlight.continual.objectives import softmax_objective
from everlight.continual.strategies import naive
from everlight.continual.training.adapted_net import adapt_net
from everlight.continual.training.labelled_images import (
    LabelledSplit,
    refuse_untested,
    split_labelled,
    store_normalized,
)
from everlight.continual.training.saved_net import predict_images
from everlight.continual.training.trained import Trained
from everlight.data_checks import scale_of
from everlight.errors import Argument, ArgumentError
from everlight.metrics import Costs, sequence_costs
from everlight.scenarios import pad_sequences, seeded_class_incremental
from everlight.trees import stacked

RATE = 1e-3
"""Learning rate of Adam, the default optimizer."""


@checked
def train(
    net: Net,
    images: Any,
    labels: Any,
    strategy: Callable[[Setup], Strategy],
    tasks: Annotated[int, Between(2)] = 5,
    seeds: PositiveInt = 5,
    test: OpenUnitInterval | tuple = 0.2,
    epochs: PositiveInt = 5,
    batch_size: PositiveInt = 32,
    optimizer: optax.GradientTransformation | None = None,
    seed: NonNegativeInt = 0,
) -> Trained:
    """Train a network class-incrementally on labelled images, once per seed.

    Each seed has a different class order, initialization and sample order. All seeds are one
    compiled program, distributed over all devices. One head has all classes, and training does not
    use task identity. For several labels per image, soft labels and regression there is
    `train_targets`. Channels of images `[n, h, w, c]` and columns of features `[n, f]` are
    normalized by the training samples; arrays of other ranks have one mean and deviation.

    Args:
      net: network with one output per class: a Flax linen module, whose first argument is the
        images and whose second one may be `train`, `training`, `deterministic` or similar; a
        function of `rngs` that returns a Flax NNX module (`nnx_setup`); or a function of `key` that
        returns an Equinox module of one image (`equinox_setup`). If it returns logits alone,
        strategies that compare features use the logits.
      images: images, `[n, h, w, c]`, or features of any shape, `[n, ...]`; a NumPy or JAX array or
        a list.
      labels: label of each image, of any comparable type such as numbers or text; none is missing.
      strategy: function from a setup to a strategy, such as `naive` or
        `lambda setup: ewc(setup, regularization=100.0)`.
      tasks: number of tasks among which the classes are divided as equally as possible.
      seeds: number of seeds.
      test: share of every class's images, drawn at random, for the test set; or separate test
        images and labels of all classes, of the type and scale of the training images.
      epochs: epochs per task; the last one is kept.
      batch_size: samples per step.
      optimizer: optimizer, reset at every task; None is Adam at 0.001.
      seed: first random seed; the others follow consecutively.

    Raises:
      ImportError: `net` makes an Equinox module, and Equinox is not installed.
      ValueError: images and labels differ in number; a label is missing or equal to another one in
        number alone; test images have another scale; a class has one image, or none to test; there
        are more tasks than classes; the network cannot be called or its outputs do not fit; or
        `strategy` does not return a strategy.
    """
    split = split_labelled(images, labels, test, np.random.default_rng(seed))
    refuse_untested(split)
    classes, trained = len(split.class_names), len(split.train_labels)
    if tasks > classes:
        raise ArgumentError(
            Argument("tasks", tasks), f" of {classes} classes", remedy=(f"give {classes} or fewer",)
        )
    called = adapt_net(net, split.images.shape[1:], classes)
    rule = optax.adam(RATE) if optimizer is None else optimizer
    stored = store_normalized(split.images, trained)
    protocol = Protocol(epochs=epochs, batch_size=batch_size, select="last")
    build = _build_with(called, rule, strategy)
    plain = build if strategy is naive else _build_with(called, rule, naive)
    sequences = _sequences(split, tasks, range(seed, seed + seeds))
    keys = [jax.random.key(number) for number in range(seed, seed + seeds)]
    last = final_state(Runs(build, protocol, stored, stacked(sequences), jnp.stack(keys)), epochs)
    first = Run(build, protocol, stored, sequences[0], keys[0])
    is_diverged = diverged_runs(protocol, last)
    evaluation = last.result.evaluation

    def scores(learner: Learner, memory: Memory, images: Array) -> Float[Array, "n c"]:
        return predict_images(build, protocol.evaluation_batch, stored, images, learner, memory)

    return Trained(
        class_names=split.class_names,
        class_task=np.stack([np.asarray(sequence.class_task) for sequence in sequences]),
        class_incremental_matrices=_mask_diverged(evaluation.class_incremental, is_diverged),
        task_masked_matrices=_mask_diverged(evaluation.task_masked, is_diverged),
        costs=_costs(last, sequences, first, replace(first, build=plain)),
        diverged=is_diverged,
        learner=last.result.learner,
        memory=last.result.memory,
        scores=scores,
        image_shape=stored.shape,
        image_dtype=np.dtype(stored.pieces.dtype),
        image_offset=stored.offset,
        image_scale=scale_of(split.images[:trained]),
    )


def _build_with(
    net: Net, optimizer: optax.GradientTransformation, strategy: Callable[[Setup], Strategy]
) -> Build:
    def build(stored: StoredImages) -> tuple[Setup, Strategy]:
        setup = network_setup(net, stored, softmax_objective(), optimizer)
        return setup, build_checked(strategy, setup)

    return build


def _mask_diverged(
    matrices: Float[Array, "seeds t t"], is_diverged: Bool[np.ndarray, "seeds"]
) -> Float[np.ndarray, "seeds t t"]:
    """Return accuracies, NaN for seeds that diverged."""
    return np.where(is_diverged[:, None, None], np.nan, np.asarray(matrices))


def build_checked(strategy: Callable[[Setup], Strategy], setup: Setup) -> Strategy:
    """Return the strategy for a setup.

    Raises:
      ValueError: the function needs other arguments than a setup, or returns something else.
    """
    example = "such as naive, or lambda setup: ewc(setup, regularization=100.0)"
    try:
        signature(strategy).bind(setup)
    except TypeError as error:
        raise ArgumentError(
            f"strategy: {error}; give a function of the Setup alone, {example}"
        ) from None
    result = strategy(setup)
    if not isinstance(result, Strategy):
        raise ArgumentError(
            f"strategy returned {type(result).__name__}; give a function from a Setup to a "
            f"Strategy, {example}"
        )
    return result


def _sequences(split: LabelledSplit, tasks: int, seeds: range) -> list[TaskSequence]:
    classes = len(split.class_names)
    return pad_sequences(
        [
            seeded_class_incremental(split.train_labels, split.test_labels, tasks, classes, seed)
            for seed in seeds
        ]
    )


def final_state(runs: Runs, epochs: int) -> SequenceState:
    """Return the state after the last task, off the runs' mesh."""
    for state in drive_runs(runs, chunk=epochs):
        last = state
    # A mesh of the caller has no effect then; NaN are missing validations.
    with jax.debug_nans(False):
        return jax.tree.map(jnp.asarray, jax.device_get(last))


def _costs(state: SequenceState, sequences: list[TaskSequence], run: Run, plain: Run) -> Costs:
    """Return the costs of all seeds, one of which is `run`, and `plain` its naive finetuning."""
    usage, params = state.result.usage, state.result.learner.params
    _, strategy = run.setup_and_strategy()
    operations, of_naive = map(operations_per_step, (run, plain))
    runs = len(sequences)
    samples = jnp.stack([jnp.sum(sequence.tasks.train.mask, axis=1) for sequence in sequences])
    steps = jnp.diff(usage.steps, axis=1, prepend=0).astype(jnp.float32)
    return sequence_costs(
        sum(leaf.size // runs for leaf in jax.tree.leaves(params)),
        strategy.parameter_copies,
        usage.stored_samples.astype(jnp.float32),
        samples.astype(jnp.float32),
        operations * steps,
        of_naive * jnp.ceil(samples / run.protocol.batch_size),
    )
