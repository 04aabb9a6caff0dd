"""Training of all networks of a table in one compiled program, with checkpoints."""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from everlight.illuminant.illuminant_batches import (
    TrainedNetworks,
    make_batch_trainer,
    stack_problems,
)
from everlight.illuminant.illuminant_training import Losses, Problem, TrainingSettings
from everlight.meshes import REPLICATED, put_on_mesh, runs_mesh
from everlight.trees import checksums_of
from everlight_data.errors import DataError
from everlight_data.progress import progress
from everlight_data.runs.checkpoints import Checkpoints, Resumed
from everlight_experiments.run_folder.interruption import uninterrupted

PARAMETERS = {2: 200, 5: 470, 16: 1460}
"""Number of parameters, after which the paper names its networks, by number of hidden layers."""

BLOCKS = 10
"""Number of evenly spaced checkpoints of a training."""


def train_networks(
    problems: Sequence[Problem],
    depths: Sequence[int],
    settings: TrainingSettings,
    seed: int,
    checkpoints: Checkpoints,
) -> TrainedNetworks:
    """Train a network of every depth on every problem.

    Problems (folds, cameras, seeds) have equal sizes. Depths are numbers of hidden layers. After an
    interruption the same call continues from the newest checkpoint, with the same result bit for
    bit: batches are keyed by step, and every block runs in the same compiled program.

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
    together, count, per_block = stack_problems(problems), len(problems), validations // BLOCKS
    fingerprint = dataclasses.asdict(settings)
    fingerprint |= {"seed": seed, "problems": checksums_of(*jax.tree.leaves(together))}
    trainer = make_batch_trainer(jax.random.key(seed), depths, settings, count, per_block)
    empty = jnp.full((BLOCKS, per_block, count), jnp.nan)
    saved = {"states": trainer.init(together), "losses": {d: Losses(empty, empty) for d in depths}}
    done, saved = checkpoints.resume(fingerprint, lambda: saved) or Resumed(0, saved)
    saved = put_on_mesh(runs_mesh(), REPLICATED, saved)
    steps_per_block = per_block * settings.validate_every * count
    with progress("training", BLOCKS * steps_per_block, done * steps_per_block) as bar:
        for block in range(done, BLOCKS):
            # A signal waits for the block's end, so that no step of it is lost.
            with uninterrupted():
                states, losses = trainer.advance(saved["states"], together)
                _refuse_diverged(losses, block)
                history = jax.tree.map(lambda h, new: h.at[block].set(new), saved["losses"], losses)  # noqa: B023
                saved = {"states": states, "losses": history}
                # The last checkpoint is where the run's next start reads the networks.
                if block + 1 == BLOCKS or checkpoints.due():
                    checkpoints.save(block + 1, saved, fingerprint)
            bar.update(steps_per_block)
    return TrainedNetworks(
        {d: saved["states"][d].best for d in depths},
        {d: jax.tree.map(lambda h: h.reshape(-1, count), saved["losses"][d]) for d in depths},
    )


def _refuse_diverged(losses: Mapping[int, Losses], block: int) -> None:
    """Refuse a training in which no network of a depth has a finite loss.

    Raises:
      DataError: the message names the networks and the tenth of the training.
    """
    for depth, loss in losses.items():
        # The gradient of an absolute value is finite where the value is not.
        if not (np.isfinite(loss.train) & np.isfinite(loss.valid)).any():
            raise DataError(
                f"all {loss.valid.shape[-1]} networks of {depth} hidden layers diverged in tenth "
                f"{block + 1} of {BLOCKS} of their training: no loss is a finite "
                "number. Give a lower rate; the checkpoint before it is kept."
            )
