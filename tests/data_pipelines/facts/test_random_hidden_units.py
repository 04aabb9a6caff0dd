"""Closed-form regression on random hidden units: means without features, and what it can learn."""

import numpy as np

from everlight_data.facts.divisions.random_hidden_units import regress_on_random_units


def embedded(train, test, pieces, vectors):
    """Predictions of the vectors of three pieces, -1 where a sample has none."""
    defined = list(pieces.T >= 0)
    targets = [vectors[row[rows]] for row, rows in zip(pieces.T, defined, strict=True)]
    return regress_on_random_units(train, test, targets, defined, 0)


def test_without_features_every_image_gets_the_mean_of_the_facts_that_define_a_piece(rng):
    vectors = rng.normal(size=(5, 4))
    pieces = np.array([[0, -1, -1], [1, 2, -1], [1, 3, 4], [0, -1, -1]])
    found = embedded(np.zeros((4, 0)), np.zeros((2, 0)), pieces, vectors)
    wanted = [
        (vectors[0] + vectors[1] + vectors[1] + vectors[0]) / 4,
        (vectors[2] + vectors[3]) / 2,
        vectors[4],
    ]
    np.testing.assert_allclose(found, [wanted, wanted], rtol=1e-5)


def test_what_the_layout_tells_is_learned_from_it(rng):
    vectors = np.eye(3)
    above = rng.random((300, 2)) > 0.5
    features = above + 0.05 * rng.standard_normal((300, 2))
    pieces = np.stack([above[:, 0] + 0, np.full(300, 2), 1 - above[:, 1]], axis=1)
    found = embedded(features[:200], features[200:], pieces[:200], vectors)
    np.testing.assert_array_equal(found.argmax(axis=2), pieces[200:])
