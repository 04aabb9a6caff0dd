"""Importances of parameters for earlier tasks: diagonal Fisher information and MAS."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Fisher, Learner, Outputs, Samples, Setup
from everlight.continual.strategies.parts.passes import evaluation_outputs
from everlight.errors import Argument, ArgumentError


def fisher_diagonal(
    setup: Setup,
    learner: Learner,
    samples: Samples,
    limit: int,
    key: PRNGKeyArray,
    chunk: int | None = None,
    fisher: Fisher | None = None,
) -> PyTree:
    """Return the diagonal Fisher information, the mean squared gradient of the log-likelihood.

    Gradients are per sample, in evaluation mode (Kirkpatrick et al. 2017, PNAS). The true Fisher
    information takes the expectation over labels of the model; one drawn label per sample is an
    unbiased estimate. Its variance is large where the model is certain, since the rare labels have
    the large gradients. The expected one enumerates all labels, which takes a gradient for each of
    them. The empirical one takes the data's labels and vanishes where the model fits them (Kunstner
    et al. 2019, NeurIPS).

    Args:
      setup: network and objective, whose loss is the negative log-likelihood.
      learner: learner at whose parameters gradients are taken.
      samples: samples of the task; the mean runs over `limit` of them, evenly spaced in order.
      limit: maximal number of samples.
      key: random key of the labels of the true Fisher information. Each sample folds in its
        position among those used, so a repeated index draws a label each time.
      chunk: number of per-sample gradients held at once; None depends on the device.
      fisher: "true", "expected" or "empirical"; None is the objective's default.

    Raises:
      ValueError: the objective has no `fisher_loss` for the true Fisher information, or no
        `label_losses` for the expected one.
    """
    kind = chosen_fisher(setup, fisher)

    def expected_square(
        position: Int[Array, ""], index: Int[Array, ""], labels: Int[Array, "k"]
    ) -> PyTree:
        def losses(params: PyTree) -> tuple[Float[Array, "c"], Float[Array, "c"]]:
            outputs = _sample_outputs(setup, learner, params, index)
            by_label, probability = setup.objective.label_losses(
                outputs, labels[None], learner.seen
            )
            return by_label[0], probability[0]

        by_label, gradient_of, probability = jax.vjp(losses, learner.params, has_aux=True)
        possible_first = jnp.argsort(probability <= 0, stable=True)

        # One gradient at a time stays in the processor's cache; those of all labels do not.
        def add(place: Int[Array, ""], total: PyTree) -> PyTree:
            label = possible_first[place]
            (gradient,) = gradient_of(jax.nn.one_hot(label, len(by_label), dtype=by_label.dtype))
            return jax.tree.map(
                lambda sum_so_far, leaf: sum_so_far + probability[label] * jnp.square(leaf),
                total,
                gradient,
            )

        zeros = jax.tree.map(jnp.zeros_like, learner.params)
        return jax.lax.fori_loop(0, jnp.sum(probability > 0), add, zeros)

    def squared_gradient(
        position: Int[Array, ""], index: Int[Array, ""], labels: Int[Array, "k"]
    ) -> PyTree:
        def loss(params: PyTree) -> Float[Array, ""]:
            outputs, truth = _sample_outputs(setup, learner, params, index), labels[None]
            if kind == "empirical":
                return setup.objective.loss(outputs, truth, learner.seen)[0]
            key_label = jax.random.fold_in(key, position)
            return setup.objective.fisher_loss(outputs, truth, learner.seen, key_label)[0]

        return jax.tree.map(jnp.square, jax.grad(loss)(learner.params))

    square = expected_square if kind == "expected" else squared_gradient
    return _mean_per_sample(square, samples, limit, chunk, learner.params)


def chosen_fisher(setup: Setup, fisher: Fisher | None) -> Fisher:
    """Return the kind of Fisher information, the objective's default for None.

    Raises:
      ValueError: the objective has no `fisher_loss` for the true Fisher information, or no
        `label_losses` for the expected one.
    """
    objective = setup.objective
    chosen = objective.fisher if fisher is None else fisher
    needed = {"true": "fisher_loss", "expected": "label_losses"}.get(chosen)
    if needed is not None and getattr(objective, needed) is None:
        raise ArgumentError(
            Argument("fisher", chosen),
            f" needs an objective with {needed}",
            remedy=("give one, or ", Argument("fisher", "empirical")),
        )
    return chosen


def memory_aware_importance(
    setup: Setup, learner: Learner, samples: Samples, limit: int, chunk: int | None = None
) -> PyTree:
    """Return the importances of MAS, |∂‖F(x)‖²/∂θ| averaged over inputs.

    This is the global version of Aljundi et al. 2018 (ECCV). It uses no labels.

    Args:
      setup: network and objective, whose `function` is F.
      learner: learner at whose parameters gradients are taken.
      samples: samples of the task; the mean runs over `limit` of them, evenly spaced in order.
      limit: maximal number of samples.
      chunk: number of per-sample gradients held at once; None depends on the device.
    """

    def absolute_gradient(
        position: Int[Array, ""], index: Int[Array, ""], labels: Int[Array, "k"]
    ) -> PyTree:
        def squared_length(params: PyTree) -> Float[Array, ""]:
            outputs = _sample_outputs(setup, learner, params, index)
            return jnp.sum(setup.objective.function(outputs, learner.seen) ** 2)

        return jax.tree.map(jnp.abs, jax.grad(squared_length)(learner.params))

    return _mean_per_sample(absolute_gradient, samples, limit, chunk, learner.params)


def _sample_outputs(
    setup: Setup, learner: Learner, params: PyTree, index: Int[Array, ""]
) -> Outputs:
    """Return one sample's outputs in evaluation mode."""
    inputs = setup.gather(index[None], None)
    return evaluation_outputs(setup, learner._replace(params=params), inputs)


