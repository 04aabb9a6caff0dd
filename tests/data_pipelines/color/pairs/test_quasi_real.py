"""Quasi-real pairs from measured charts: transforms, illuminants, folds and reillumination."""

import numpy as np
import pytest

from everlight.errors import ArgumentError
from everlight.illuminant.pair_reillumination import reilluminate_training
from everlight_data.color.nus8 import load_official
from everlight_data.color.pairs.quasi_real import build_quasi_real
from everlight_data.errors import DataError
from tests.nus_files import BLACK, MAIN, SECOND, WHITE, render, write_camera

N = 6


@pytest.fixture
def world(tmp_path, rng):
    """Write both cameras, the second one's images in reversed order, so that pairs are by name."""
    responses, images, charts, illuminants = render(rng, N)
    write_camera(tmp_path, MAIN, images[0], charts[0], illuminants[0])
    write_camera(tmp_path, SECOND, images[1, ::-1], charts[1, ::-1], illuminants[1, ::-1])
    cameras = [load_official(tmp_path, camera) for camera in (MAIN, SECOND)]
    pairs = list(zip(cameras[0].photographs.names, cameras[1].photographs.names[::-1], strict=True))
    truth = np.linalg.inv(responses[0]) @ responses[1]
    return cameras, pairs, truth, images, charts, illuminants


def relative(estimate, truth):
    return np.linalg.norm(estimate - truth) / np.linalg.norm(truth)


def test_transforms_illuminants_and_charts_come_back(world):
    cameras, pairs, truth, _, charts, illuminants = world
    data = build_quasi_real(*cameras, pairs, seed=0)
    for transform, expected in zip(data.transforms, truth, strict=True):
        assert relative(transform, expected) < 1e-4
    assert max(relative(one, truth[0]) for one in truth[1:]) > 0.1, "the lights must matter"
    np.testing.assert_allclose(data.main.illuminants, illuminants[0], rtol=1e-6)
    np.testing.assert_allclose(data.second.illuminants, illuminants[1], rtol=1e-6)
    np.testing.assert_allclose(data.main.charts, charts[0], atol=1e-6)
    np.testing.assert_allclose(data.second.charts, charts[1], atol=1e-6)
    assert data.names == tuple(pairs)


def test_under_sum_normalization_the_transform_is_that_of_the_normalized_pixels(world):
    """Block means, masks and least squares are repeated in float64, without the library."""
    cameras, pairs, truth, images, _, _ = world
    data = build_quasi_real(*cameras, pairs, seed=0, normalize="sum")
    for i in range(N):
        image = np.round(images[0, i] * (WHITE - BLACK)) / (WHITE - BLACK)
        blocks = [
            image[top : top + 6, left : left + 6].mean(axis=(0, 1))
            for top in range(0, 24, 6)
            for left in range(0, 36, 6)
            if top + 6 <= 7 or top >= 15 or left + 6 <= 10 or left >= 22
        ]
        views = np.array(blocks), np.array(blocks) @ truth[i]
        shares = (view / view.sum(1, keepdims=True) for view in views)
        expected = np.linalg.lstsq(*shares, rcond=None)[0]
        assert relative(data.transforms[i], expected) < 5e-4
        assert relative(data.transforms[i], truth[i]) > 0.02


def test_saturated_patches_do_not_count(tmp_path, rng):
    responses, images, charts, illuminants = render(rng, N)
    charts[0, 1, 3] = charts[1, 2, 4] = 2
    for camera, part, chart, illuminant in zip(
        (MAIN, SECOND), images, charts, illuminants, strict=True
    ):
        write_camera(tmp_path, camera, part, chart, illuminant)
    cameras = [load_official(tmp_path, camera) for camera in (MAIN, SECOND)]
    names = [camera.photographs.names for camera in cameras]
    data = build_quasi_real(*cameras, list(zip(*names, strict=True)), seed=0)
    assert np.argwhere(~data.usable).tolist() == [[1, 3], [2, 4]]
    for i in (1, 2):
        truth = np.linalg.inv(responses[0, i]) @ responses[1, i]
        assert relative(data.transforms[i], truth) < 1e-4


