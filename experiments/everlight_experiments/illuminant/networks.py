"""Trains all nets of a table in one compiled program over all devices, with checkpoints."""

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
from everlight_data.errors import DataError
from everlight_experiments.common.checkpoint import Checkpoints, checksums_of
from everlight_experiments.common.interruption import uninterrupted
from everlight_experiments.common.progress import progress
from everlight_experiments.common.trees import rows_of, stacked

PARAMETERS = {2: 200, 5: 470, 16: 1460}
"""The paper names its nets by their number of parameters; keys are hidden layers."""

BLOCKS = 10
"""Checkpoints of a training, evenly spaced."""


class TrainedNets(NamedTuple):
    """By depth: the best models, leading axis problems, and losses `[validations, problems]`."""

    models: dict[int, IlluminantModel]
    losses: dict[int, Losses]


def train_nets(
    problems: Problem,
    depths: Sequence[int],
    settings: TrainingSettings,
    seed: int,
    checkpoints: Checkpoints,
    width: int = IlluminantNet.width,
) -> TrainedNets:
    """Trains a net of every depth on every problem.

    Stopped at any moment and called again with the same arguments, it continues from the newest
    checkpoint and ends with the same bits: batches are keyed by step, and every block runs in the
    same compiled program.

    Args:
      problems: arrays with a leading axis over problems (folds, cameras, seeds).
      depths: hidden layers of the nets.
      settings: of the optimizer, shared by all.
      seed: of initial parameters and batches.
      checkpoints: where the state is saved after a block, where that is due, and at the end.
      width: units of each hidden layer.

    Raises:
      DataError: the steps do not divide into blocks of validations, or the checkpoints are of
        another training; the message names the difference.
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
    # One sharding for all that goes from block to block, or the second would be compiled anew.
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
                # The last one is what the run's next start reads the nets from.
                if block + 1 == BLOCKS or checkpoints.due():
                    checkpoints.save(block + 1, saved, facts)
            bar.update(steps_per_block)
    return TrainedNets(
        {d: saved["states"][d].best for d in depths},
        {d: jax.tree.map(lambda h: h.reshape(-1, count), saved["losses"][d]) for d in depths},
    )


def _refuse_diverged(losses: dict[int, Losses], block: int) -> None:
    """Where no net of a depth learns any more; of some that do, the others are passed over.

    Raises:
      DataError: with the nets and the tenth of the training.
    """
    for depth, own in losses.items():
        # The gradient of an absolute value is finite where the value is not.
        if not (np.isfinite(own.train) & np.isfinite(own.valid)).any():
            raise DataError(
                f"all {own.valid.shape[-1]} nets of {depth} hidden layers diverged in tenth "
                f"{block + 1} of {BLOCKS} of their training: no loss is a finite "
                "number. Give a lower rate; the checkpoint before it is kept."
            )


def best_of_restarts(nets: TrainedNets, restarts: int) -> TrainedNets:
    """Of each problem's `restarts` neighbouring trainings the one with the least validation loss.

    Nets of nine units can die or get stuck, and which do is the initial parameters' doing.
    """
    models, losses = {}, {}
    for depth, trained in nets.losses.items():
        least = np.min(_or_infinite(trained.valid), axis=0).reshape(-1, restarts)
        chosen = np.arange(len(least)) * restarts + np.argmin(least, axis=1)
        models[depth] = rows_of(nets.models[depth], chosen)
        losses[depth] = jax.tree.map(lambda curve, c=chosen: curve[:, c], trained)
    return TrainedNets(models, losses)


class RateChoice(NamedTuple):
    """Nets at the rate that each group of problems validates best with.

    Attributes:
      nets: the models and losses of every problem at its group's rate.
      chosen: by depth, each group's rate.
    """

    nets: TrainedNets
    chosen: dict[int, Float[np.ndarray, "groups"]]


def best_of_rates(nets: Mapping[float, TrainedNets], group: int) -> RateChoice:
    """Of trainings at several rates, by the mean validation loss of `group` neighbouring problems.

    Neighbours are trainings of one fold from several seeds, which say together what is good there.
    """
    rates, trained = np.array(list(nets)), list(nets.values())
    models, losses, chosen = {}, {}, {}
    for depth in trained[0].models:
        valid = np.stack([np.asarray(each.losses[depth].valid) for each in trained])
        # Of a net that diverged it is the least of what it had before.
        least = np.min(_or_infinite(valid), axis=1)
        best = np.argmin(least.reshape(len(trained), -1, group).mean(axis=2), axis=0)
        rows = np.repeat(best, group), np.arange(least.shape[1])
        models[depth] = rows_of(stacked([each.models[depth] for each in trained]), rows)
        losses[depth] = jax.tree.map(
            lambda *curves, r=rows: np.stack(curves, axis=2)[:, r[1], r[0]],
            *(each.losses[depth] for each in trained),
        )
        chosen[depth] = rates[best]
    return RateChoice(TrainedNets(models, losses), chosen)


def index_of_least(losses: Float[np.ndarray, "n *shape"]) -> Int[np.ndarray, "*shape"]:
    """Along the first axis, NaN being no loss."""
    return np.argmin(_or_infinite(losses), axis=0)


def _or_infinite(losses: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """The losses with infinity for NaN, which argmin and min would take for the least."""
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
    """Each problem's model on its own samples."""
    net = IlluminantNet(depth, width)
    return jax.vmap(predict_chromaticity, (None, 0, 0))(net, models, features)


def stack_problems(problems: Sequence[Problem]) -> Problem:
    """Problems of equal sizes, stacked along a new leading axis."""
    return jax.tree.map(lambda *arrays: np.stack(arrays).astype(np.float32), *problems)
