"""Training of all networks of a table in one compiled program, with checkpoints."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from everlight.meshes import REPLICATED, RUNS_AXIS, RUNS_SPEC, pad_runs, put_on_mesh, runs_mesh
from everlight.models.illuminant_net import IlluminantNet
from everlight.models.illuminant_training import (
    IlluminantModel,
    Losses,
    Problem,
    TrainingSettings,
    make_trainer,
    predict_chromaticity,
)
from everlight.trees import checksums_of, rows_of, stacked
from everlight_data.checkpoints import Checkpoints
from everlight_data.errors import DataError
from everlight_experiments.common.interruption import uninterrupted
from everlight_experiments.common.progress import progress

PARAMETERS = {2: 200, 5: 470, 16: 1460}
"""Number of parameters, after which the paper names its networks, by number of hidden layers."""

BLOCKS = 10
"""Number of evenly spaced checkpoints of a training."""


class TrainedNetworks(NamedTuple):
    """The best models (leading axis: problems) and losses `[validations, problems]` by depth."""

    models: dict[int, IlluminantModel]
    losses: dict[int, Losses]


def train_networks(
    problems: Problem,
    depths: Sequence[int],
    settings: TrainingSettings,
    seed: int,
    checkpoints: Checkpoints,
    width: int = IlluminantNet.width,
) -> TrainedNetworks:
    """Train a network of every depth on every problem.

    After an interruption the same call continues from the newest checkpoint, with the same result
    bit for bit: batches are keyed by step, and every block runs in the same compiled program.

    Args:
      problems: arrays with a leading axis over problems (folds, cameras, seeds).
      depths: numbers of hidden layers.
      settings: optimizer settings, shared by all.
      seed: random seed of initial parameters and batches.
      checkpoints: where the state is saved after blocks and at the end.
      width: units of each hidden layer.

    Raises:
      DataError: the steps do not divide into blocks of validations, all networks diverged, or the
        checkpoints are of another training.
    """
    validations, rest = divmod(settings.steps, settings.validate_every)
    if rest or validations % BLOCKS or not validations:
        raise DataError(
            f"steps={settings.steps} must be a multiple of {BLOCKS} times "
            f"validate_every={settings.validate_every}"
        )
    facts = {
        "seed": seed,
        **dataclasses.asdict(settings),
        "problems": checksums_of(*map(np.asarray, jax.tree.leaves(problems))),
    }
    per_block = validations // BLOCKS
    trainers = {depth: make_trainer(IlluminantNet(depth, width), settings) for depth in depths}
    count = problems.features.shape[0]
    keys = {depth: _problem_keys(seed, depth, count) for depth in depths}

    mesh = runs_mesh()
    dealt = partial(pad_runs, missing=-count % mesh.size)
    # One sharding for all values passed between blocks, so that the second is not compiled anew.
    compiled = partial(jax.jit, out_shardings=NamedSharding(mesh, REPLICATED))

    @compiled
    def initialise(problems: Problem) -> dict:
        return {d: jax.vmap(trainers[d].init)(keys[d], problems) for d in depths}

    @compiled
    def train_block(states: dict, problems: Problem) -> tuple[dict, dict]:
        def train_depth(depth: int) -> tuple[Any, Losses]:
            def on_device(keys: Array, states: Any, problems: Problem) -> tuple[Any, Losses]:
                advance = jax.vmap(trainers[depth].advance)
                return jax.lax.scan(
                    lambda state, _: advance(keys, state, problems), states, length=per_block
                )

            on_devices = jax.shard_map(
                on_device,
                mesh=mesh,
                in_specs=RUNS_SPEC,
                out_specs=(RUNS_SPEC, PartitionSpec(None, RUNS_AXIS)),
                check_vma=False,
            )
            states_after, losses = on_devices(*dealt((keys[depth], states[depth], problems)))
            return (
                jax.tree.map(lambda leaf: leaf[:count], states_after),
                jax.tree.map(lambda leaf: leaf[:, :count], losses),
            )

        trained = {depth: train_depth(depth) for depth in depths}
        return tuple({depth: trained[depth][part] for depth in depths} for part in (0, 1))

    empty = jnp.full((BLOCKS, per_block, count), jnp.nan)
    saved = {"states": initialise(problems), "losses": {d: Losses(empty, empty) for d in depths}}
    done, saved = checkpoints.resume(facts, lambda: saved) or (0, saved)
    saved = put_on_mesh(mesh, REPLICATED, saved)
    steps_per_block = per_block * settings.validate_every * count
    with progress("training", BLOCKS * steps_per_block, done * steps_per_block) as bar:
        for block in range(done, BLOCKS):
            # A signal waits for the block's end, so that no step of it is lost.
            with uninterrupted():
                states, losses = train_block(saved["states"], problems)
                _refuse_diverged(losses, block)
                history = jax.tree.map(lambda h, new: h.at[block].set(new), saved["losses"], losses)  # noqa: B023
                saved = {"states": states, "losses": history}
                # The last checkpoint is where the run's next start reads the networks.
                if block + 1 == BLOCKS or checkpoints.due():
                    checkpoints.save(block + 1, saved, facts)
            bar.update(steps_per_block)
    return TrainedNetworks(
        {d: saved["states"][d].best for d in depths},
        {d: jax.tree.map(lambda h: h.reshape(-1, count), saved["losses"][d]) for d in depths},
    )


def _refuse_diverged(losses: dict[int, Losses], block: int) -> None:
    """Refuse a training in which no network of a depth has a finite loss.

    Raises:
      DataError: the message names the networks and the tenth of the training.
    """
    for depth, own in losses.items():
        # The gradient of an absolute value is finite where the value is not.
        if not (np.isfinite(own.train) & np.isfinite(own.valid)).any():
            raise DataError(
                f"all {own.valid.shape[-1]} networks of {depth} hidden layers diverged in tenth "
                f"{block + 1} of {BLOCKS} of their training: no loss is a finite "
                "number. Give a lower rate; the checkpoint before it is kept."
            )


def best_of_restarts(trained: TrainedNetworks, restarts: int) -> TrainedNetworks:
    """Return the one of each problem's `restarts` adjacent trainings with the lowest loss.

    Some initial parameters let networks of nine units die or get stuck.
    """
    models, losses = {}, {}
    for depth, own in trained.losses.items():
        least = np.min(_or_infinite(own.valid), axis=0).reshape(-1, restarts)
        chosen = np.arange(len(least)) * restarts + np.argmin(least, axis=1)
        models[depth] = rows_of(trained.models[depth], chosen)
        losses[depth] = jax.tree.map(lambda curve, c=chosen: curve[:, c], own)
    return TrainedNetworks(models, losses)


class RateChoice(NamedTuple):
    """Networks at the learning rate with each group's lowest validation loss.

    Attributes:
      networks: models and losses of every problem at its group's rate.
      chosen: each group's rate by depth.
    """

    networks: TrainedNetworks
    chosen: dict[int, Float[np.ndarray, "groups"]]


def best_of_rates(by_rate: Mapping[float, TrainedNetworks], group: int) -> RateChoice:
    """Select a learning rate for each `group` of adjacent problems by their mean validation loss.

    Adjacent problems are trainings of one fold with several seeds.
    """
    rates, trained = np.array(list(by_rate)), list(by_rate.values())
    models, losses, chosen = {}, {}, {}
    for depth in trained[0].models:
        valid = np.stack([np.asarray(each.losses[depth].valid) for each in trained])
        # A network that diverged counts with its lowest loss before.
        least = np.min(_or_infinite(valid), axis=1)
        best = np.argmin(least.reshape(len(trained), -1, group).mean(axis=2), axis=0)
        rows = np.repeat(best, group), np.arange(least.shape[1])
        models[depth] = rows_of(stacked([each.models[depth] for each in trained]), rows)
        losses[depth] = jax.tree.map(
            lambda *curves, r=rows: np.stack(curves, axis=2)[:, r[1], r[0]],
            *(each.losses[depth] for each in trained),
        )
        chosen[depth] = rates[best]
    return RateChoice(TrainedNetworks(models, losses), chosen)


def index_of_lowest(losses: Float[np.ndarray, "n *shape"]) -> Int[np.ndarray, "*shape"]:
    """Return the index of the lowest loss along the first axis; NaN counts as infinite."""
    return np.argmin(_or_infinite(losses), axis=0)


def _or_infinite(losses: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Replace NaN, which argmin and min would select, by infinity."""
    return np.where(np.isnan(losses), np.inf, losses)


def _problem_keys(seed: int, depth: int, count: int) -> Array:
    key = jax.random.fold_in(jax.random.key(seed), depth)
    return jax.vmap(lambda index: jax.random.fold_in(key, index))(jnp.arange(count))


@partial(jax.jit, static_argnames=("depth", "width"))
def predict_all(
    depth: int,
    models: IlluminantModel,
    features: Float[Array, "p n f"],
    width: int = IlluminantNet.width,
) -> Float[Array, "p n 2"]:
    """Return each problem's predictions for its own samples."""
    net = IlluminantNet(depth, width)
    return jax.vmap(predict_chromaticity, (None, 0, 0))(net, models, features)


def stack_problems(problems: Sequence[Problem]) -> Problem:
    """Stack problems of equal sizes along a new leading axis."""
    return jax.tree.map(lambda *arrays: np.stack(arrays).astype(np.float32), *problems)
