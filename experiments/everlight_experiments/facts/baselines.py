"""Baselines without pixels: ridge regression on random hidden units, trained in closed form.

Schmidt et al. 1992, "Feedforward neural networks with random weights".
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from everlight_data.facts.parts.boxes import box_features
from everlight_data.facts.splits.fact_splits import SplitFacts

LAYOUT, NO_INPUT = "layout only", "no input"
"""Names of the baselines."""
UNITS = 256
RIDGE = 1e-3
"""Weight of the squared norm, relative to the number of samples."""


def baseline_features(facts: SplitFacts) -> dict[str, tuple[Float[np.ndarray, "n f"], ...]]:
    """Return the baselines' inputs by name, for training and test examples.

    `LAYOUT` has the boxes, where they are known; `NO_INPUT` has nothing.
    """
    parts = facts.train, facts.test
    nothing = tuple(np.zeros((len(part.fact), 0), np.float32) for part in parts)
    if any(part.samples is None for part in parts):
        return {NO_INPUT: nothing}
    return {LAYOUT: tuple(box_features(part.samples) for part in parts), NO_INPUT: nothing}


def baseline_embeddings(
    facts: SplitFacts, seeds: Sequence[int]
) -> dict[str, Float[np.ndarray, "s m 3 d"]]:
    """Return the baselines' embeddings of the test examples by name and seed.

    They learn all facts at once, by `regress_on_random_units`; a seed draws the hidden units.
    """
    pieces, vectors = facts.pieces[facts.train.fact].T, facts.words.vectors
    defined = list(pieces >= 0)
    targets = [vectors[piece[rows]] for piece, rows in zip(pieces, defined, strict=True)]
    return {
        name: np.stack([regress_on_random_units(*inputs, targets, defined, seed) for seed in seeds])
        for name, inputs in baseline_features(facts).items()
    }


def regress_on_random_units(
    train: Float[np.ndarray, "n f"],
    test: Float[np.ndarray, "m f"],
    targets: Sequence[Float[np.ndarray, "_ d"]],
    defined: Sequence[Bool[np.ndarray, "n"]],
    seed: int,
) -> Float[np.ndarray, "m k d"]:
    """Return predictions of several targets for the test samples.

    A dense layer of fixed random weights with ReLU is followed by a ridge regression to each
    target. Without features every prediction is the mean of the target.

    Args:
      train: features of training samples, `[n, f]`; f may be 0.
      test: features of test samples, `[m, f]`.
      targets: values of each target, for the training samples that define it.
      defined: true for the training samples that define each target.
      seed: random seed of the weights.
    """
    units, tested = (_units(part, train, seed) for part in (train, test))
    predictions = [
        tested @ _ridge(units[rows], target) for target, rows in zip(targets, defined, strict=True)
    ]
    return np.stack(predictions, axis=1).astype(np.float32)


def _units(
    features: Float[np.ndarray, "n f"], reference: Float[np.ndarray, "_ f"], seed: int
) -> Float[np.ndarray, "n u"]:
    """Return hidden units of the features, standardized by `reference`, and a constant."""
    inputs = (features - reference.mean(axis=0)) / np.maximum(reference.std(axis=0), 1e-6)
    draw = np.random.default_rng(seed)
    # One input is the bias.
    weights = draw.standard_normal((features.shape[1] + 1, UNITS if features.shape[1] else 0))
    constant = np.ones((len(inputs), 1))
    hidden = np.maximum(np.concatenate([inputs, constant], axis=1) @ weights, 0)
    return np.concatenate([hidden / np.sqrt(len(weights)), constant], axis=1)


def _ridge(
    units: Float[np.ndarray, "n u"], target: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, "u d"]:
    """Return the weights of a ridge regression, whose constant is not shrunk."""
    shrink = RIDGE * len(units) * np.diag(np.arange(units.shape[1]) < units.shape[1] - 1)
    return np.linalg.solve(units.T @ units + shrink, units.T @ target)
