"""Training of all networks of a table in one compiled program, with checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from everlight.illuminant.illuminant_batches import (
    TrainedNetworks,
    best_of_rates,
    best_of_restarts,
    make_batch_trainer,
    stack_problems,
)
from everlight.illuminant.illuminant_training import (
    IlluminantModel,
    Losses,
    Problem,
    TrainingSettings,
)
from everlight.meshes import REPLICATED, put_on_mesh, runs_mesh
from everlight.trees import checksums_of, rows_of
from everlight_data.errors import DataError
from everlight_data.progress import progress
from everlight_data.runs.checkpoints import Checkpoints, Resumed
from everlight_experiments.run_folder.interruption import uninterrupted

PARAMETERS = {2: 200, 5: 470, 16: 1460}
"""Number of parameters, after which the paper names its networks, by number of hidden layers."""

DEPTH = 5
"""Number of hidden layers where depths are not compared."""
BLOCKS = 10
"""Number of evenly spaced checkpoints of a training."""


class NetworkTraining(NamedTuple):
    """Settings of the training of networks, and the folder of their checkpoints.

    Attributes:
      settings: optimizer settings.
      seeds: random seeds of repeated trainings; the first also seeds initial parameters.
      folder: folder of the checkpoints.
      rates: learning rates to select from; without any, the rate of the settings.
    """

    settings: TrainingSettings
    seeds: Sequence[int]
    folder: Path
    rates: Sequence[float] = ()

    def below(self, name: str) -> "NetworkTraining":
        """Return the same training with its checkpoints in a folder of that name."""
        return self._replace(folder=self.folder / name)


def train_by_name(
    problems: Mapping[Any, Sequence[Problem]],
    depth: int,
    training: NetworkTraining,
    restarts: int = 1,
) -> dict[Any, IlluminantModel]:
    """Train networks of one depth in one program; return those of each name, stacked.

    Of `restarts` trainings on a problem, the one with the lowest validation loss is kept.
    """
    repeated = [p for named in problems.values() for p in named for _ in range(restarts)]
    trained = train_networks(repeated, (depth,), training)
    best, models, start = best_of_restarts(trained, restarts).models[depth], {}, 0
    for name, named in problems.items():
        models[name] = rows_of(best, np.arange(start, start := start + len(named)))
    return models


def train_networks(
    problems: Sequence[Problem], depths: Sequence[int], training: NetworkTraining
) -> TrainedNetworks:
    """Train a network of every depth on every problem.

    Problems (folds, cameras, seeds) have equal sizes. Depths are numbers of hidden layers. Where
    the training has several rates, adjacent problems, one per seed, have the rate of their lowest
    mean validation loss.

    Raises:
      DataError: the steps do not divide into blocks of validations, a validation sample is not
        finite, all networks diverged, or the checkpoints are of another training.
    """
    if not training.rates:
        return _train_at_rate(problems, depths, training)
    by_rate = {}
    for rate in training.rates:
        settings = replace(training.settings, learning_rate=rate)
        part = training.below(f"rate-{rate:g}")._replace(settings=settings)
        by_rate[rate] = _train_at_rate(problems, depths, part)
    return best_of_rates(by_rate, len(training.seeds)).networks


def _train_at_rate(
    problems: Sequence[Problem], depths: Sequence[int], training: NetworkTraining
) -> TrainedNetworks:
    """Train at the rate of the settings.

    After an interruption the same call continues from the newest checkpoint, with the same result
    bit for bit: batches are keyed by step, and every block runs in the same compiled program.
    """
    settings, seed, checkpoints = training.settings, training.seeds[0], Checkpoints(training.folder)
    validations, rest = divmod(settings.steps, settings.validate_every)
    if rest or validations % BLOCKS or not validations:
        raise DataError(
            f"steps={settings.steps} must be a multiple of {BLOCKS} times "
            f"validate_every={settings.validate_every}"
        )
    _refuse_not_finite(problems)
    together, count, per_block = stack_problems(problems), len(problems), validations // BLOCKS
    fingerprint = asdict(settings) | {
        "seed": seed,
        "problems": checksums_of(*jax.tree.leaves(together)),
    }
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


def _refuse_not_finite(problems: Sequence[Problem]) -> None:
    """Refuse validation samples that are not finite, by which no step is better than the first.

    Raises:
      DataError: the message has the number of networks with such samples.
    """
    count = sum(
        not (np.isfinite(problem.valid_features).all() and np.isfinite(problem.valid_targets).all())
        for problem in problems
    )
    if count:
        raise DataError(
            f"validation samples of {count} of {len(problems)} networks have values that are not "
            "finite; leave out images without usable pixels"
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
