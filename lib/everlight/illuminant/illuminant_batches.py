"""Training of many illuminant networks in one compiled program, and selection among them.

Networks of several folds, seeds and cameras have problems of one size, and train together: a
leading axis over problems is divided over the devices and vmapped.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PRNGKeyArray

from everlight.checks import NotEmpty, PositiveInt, Stacked, check_sizes, checked
from everlight.illuminant.illuminant_net import IlluminantNet
from everlight.illuminant.illuminant_training import (
    IlluminantModel,
    Losses,
    Problem,
    TrainingSettings,
    TrainingState,
    make_trainer,
    predict_chromaticity,
)
from everlight.meshes import REPLICATED, RUNS_AXIS, RUNS_SPEC, pad_runs, runs_mesh
from everlight.trees import rows_of, stacked

States = dict[int, TrainingState]
"""States of all problems' trainings by number of hidden layers."""


class TrainedNetworks(NamedTuple):
    """Trained networks by number of hidden layers.

    Attributes:
      models: best models; the leading axis is that of the problems.
      losses: training and validation losses, `[validations, problems]`.
    """

    models: dict[int, IlluminantModel]
    losses: dict[int, Losses]


class BatchTrainer(NamedTuple):
    """Compiled functions `init(problems)` and `advance(states, problems)`.

    `advance` runs several blocks of steps, each with a validation, and returns the states and their
    losses, `[validations, problems]`, by number of hidden layers.
    """

    init: Callable[[Problem], States]
    advance: Callable[[States, Problem], tuple[States, dict[int, Losses]]]


@checked
def stack_problems(problems: Sequence[Problem]) -> Problem:
    """Stack problems of equal sizes along a new leading axis, as float32.

    Raises:
      ValueError: the sizes differ.
    """
    return jax.tree.map(lambda *arrays: np.stack(arrays).astype(np.float32), *problems)


@checked
def make_batch_trainer(
    key: PRNGKeyArray,
    depths: Sequence[int],
    settings: TrainingSettings,
    problems: PositiveInt,
    validations: PositiveInt,
) -> BatchTrainer:
    """Return the functions that train a network of every depth on every problem.

    Each network has its own initial parameters and batches, which depend on its depth and its place
    among the problems only. Resumed from saved states, training gives the same bits.

    Args:
      key: key of initial parameters and batches.
      depths: numbers of hidden layers.
      settings: optimizer settings, shared by all.
      problems: number of problems.
      validations: number of validations in a call of `advance`.
    """
    trainers = {depth: make_trainer(IlluminantNet(depth), settings) for depth in depths}
    keys = {depth: _keys(jax.random.fold_in(key, depth), problems) for depth in depths}
    mesh = runs_mesh()
    dealt = partial(pad_runs, missing=-problems % mesh.size)
    # One sharding for all values passed between blocks, so that the second is not compiled again.
    compiled = partial(jax.jit, out_shardings=NamedSharding(mesh, REPLICATED))

    @compiled
    def init(problem: Problem) -> States:
        return {depth: jax.vmap(trainers[depth].init)(keys[depth], problem) for depth in depths}

    def advance_depth(depth: int, states: Any, problem: Problem) -> tuple[Any, Losses]:
        def run_on_device(keys: Array, states: Any, problem: Problem) -> tuple[Any, Losses]:
            advance = jax.vmap(trainers[depth].advance)
            return jax.lax.scan(
                lambda state, _: advance(keys, state, problem), states, length=validations
            )

        run_on_devices = jax.shard_map(
            run_on_device,
            mesh=mesh,
            in_specs=RUNS_SPEC,
            out_specs=(RUNS_SPEC, PartitionSpec(None, RUNS_AXIS)),
            check_vma=False,
        )
        states, losses = run_on_devices(*dealt((keys[depth], states, problem)))
        return (
            jax.tree.map(lambda leaf: leaf[:problems], states),
            jax.tree.map(lambda leaf: leaf[:, :problems], losses),
        )

    @compiled
    def advance(states: States, problem: Problem) -> tuple[States, dict[int, Losses]]:
        trained = {depth: advance_depth(depth, states[depth], problem) for depth in depths}
        return tuple({depth: trained[depth][part] for depth in depths} for part in (0, 1))

    return BatchTrainer(init, advance)


