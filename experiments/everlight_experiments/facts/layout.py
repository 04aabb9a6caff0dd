"""What the boxes alone tell: embeddings without a pixel, through the same evaluation.

A dense layer of fixed random weights with ReLU, and a ridge regression on it to the vectors of each
piece, over the examples that define the piece; all tasks at once. Without features it gives the
same embedding for every image: the mean of the training facts.
"""

import numpy as np
from jaxtyping import Float, Int

LAYOUT, NO_INPUT = "layout only", "no input"
UNITS = 256
RIDGE = 1e-3
"""Added to the mean of squares of every unit."""


def layout_embeddings(
    features: tuple[Float[np.ndarray, "n f"], Float[np.ndarray, "m f"]],
    pieces: Int[np.ndarray, "n 3"],
    vectors: Float[np.ndarray, "v d"],
    seed: int,
) -> Float[np.ndarray, "m 3 d"]:
    """Embeddings of the test examples.

    Args:
      features: of training and of test examples, of any width, 0 too.
      pieces: of the training examples' facts, -1 where undefined.
      vectors: of the words.
      seed: of the random weights.
    """
    train, test = (_units(part, features[0], seed) for part in features)
    embedded = [
        test @ _ridge(train[defined], vectors[pieces[defined, piece]])
        for piece, defined in enumerate((pieces >= 0).T)
    ]
    return np.stack(embedded, axis=1).astype(np.float32)


def _units(
    features: Float[np.ndarray, "n f"], like: Float[np.ndarray, "_ f"], seed: int
) -> Float[np.ndarray, "n u"]:
    """The hidden layer on features standardised as `like` is, and a constant."""
    inputs = (features - like.mean(axis=0)) / np.maximum(like.std(axis=0), 1e-6)
    draw = np.random.default_rng(seed)
    # One input is the bias.
    weights = draw.standard_normal((features.shape[1] + 1, UNITS if features.shape[1] else 0))
    constant = np.ones((len(inputs), 1))
    hidden = np.maximum(np.concatenate([inputs, constant], axis=1) @ weights, 0)
    return np.concatenate([hidden / np.sqrt(len(weights)), constant], axis=1)


def _ridge(
    units: Float[np.ndarray, "n u"], target: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, "u d"]:
    # The constant, last, is not shrunk.
    shrink = RIDGE * len(units) * np.diag(np.arange(units.shape[1]) < units.shape[1] - 1)
    return np.linalg.solve(units.T @ units + shrink, units.T @ target)
