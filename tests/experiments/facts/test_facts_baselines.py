"""Baselines without pixels, trained in closed form, and the notes on how facts were split."""

import numpy as np
import pytest

from everlight_data.facts.splits.fact_images import FactSource
from everlight_experiments.facts.baselines import (
    LAYOUT,
    NO_INPUT,
    baseline_embeddings,
    baseline_features,
    regress_on_random_units,
)
from everlight_experiments.facts.report import split_notes
from tests.data_pipelines.facts.splits.small_split import small_split


def embedded(train, test, pieces, vectors):
    """Predict the vectors of three pieces, -1 where a sample has none."""
    defined = list(pieces.T >= 0)
    targets = [vectors[row[rows]] for row, rows in zip(pieces.T, defined, strict=True)]
    return regress_on_random_units(train, test, targets, defined, 0)


def test_without_features_every_image_gets_the_mean_of_the_facts_that_define_a_piece(rng):
    vectors = rng.normal(size=(5, 4))
    pieces = np.array([[0, -1, -1], [1, 2, -1], [1, 3, 4], [0, -1, -1]])
    result = embedded(np.zeros((4, 0)), np.zeros((2, 0)), pieces, vectors)
    expected = [
        (vectors[0] + vectors[1] + vectors[1] + vectors[0]) / 4,
        (vectors[2] + vectors[3]) / 2,
        vectors[4],
    ]
    np.testing.assert_allclose(result, [expected, expected], rtol=1e-5)


def test_predicates_of_the_layout_are_learned(rng):
    vectors = np.eye(3)
    above = rng.random((300, 2)) > 0.5
    features = above + 0.05 * rng.standard_normal((300, 2))
    pieces = np.stack([above[:, 0] + 0, np.full(300, 2), 1 - above[:, 1]], axis=1)
    result = embedded(features[:200], features[200:], pieces[:200], vectors)
    np.testing.assert_array_equal(result.argmax(axis=2), pieces[200:])


@pytest.fixture(scope="module")
def divided():
    return small_split()


def test_baselines_know_the_boxes_or_nothing(divided):
    features = baseline_features(divided)
    assert [part.shape for part in features[NO_INPUT]] == [(240, 0), (80, 0)]
    assert [part.shape for part in features[LAYOUT]] == [(240, 13), (80, 13)]
    result = baseline_embeddings(divided, (0, 1))
    size = divided.words.vectors.shape[1]
    assert {name: item.shape for name, item in result.items()} == dict.fromkeys(
        (LAYOUT, NO_INPUT), (2, 80, 3, size)
    )
    # Without input every example has the mean embedding of the training facts.
    subjects = divided.label_space.vectors[divided.pieces[divided.train.fact, 0]]
    np.testing.assert_allclose(result[NO_INPUT][0, 7, 0], subjects.mean(axis=0), atol=1e-4)
    assert np.ptp(result[LAYOUT][0, :, 0], axis=0).max() > 0
    # Boxes are not known in the authors' files.
    blind = divided._replace(test=divided.test._replace(samples=None))
    assert list(baseline_features(blind)) == [NO_INPUT]


def test_notes_state_the_division_of_facts_and_their_sources(divided, tmp_path):
    first, second = split_notes({"mid-scale": divided})
    assert "Ward's linkage" in first
    assert second.startswith("mid-scale: the paper's single linkage would give tasks of ")
    (note,) = split_notes({"mid-scale": divided._replace(semantic=None)})
    assert note.startswith("Both splits are those of the files")
    assert FactSource("procedural").title == "procedural, rendered images"
    inputs = FactSource(photographs=tmp_path, splits=tmp_path / "splits")
    assert (inputs.title, inputs.pixels) == (
        "the splits in splits, photographs",
        "centres of the photographs",
    )
