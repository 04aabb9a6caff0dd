"""Training of illuminant networks as pure updates that vmap over folds, seeds and cameras."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import NonNegativeInt, PositiveFloat, PositiveInt, check_fields, checked
from everlight.color.chromaticity import chromaticity_to_illuminant
from everlight.illuminant.illuminant_net import IlluminantNet


@dataclass(frozen=True)
class TrainingSettings:
    """Training options of one network; Adam on the L1 loss (two-camera paper, eq. 7).

    Raises:
      ValueError: a count is below 1, the learning rate is not positive, or the schedule is unknown.
    """

    steps: PositiveInt = 20_000
    """Number of optimizer steps."""
    batch_size: NonNegativeInt = 512
    """Transforms per step, drawn with replacement; 0 uses all of them in every step."""
    learning_rate: PositiveFloat = 3e-3
    """Adam's initial learning rate."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Learning rate schedule. The paper's is constant; cosine warms up over the first 5% of the
    steps and decays to zero. Without warm-up, some networks of 16 layers die immediately."""
    validate_every: PositiveInt = 100
    """Steps between two validations; the parameters with the lowest validation loss are kept."""

    def __post_init__(self):
        check_fields(self)


class Problem(NamedTuple):
    """One illuminant regression, with validation samples that select the best step.

    Features are flattened transforms, colour moments, or both.
    """

    features: Float[Array, "n f"]
    targets: Float[Array, "n 2"]
    valid_features: Float[Array, "m f"]
    valid_targets: Float[Array, "m 2"]


class IlluminantModel(NamedTuple):
    """A trained network: its parameters and the affine map that standardizes its inputs."""

    params: PyTree
    mean: Float[Array, "f"]
    scale: Float[Array, "f"]


class TrainingState(NamedTuple):
    """State of the training between blocks of steps."""

    model: IlluminantModel
    opt_state: optax.OptState
    step: Int[Array, ""]
    best: IlluminantModel
    best_loss: Float[Array, ""]


class Losses(NamedTuple):
    """Mean training loss of a block of steps, and the validation loss at its end."""

    train: Float[Array, ""]
    valid: Float[Array, ""]


class Trainer(NamedTuple):
    """Functions `init(key, problem)` and `advance(key, state, problem)`.

    `advance` runs a block of steps and a validation.
    """

    init: Callable[[PRNGKeyArray, Problem], TrainingState]
    advance: Callable[[PRNGKeyArray, TrainingState, Problem], tuple[TrainingState, Losses]]


@checked
def predict_chromaticity(
    net: IlluminantNet, model: IlluminantModel, features: Float[Array, "*n f"]
) -> Float[Array, "*n 2"]:
    """Predict [R/G, B/G] from features of the kind the model was trained on.

    Args:
      net: network of the model's parameters.
      model: trained parameters, with mean and scale of the features.
      features: features, `[..., f]`.
    """
    return net.apply(model.params, (features - model.mean) / model.scale)


@checked
def predict_illuminant(
    net: IlluminantNet, model: IlluminantModel, transform: Float[Array, "3 3"]
) -> Float[Array, "3"]:
    """Predict the illuminant (R/G, 1, B/G) from a colour transform (two-camera paper, eq. 6).

    Args:
      net: network of the model's parameters, which has nine inputs.
      model: trained parameters, with mean and scale of the features.
      transform: 3×3 transform, in the scale of the training features.
    """
    return chromaticity_to_illuminant(predict_chromaticity(net, model, transform.reshape(9)))


@checked
def chromaticity_loss(
    estimate: Float[Array, "n 2"], target: Float[Array, "n 2"]
) -> Float[Array, ""]:
    """Return the mean absolute error over (R/G, 1, B/G), which is 2/3 of the two entries' mean.

    Args:
      estimate: estimated R/G and B/G, `[n, 2]`.
      target: true R/G and B/G, `[n, 2]`.
    """
    return 2 / 3 * jnp.mean(jnp.abs(estimate - target))


@checked
def make_trainer(net: IlluminantNet, settings: TrainingSettings) -> Trainer:
    """Return the pure functions that train `net`; unbatched, for the caller to vmap and jit.

    Batch keys derive from the step, so that training resumed from a saved state draws the same
    batches as without the interruption.

    Args:
      net: network from features to R/G and B/G.
      settings: optimizer, batch size and numbers of steps.
    """
    rate = settings.learning_rate
    if settings.schedule == "cosine":
        rate = optax.warmup_cosine_decay_schedule(0.0, rate, settings.steps // 20, settings.steps)
    optimizer = optax.adam(rate)

    def init(key: PRNGKeyArray, problem: Problem) -> TrainingState:
        scale = jnp.std(problem.features, axis=0)
        model = IlluminantModel(
            params=net.init(key, problem.features[0]),
            mean=jnp.mean(problem.features, axis=0),
            scale=jnp.where(scale > 0, scale, 1),
        )
        opt_state = optimizer.init(model.params)
        # Typed, since a weakly typed infinity would compile the first block separately.
        best_loss = jnp.array(jnp.inf, jnp.float32)
        return TrainingState(model, opt_state, jnp.array(0), model, best_loss)

    def advance(
        key: PRNGKeyArray, state: TrainingState, problem: Problem
    ) -> tuple[TrainingState, Losses]:
        table = jnp.concatenate([problem.features, problem.targets], axis=1)

        def batch_loss(params: PyTree, batch: Float[Array, "b c"]) -> Float[Array, ""]:
            model = state.model._replace(params=params)
            estimate = predict_chromaticity(net, model, batch[:, :-2])
            return chromaticity_loss(estimate, batch[:, -2:])

        def step(carry: tuple, index: Int[Array, ""]) -> tuple:
            params, opt_state = carry
            batch = table
            if settings.batch_size:
                # One random word per index; randint needs two and a division, which took a third of
                # a step. Its 2^23 levels suffice for tables of about 10,000 rows.
                share = jax.random.uniform(jax.random.fold_in(key, index), (settings.batch_size,))
                batch = table[(share * table.shape[0]).astype(int)]
            loss, gradient = jax.value_and_grad(batch_loss)(params, batch)
            updates, opt_state = optimizer.update(gradient, opt_state)
            return (optax.apply_updates(params, updates), opt_state), loss

        indices = state.step + jnp.arange(settings.validate_every)
        carry = (state.model.params, state.opt_state)
        (params, opt_state), train_losses = jax.lax.scan(step, carry, indices)
        model = state.model._replace(params=params)
        valid_loss = chromaticity_loss(
            predict_chromaticity(net, model, problem.valid_features), problem.valid_targets
        )
        # A NaN loss is never less, so a diverged network keeps its best parameters.
        better = valid_loss < state.best_loss
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), model, state.best)
        best_loss = jnp.where(better, valid_loss, state.best_loss)
        next_step = state.step + settings.validate_every
        next_state = TrainingState(model, opt_state, next_step, best, best_loss)
        return next_state, Losses(jnp.mean(train_losses), valid_loss)

    return Trainer(init, advance)