def _keys(key: PRNGKeyArray, count: int) -> Array:
    return jax.vmap(lambda index: jax.random.fold_in(key, index))(jnp.arange(count))


@checked
@partial(jax.jit, static_argnames="depth")
def predict_batch(
    depth: PositiveInt, models: Annotated[IlluminantModel, Stacked], features: Float[Array, "p n f"]
) -> Float[Array, "p n 2"]:
    """Return each network's predictions [R/G, B/G] for its own samples.

    Args:
      depth: number of hidden layers.
      models: networks, with a leading axis of p.
      features: samples of each network, `[p, n, f]`.
    """
    check_sizes(features=(features, 0), models=(models.mean, 0))
    net = IlluminantNet(depth)
    return jax.vmap(predict_chromaticity, (None, 0, 0))(net, models, features)


@checked
def best_of_restarts(trained: TrainedNetworks, restarts: PositiveInt) -> TrainedNetworks:
    """Return the one of each problem's `restarts` adjacent trainings with the lowest loss.

    Some initial parameters let networks of nine units die or get stuck.

    Args:
      trained: networks; the restarts of a problem are adjacent along the first axis.
      restarts: trainings of each problem.
    """
    models, losses = {}, {}
    for depth, curves in trained.losses.items():
        best = index_of_lowest(_lowest(np.asarray(curves.valid)).reshape(-1, restarts).T)
        chosen = np.arange(len(best)) * restarts + best
        models[depth] = rows_of(trained.models[depth], chosen)
        losses[depth] = jax.tree.map(lambda curve, c=chosen: curve[:, c], curves)
    return TrainedNetworks(models, losses)


class RateChoice(NamedTuple):
    """Networks at the learning rate with each group's lowest validation loss.

    Attributes:
      networks: models and losses of every problem at its group's rate.
      chosen: each group's rate by number of hidden layers.
    """

    networks: TrainedNetworks
    chosen: dict[int, Float[np.ndarray, "groups"]]


@checked
def best_of_rates(by_rate: Mapping[float, TrainedNetworks], group: PositiveInt) -> RateChoice:
    """Select a learning rate for each `group` of adjacent problems by their mean validation loss.

    Adjacent problems are trainings of one fold with several seeds. A network that diverged counts
    with its lowest loss before.

    Args:
      by_rate: networks trained with each learning rate, in one order of problems.
      group: number of adjacent problems that share a rate.
    """
    rates, trained = np.array(list(by_rate)), list(by_rate.values())
    models, losses, chosen = {}, {}, {}
    for depth in trained[0].models:
        least = np.stack([_lowest(np.asarray(nets.losses[depth].valid)) for nets in trained])
        best = np.argmin(least.reshape(len(trained), -1, group).mean(axis=2), axis=0)
        rate, problem = np.repeat(best, group), np.arange(least.shape[1])
        models[depth] = rows_of(stacked([nets.models[depth] for nets in trained]), (rate, problem))
        losses[depth] = jax.tree.map(
            lambda *curves, r=rate, p=problem: np.stack(curves, axis=2)[:, p, r],
            *(nets.losses[depth] for nets in trained),
        )
        chosen[depth] = rates[best]
    return RateChoice(TrainedNetworks(models, losses), chosen)


@checked
def index_of_lowest(
    losses: Annotated[Float[np.ndarray, "n *shape"], NotEmpty],
) -> Int[np.ndarray, "*shape"]:
    """Return the index of the lowest loss along the first axis; NaN counts as infinite.

    Args:
      losses: losses, candidates first, `[n, ...]`.
    """
    return np.argmin(_replace_nan(losses), axis=0)


def _lowest(curves: Float[np.ndarray, "validations p"]) -> Float[np.ndarray, "p"]:
    return np.min(_replace_nan(curves), axis=0)


def _replace_nan(losses: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Replace NaN, which argmin and min would select, by infinity."""
    return np.where(np.isnan(losses), np.inf, losses)
