"""Training of illuminant nets as a pure update, to be vmapped over folds, seeds and cameras."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import NonNegativeInt, PositiveFloat, PositiveInt, check_fields, checked
from everlight.color.chromaticity import from_chromaticity
from everlight.models.illuminant_net import IlluminantNet


@dataclass(frozen=True)
class TrainingSettings:
    """How one net is trained; Adam on the L1 loss (two-camera paper, eq. 7).

    Raises:
      ValueError: a count below 1, a rate that is not positive, an unknown schedule.
    """

    steps: PositiveInt = 20_000
    """Optimizer steps."""
    batch_size: NonNegativeInt = 512
    """Transforms per step, drawn with replacement; 0 takes all of them at every step."""
    learning_rate: PositiveFloat = 3e-3
    """Adam's rate at the start."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """The paper's rate is constant; cosine rises over the first 5% of the steps and falls to zero
    at the last. Without the rise some of the nets of 16 layers die at once."""
    validate_every: PositiveInt = 100
    """Steps between two validations; the state of the best one is kept."""

    def __post_init__(self):
        check_fields(self)


class Problem(NamedTuple):
    """One regression to lights, with the samples that choose the best step.

    Features are transforms row by row, or colour moments, or both.
    """

    features: Float[Array, "n f"]
    targets: Float[Array, "n 2"]
    valid_features: Float[Array, "m f"]
    valid_targets: Float[Array, "m 2"]


class IlluminantModel(NamedTuple):
    """A trained net: its parameters and the fixed affine map that standardises its inputs."""

    params: PyTree
    mean: Float[Array, "f"]
    scale: Float[Array, "f"]


class TrainingState(NamedTuple):
    """All that training carries from step to step."""

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
    """`init(key, problem)`, and `advance(key, state, problem)`: a block of steps, a validation."""

    init: Callable[[PRNGKeyArray, Problem], TrainingState]
    advance: Callable[[PRNGKeyArray, TrainingState, Problem], tuple[TrainingState, Losses]]


@checked
def predict_chromaticity(
    net: IlluminantNet, model: IlluminantModel, features: Float[Array, "*n f"]
) -> Float[Array, "*n 2"]:
    """[R/G, B/G] for features like those that the model was trained on."""
    return net.apply(model.params, (features - model.mean) / model.scale)


@checked
def predict_illuminant(
    net: IlluminantNet, model: IlluminantModel, transform: Float[Array, "3 3"]
) -> Float[Array, "3"]:
    """The light (R/G, 1, B/G) that a colour transform tells (two-camera paper, eq. 6)."""
    return from_chromaticity(predict_chromaticity(net, model, transform.reshape(9)))


@checked
def chromaticity_loss(
    estimate: Float[Array, "n 2"], target: Float[Array, "n 2"]
) -> Float[Array, ""]:
    """Mean absolute error over (R/G, 1, B/G), whose constant makes it 2/3 of the two entries'."""
    return 2 / 3 * jnp.mean(jnp.abs(estimate - target))


@checked
def make_trainer(net: IlluminantNet, settings: TrainingSettings) -> Trainer:
    """The pure functions that train `net`; unbatched, to be vmapped and jitted by the caller.

    Batches are keyed by the step, so that training continued from a saved state draws what it
    would have drawn without the break.
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
        # Typed, since a weakly typed infinity would have the first block compiled apart.
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
                # One random word an index, where randint takes two and a division: sampling was a
                # third of a step. Its 2^23 levels are ample for tables of some 10,000 rows.
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
        # A NaN loss is never "less", so a diverged net keeps the best it had.
        better = valid_loss < state.best_loss
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), model, state.best)
        best_loss = jnp.where(better, valid_loss, state.best_loss)
        next_step = state.step + settings.validate_every
        next_state = TrainingState(model, opt_state, next_step, best, best_loss)
        return next_state, Losses(jnp.mean(train_losses), valid_loss)

    return Trainer(init, advance)