def _mean_per_sample(
    per_sample: Callable[[Int[Array, ""], Int[Array, ""], Int[Array, "k"]], PyTree],
    samples: Samples,
    limit: int,
    chunk: int | None,
    like: PyTree,
) -> PyTree:
    """Return the mean of a per-sample tree over at most `limit` samples, `chunk` at a time.

    `per_sample` takes the position among the samples used, the stored index and the labels.
    """
    if chunk is None:
        # Gradients of many samples at once are grouped convolutions, for which XLA's CPU has no
        # fast form: 512 samples of a small net took 0.57 s one by one, 1.65 s in chunks of 16.
        one_by_one, many = (
            partial(_mean_per_sample, per_sample, samples, limit, size, like) for size in (1, 32)
        )
        return jax.lax.platform_dependent(cpu=one_by_one, default=many)
    # Valid slots first, in their order: a stable sort of the mask.
    slots = jnp.argsort(~samples.mask, stable=True)
    available = jnp.sum(samples.mask)
    count = jnp.minimum(available, limit)

    def add(block: Int[Array, ""], total: PyTree) -> PyTree:
        position = block * chunk + jnp.arange(chunk)
        counted = position < count
        # Evenly spaced, since files are often sorted by class; in parts that do not overflow.
        stride, rest = available // jnp.maximum(count, 1), available % jnp.maximum(count, 1)
        spaced = position * stride + position * rest // jnp.maximum(count, 1)
        # The first slot pads the last chunk, at weight 0.
        slot = slots[jnp.where(counted, spaced, 0)]
        values = jax.vmap(per_sample)(position, samples.index[slot], samples.labels[slot])

        def add_counted(sum_so_far: Array, leaf: Array) -> Array:
            weight = counted.reshape(-1, *[1] * (leaf.ndim - 1))
            return sum_so_far + jnp.sum(jnp.where(weight, leaf, 0), axis=0)

        return jax.tree.map(add_counted, total, values)

    zeros = jax.tree.map(jnp.zeros_like, like)
    total = jax.lax.fori_loop(0, -(-count // chunk), add, zeros)
    return jax.tree.map(lambda leaf: leaf / jnp.maximum(count, 1), total)