def test_folds_part_the_pairs_and_follow_the_seed(world):
    cameras, pairs, *_ = world
    folds = [build_quasi_real(*cameras, pairs, seed=seed).folds for seed in (0, 0, 1)]
    np.testing.assert_array_equal(np.sort(np.concatenate(folds[0])), np.arange(N))
    assert [len(fold) for fold in folds[0]] == [2, 2, 2]
    np.testing.assert_array_equal(folds[0], folds[1])
    assert not np.array_equal(folds[0], folds[2])


def test_reillumination_gives_the_transform_of_the_target_illuminant(world):
    """In this world a pair under another pair's illuminant has exactly that pair's transform."""
    cameras, pairs, truth, _, _, illuminants = world
    data = build_quasi_real(*cameras, pairs, seed=0)
    for fold in range(3):
        train = np.setdiff1d(np.arange(N), data.folds[fold])
        augmented = reilluminate_training(data, train, seed=5, reilluminations=3)
        assert len(augmented.transforms) == len(augmented.main.illuminants) == 4 * 4
        distances = np.abs(augmented.main.illuminants[:, None] - illuminants[0]).max(axis=-1)
        targets = distances.argmin(axis=1).reshape(4, 4)
        assert distances.min(axis=1).max() < 1e-6
        for part, row in zip(train, targets, strict=True):
            assert row[0] == part
            np.testing.assert_array_equal(np.sort(row), train)
        for transform, target in zip(augmented.transforms, targets.ravel(), strict=True):
            assert relative(transform, truth[target]) < 1e-3
        second = augmented.second.illuminants / augmented.second.illuminants[:, 1:2]
        expected = illuminants[1][targets.ravel()]
        np.testing.assert_allclose(second, expected / expected[:, 1:2], rtol=1e-4)
        # The images are A⁻¹ T B of the pair that each was made of.
        relit = data.transforms[augmented.sources] @ augmented.second.relights
        again = np.linalg.solve(augmented.main.relights, relit)
        for transform, created in zip(augmented.transforms, again, strict=True):
            assert relative(transform, created) < 1e-3


def test_the_choice_of_illuminants_follows_its_seed(world):
    cameras, pairs, *_ = world
    data = build_quasi_real(*cameras, pairs, seed=0)
    rows = np.arange(4)
    first, same, other = (
        reilluminate_training(data, rows, seed, 2).main.illuminants for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_more_reilluminations_than_other_pairs_are_refused(world):
    cameras, pairs, *_ = world
    data = build_quasi_real(*cameras, pairs, seed=0)
    with pytest.raises(ArgumentError, match=r"reilluminations=99, but there are 4 training pairs"):
        reilluminate_training(data, np.arange(4), seed=0)


def test_a_chart_that_cannot_be_reilluminated_is_named(world):
    cameras, pairs, *_ = world
    data = build_quasi_real(*cameras, pairs, seed=0)
    data.usable[2, 2:] = False
    with pytest.raises(ArgumentError, match=rf"re-illuminate .*{pairs[2][0]}"):
        reilluminate_training(data, np.arange(4), seed=0, reilluminations=3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda pairs: [*pairs, ("NikonD5200_0099", pairs[0][1])], r"no image NikonD5200_0099"),
        (lambda pairs: [*pairs, pairs[2]], r"NikonD5200_0003 is in more than one pair"),
        (lambda pairs: pairs[:2], r"2 pairs do not suffice for 3 folds"),
    ],
)
def test_faulty_pairs_are_named(world, change, message):
    cameras, pairs, *_ = world
    with pytest.raises(DataError, match=message):
        build_quasi_real(*cameras, change(pairs), seed=0)


def test_a_pair_whose_chart_has_one_color_is_named(world):
    cameras, pairs, *_ = world
    chart = cameras[0].folder / "CHECKER" / "NikonD5200_0002_color.txt"
    chart.write_text("2000,3000,4000\n" * 24)
    with pytest.raises(DataError, match=r"NikonD5200_0002 with Canon1DsMkIII_0005: too few unsat"):
        build_quasi_real(*cameras, pairs, seed=0)
