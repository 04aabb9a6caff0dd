"""The answer to whether the second camera helps, from errors with known differences."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.metrics.angular import angular_error
from everlight_experiments.illuminant.core.experiment import Comparison, Gain, ResamplingUnits
from everlight_experiments.illuminant.pairs.methods import (
    ONE_CAMERA,
    TWO_CAMERAS,
    TWO_TRAININGS,
)
from everlight_experiments.illuminant.pairs.report import (
    COMPARED,
    answer,
    gain_figure,
    gain_table,
    pair_gains,
)

COUNT = 60


def at_angles(degrees):
    """Return estimates at these angles from white, in a plane through it."""
    white, across = np.ones(3) / np.sqrt(3), np.array([1, -1, 0]) / np.sqrt(2)
    radians = np.radians(np.asarray(degrees))[..., None]
    return np.float32(np.cos(radians) * white + np.sin(radians) * across)


@pytest.fixture
def compared(rng):
    """Return errors of 3 degrees and some per group; two cameras gain half a degree on one."""
    names = dict.fromkeys(name for row in COMPARED for name in row)
    groups = np.arange(COUNT) // 4
    shared = 3 + rng.uniform(0, 2, 15)[groups]
    gains = 0.5 + np.tile([-0.3, 0.3], 15)[:15][groups]
    errors = {name: np.stack([shared, shared])[:, None] for name in names}
    errors[TWO_CAMERAS] = np.stack([shared - gains - 0.1, shared - gains + 0.1])[:, None]
    estimates = {name: at_angles(values) for name, values in errors.items()}
    truth = np.ones((1, COUNT, 3), np.float32)
    degrees = angular_error(jnp.asarray(estimates[ONE_CAMERA][0, 0, 0]), jnp.ones(3))
    np.testing.assert_allclose(degrees, shared[0], rtol=1e-3)
    return (
        Comparison(estimates, truth, units=ResamplingUnits("groups", groups[None])),
        gains,
        groups,
    )


def test_gains_are_paired_differences_with_intervals_over_groups(compared):
    comparison, gains, groups = compared
    first = pair_gains(comparison)[0]
    np.testing.assert_allclose(first.degrees, gains.mean(), atol=1e-3)
    np.testing.assert_allclose(first.errors[1] - first.errors[0], gains.mean(), atol=1e-3)
    # Fifteen independent groups: their mean has this standard error, not that of sixty pairs.
    means = np.array([gains[groups == group].mean() for group in range(15)])
    half = 1.96 * means.std() / np.sqrt(15)
    np.testing.assert_allclose((first.high - first.low) / 2, half, rtol=0.15)


def test_one_seed_has_no_mean_of_two_trainings(compared):
    """One training was reported as the mean of two, and as a reference."""
    comparison, _, _ = compared
    assert [(gain.method, gain.reference) for gain in pair_gains(comparison)] == list(COMPARED)
    assert "Give --seeds 2" not in gain_table(pair_gains(comparison)).caption
    single = {name: v[:1] for name, v in comparison.estimates.items() if name != TWO_TRAININGS}
    gains = pair_gains(comparison._replace(estimates=single))
    assert [(gain.method, gain.reference) for gain in gains] == [
        names for names in COMPARED if names[1] != TWO_TRAININGS
    ]
    assert "Give --seeds 2" in gain_table(gains).caption
    assert answer(gains)[0].startswith("Yes: ")


def gain(degrees, low, high, errors=(2.5, 3.0), names=("two", "one")):
    return Gain(*names, errors, degrees, low, high)


@pytest.mark.parametrize(
    ("equal", "ffcc", "verdict"),
    [
        ((0.5, 0.2, 0.8), (0.3, 0.1, 0.5), "Yes: "),
        ((0.5, 0.2, 0.8), (0.3, -0.1, 0.5), "Not shown: "),
        ((0.1, -0.2, 0.4), (0.3, 0.1, 0.5), "Not shown: "),
        ((-0.5, -0.8, -0.2), (0.3, 0.1, 0.5), "No: .* errs more than one camera at equal size"),
        ((0.5, 0.2, 0.8), (-0.3, -0.5, -0.1), "No: .* errs more than FFCC on one camera"),
    ],
)
def test_the_answer_follows_from_both_intervals(equal, ffcc, verdict):
    values = [equal, ffcc, *[(0.04, 0.01, 0.08)] * 4, (-1.2, -1.5, -0.9, (4.1, 2.9))]
    gains = [gain(*row, names=names) for row, names in zip(values, COMPARED, strict=True)]
    first, second = answer(gains)
    assert re.match(verdict, first)
    assert f"{equal[0]:+.2f} ({equal[1]:+.2f}, {equal[2]:+.2f})" in first
    assert "gains +0.04 (+0.01, +0.08)" in second
    assert "errs by 4.10; one camera at equal size errs by 2.90" in second


def test_the_table_and_the_figure_have_a_row_per_comparison(compared, tmp_path):
    gains = pair_gains(compared[0])
    table = gain_table(gains)
    assert [tuple(row[:2]) for row in table.rows] == list(COMPARED)
    figure = gain_figure(tmp_path / "gains.png", gains)
    assert figure.path.read_bytes().startswith(b"\x89PNG")
