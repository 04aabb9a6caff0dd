"""How much each parameter matters to what was learnt: diagonal Fisher and MAS."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.continual.base import Fisher, Learner, Outputs, Samples, Setup


def fisher_diagonal(
    setup: Setup,
    learner: Learner,
    samples: Samples,
    limit: int,
    key: PRNGKeyArray,
    chunk: int | None = None,
    fisher: Fisher | None = None,
) -> PyTree:
    """Diagonal of the Fisher information: mean squared gradient of the log-likelihood.

    Kirkpatrick et al. 2017 (PNAS); gradients are per sample, in evaluation mode. The true Fisher
    takes the expectation over the model's own labels, of which one draw per sample is an unbiased
    estimate. The empirical Fisher takes the data's labels and vanishes where the model fits them
    (Kunstner et al. 2019, NeurIPS).

    Args:
      setup: network and objective, whose loss is the negative log-likelihood.
      learner: at the parameters in question.
      samples: of the task; the mean runs over `limit` of them, evenly spaced in their order.
      limit: most samples to use.
      key: of the draws of the true Fisher; a sample's own is folded in by its place among those
        used, so that an index that occurs twice draws twice.
      chunk: samples whose gradients are held at once; None is what suits the device.
      fisher: "true" or "empirical"; None is the objective's default.

    Raises:
      ValueError: the true Fisher, where the objective has no `fisher_loss`.
    """
    kind = chosen_fisher(setup, fisher)

    def squared_gradient(
        position: Int[Array, ""], index: Int[Array, ""], labels: Int[Array, "k"]
    ) -> PyTree:
        def loss(params: PyTree) -> Float[Array, ""]:
            given = _outputs_of(setup, learner, params, index), labels[None], learner.seen
            if kind == "empirical":
                return setup.objective.loss(*given)[0]
            return setup.objective.fisher_loss(*given, jax.random.fold_in(key, position))[0]

        return jax.tree.map(jnp.square, jax.grad(loss)(learner.params))

    return _mean_over(squared_gradient, samples, limit, chunk, learner.params)


def chosen_fisher(setup: Setup, fisher: Fisher | None) -> Fisher:
    """Return the Fisher information that is meant, the objective's default for None.

    Raises:
      ValueError: the true Fisher, where the objective has no `fisher_loss`.
    """
    chosen = setup.objective.fisher if fisher is None else fisher
    if chosen == "true" and setup.objective.fisher_loss is None:
        raise ValueError(
            "fisher='true' needs an objective with a fisher_loss; give one, or fisher='empirical'"
        )
    return chosen


def memory_aware_importance(
    setup: Setup, learner: Learner, samples: Samples, limit: int, chunk: int | None = None
) -> PyTree:
    """Mean absolute gradient of the squared length of the output; no labels.

    Aljundi et al. 2018 (ECCV), the global version: |∂‖F(x)‖²/∂θ| averaged over inputs.

    Args:
      setup: network and objective, whose `function` is F.
      learner: at the parameters in question.
      samples: of the task; the mean runs over `limit` of them, evenly spaced in their order.
      limit: most samples to use.
      chunk: samples whose gradients are held at once; None is what suits the device.
    """

    def absolute_gradient(
        position: Int[Array, ""], index: Int[Array, ""], labels: Int[Array, "k"]
    ) -> PyTree:
        def squared_length(params: PyTree) -> Float[Array, ""]:
            outputs = _outputs_of(setup, learner, params, index)
            return jnp.sum(setup.objective.function(outputs, learner.seen) ** 2)

        return jax.tree.map(jnp.abs, jax.grad(squared_length)(learner.params))

    return _mean_over(absolute_gradient, samples, limit, chunk, learner.params)


def _outputs_of(setup: Setup, learner: Learner, params: PyTree, index: Int[Array, ""]) -> Outputs:
    """One sample's outputs in evaluation mode."""
    inputs = setup.gather(index[None], None)
    return setup.apply(params, learner.batch_stats, inputs, False, None)[0]


def _mean_over(
    per_sample: Callable[[Int[Array, ""], Int[Array, ""], Int[Array, "k"]], PyTree],
    samples: Samples,
    limit: int,
    chunk: int | None,
    like: PyTree,
) -> PyTree:
    """Mean of a per-sample tree over at most `limit` samples, `chunk` of them at a time.

    `per_sample` takes the place among the samples used, the stored index and the labels.
    """
    if chunk is None:
        # Gradients of many samples at once are grouped convolutions, for which XLA's CPU has no
        # fast form: 512 samples of a small net took 0.57 s one by one, 1.65 s in chunks of 16.
        chunk = 1 if jax.default_backend() == "cpu" else 32
    # Valid slots first, in their order: a stable sort of the mask.
    slots = jnp.argsort(~samples.mask, stable=True)
    there = jnp.sum(samples.mask)
    count = jnp.minimum(there, limit)

    def add(block: Int[Array, ""], total: PyTree) -> PyTree:
        position = block * chunk + jnp.arange(chunk)
        kept = position < count
        # Evenly spaced, since files are often sorted by class; in parts that do not overflow.
        each, rest = there // jnp.maximum(count, 1), there % jnp.maximum(count, 1)
        spaced = position * each + position * rest // jnp.maximum(count, 1)
        # The first slot stands in where there is no sample left, at weight 0.
        slot = slots[jnp.where(kept, spaced, 0)]
        values = jax.vmap(per_sample)(position, samples.index[slot], samples.labels[slot])

        def add_kept(sum_so_far: Array, leaf: Array) -> Array:
            weight = kept.reshape(-1, *[1] * (leaf.ndim - 1))
            return sum_so_far + jnp.sum(jnp.where(weight, leaf, 0), axis=0)

        return jax.tree.map(add_kept, total, values)

    zeros = jax.tree.map(jnp.zeros_like, like)
    total = jax.lax.fori_loop(0, -(-count // chunk), add, zeros)
    return jax.tree.map(lambda leaf: leaf / jnp.maximum(count, 1), total)
