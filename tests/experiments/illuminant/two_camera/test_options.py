"""The words of a report on folds and seeds."""

import pytest

from everlight_experiments.illuminant.two_camera.options import TwoCameraOptions


@pytest.mark.parametrize(
    ("preset", "block", "words"),
    [
        ("s20-small", 1, "8 per fold, from 3; published folds"),
        ("s20-small", 9, "8 per fold, from 3, which also draws the folds"),
        ("s20-demo", 1, "8 per fold, from 3, which also draws the folds"),
        ("nus-paper", None, "8 per fold, from 3, which also draws the folds"),
    ],
)
def test_no_seed_draws_published_folds(preset, block, words):
    """The demo draws the folds of its pairs, and NUS's list of pairs has none."""
    assert TwoCameraOptions(preset, seed=3, block=block).seeds_in_folds == words
