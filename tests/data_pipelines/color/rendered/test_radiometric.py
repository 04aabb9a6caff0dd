"""The radiometric data set: the paper's scenes and the splits of its illuminants."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight_data.color.rendered.radiometric import (
    SAME_ILLUMINANT_COSINE,
    RadiometricSettings,
    draw_color_counts,
    draw_scenes,
    illuminant_clusters,
    photograph,
    show_colors,
)
from everlight_data.color.spectra.library import embedded_library
from everlight_data.errors import DataError

LIBRARY = embedded_library()
MAIN, SECOND = LIBRARY.camera_names


def parts_of(scenes, values):
    return [values[part] for part in (scenes.train, scenes.valid, scenes.test)]


@pytest.mark.parametrize("split", ["random", "illuminant"])
def test_the_papers_scenes(split):
    scenes = draw_scenes(LIBRARY, RadiometricSettings(split=split))
    illuminants = parts_of(scenes, scenes.illuminant)
    assert [len(part) for part in illuminants] == [10_800, 3_600, 3_600]
    assert (scenes.train.start, scenes.valid.start, scenes.test.start) == (0, 10_800, 14_400)
    assert scenes.surfaces.shape == (18_000, 24)
    assert all(len(set(row)) == 24 for row in scenes.surfaces.tolist())
    assert set(scenes.surfaces.ravel()) == set(range(214))
    kinds = [set(part.tolist()) for part in illuminants]
    assert set.union(*kinds) == set(range(107))
    if split == "random":
        assert kinds[0] == kinds[1] == kinds[2]
    else:
        # A boundary moves to the end of its cluster, and clusters hold up to four illuminants.
        assert [len(kind) for kind in kinds] == pytest.approx([65, 21, 21], abs=4)
        assert sum(len(kind) for kind in kinds) == 107


def test_illuminants_and_surfaces_are_drawn_evenly():
    scenes = draw_scenes(LIBRARY, RadiometricSettings(seed=3))
    for drawn, kinds in ((scenes.illuminant, 107), (scenes.surfaces, 214)):
        counts = np.bincount(drawn.ravel(), minlength=kinds)
        expected = drawn.size / kinds
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert abs(chi_square - kinds) < 5 * np.sqrt(2 * kinds)


@settings(max_examples=40)
@given(
    scenes=st.integers(5, 400),
    split=st.sampled_from(["random", "illuminant"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_split_is_whole_and_shares_no_illuminant_where_promised(scenes, split, seed):
    drawn = draw_scenes(LIBRARY, RadiometricSettings(scenes, split, seed))
    illuminants = parts_of(drawn, drawn.illuminant)
    assert sum(len(part) for part in illuminants) == len(drawn.illuminant) == scenes
    assert len(illuminants[1]) == len(illuminants[2]) == scenes // 5
    if split == "illuminant":
        kinds = [set(part.tolist()) for part in illuminants]
        assert len(set.union(*kinds)) == sum(len(kind) for kind in kinds)


@pytest.mark.parametrize("seed", range(5))
def test_no_test_illuminant_has_a_twin_in_training(seed):
    """Copies under two names (SA and A, SC and C) are one illuminant to this split."""
    scenes = draw_scenes(LIBRARY, RadiometricSettings(2_000, "illuminant", seed))
    unit = LIBRARY.illuminants / np.linalg.norm(LIBRARY.illuminants, axis=1, keepdims=True)
    train, valid, test = (sorted(set(part)) for part in parts_of(scenes, scenes.illuminant))
    for one, other in ((train, test), (valid, test), (train, valid)):
        assert (unit[one] @ unit[other].T).max() <= SAME_ILLUMINANT_COSINE


def test_clusters_are_chains_of_twins():
    """The first three illuminants are one cluster, though the first and third are no twins."""
    angles = np.radians([0, 2, 4, 20, 40])
    illuminants = np.column_stack([np.cos(angles), np.sin(angles)]) * [[1], [5], [1], [1], [2]]
    assert np.cos(np.radians(2)) > SAME_ILLUMINANT_COSINE > np.cos(np.radians(4))
    labels = illuminant_clusters(illuminants)
    assert labels[0] == labels[1] == labels[2]
    assert len(set(labels)) == 3


def test_scenes_number_equal_illuminants_alike():
    scenes = draw_scenes(LIBRARY, RadiometricSettings(3_000))
    names = np.array(LIBRARY.illuminant_names)[scenes.illuminant]
    assert set(scenes.clusters[names == "SA"]) == set(scenes.clusters[names == "A"])
    assert set(scenes.clusters[names == "SA"]).isdisjoint(scenes.clusters[names == "D65"])


def test_colors_are_drawn_evenly_in_the_logarithm_of_their_number(rng):
    counts = draw_color_counts(rng, 20_000)
    assert (counts.min(), counts.max()) == (1, 24)
    for least, most in ((1, 1), (2, 2), (3, 4), (5, 9), (10, 24)):
        share = np.mean((counts >= least) & (counts <= most))
        expected = np.log((most + 1) / least) / np.log(25)
        assert share == pytest.approx(expected, abs=5 * np.sqrt(expected / 20_000))


def test_scenes_show_the_requested_number_of_colors():
    scenes = draw_scenes(LIBRARY, RadiometricSettings(24))
    shown = show_colors(scenes, np.arange(1, 25))
    assert [len(set(row)) for row in shown.surfaces.tolist()] == list(range(1, 25))
    np.testing.assert_array_equal(shown.surfaces[4], np.resize(scenes.surfaces[4, :5], 24))
    np.testing.assert_array_equal(shown.illuminant, scenes.illuminant)


def test_a_dominant_color_takes_its_patches():
    scenes = show_colors(draw_scenes(LIBRARY, RadiometricSettings(50)), np.full(50, 24), 20)
    assert all(np.unique(row, return_counts=True)[1].max() == 20 for row in scenes.surfaces)
    assert all(len(set(row)) == 5 for row in scenes.surfaces.tolist())


@pytest.mark.parametrize(("colors", "dominant"), [(0, 0), (25, 0), (4, 24), (4, -1)])
def test_more_or_fewer_colors_than_patches_are_refused(colors, dominant):
    with pytest.raises(DataError, match="give 1 to 24 colours"):
        show_colors(draw_scenes(LIBRARY, RadiometricSettings(50)), np.full(50, colors), dominant)


def test_the_seed_decides():
    first, same, other = (
        draw_scenes(LIBRARY, RadiometricSettings(200, "illuminant", seed)) for seed in (1, 1, 2)
    )
    for a, b in zip(first, same, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.surfaces, other.surfaces)
    assert set(first.illuminant[first.test]) != set(other.illuminant[other.test])


@pytest.mark.parametrize("camera", [MAIN, SECOND])
def test_a_view_is_the_float64_integral_of_its_scenes(camera):
    scenes = draw_scenes(LIBRARY, RadiometricSettings(300, seed=4))
    view = photograph(LIBRARY, camera, scenes)
    sensitivity = LIBRARY.sensitivity(camera)
    whites = LIBRARY.illuminants @ sensitivity.T
    exposure = whites.max()
    assert view.colors.dtype == view.illuminants.dtype == np.float32
    assert view.colors.shape == (300, 24, 3)
    np.testing.assert_allclose(view.illuminants, whites[scenes.illuminant] / exposure, rtol=2e-6)
    radiance = LIBRARY.illuminants[scenes.illuminant, None] * LIBRARY.reflectances[scenes.surfaces]
    np.testing.assert_allclose(view.colors, radiance @ sensitivity.T / exposure, rtol=2e-6)


def test_eighteen_thousand_scenes_by_two_cameras_take_seconds():
    start = time.perf_counter()
    scenes = draw_scenes(LIBRARY, RadiometricSettings())
    for camera in (MAIN, SECOND):
        photograph(LIBRARY, camera, scenes)
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize("count", [-10, 0, 4])
def test_too_few_scenes_are_refused(count):
    with pytest.raises(DataError, match=rf"{count} scenes cannot be split 60/20/20"):
        draw_scenes(LIBRARY, RadiometricSettings(count))


def test_too_few_illuminants_or_surfaces_are_refused():
    for chosen, count in ((slice(4), 4), ([3] * 20, 1)):
        few_illuminants = LIBRARY._replace(illuminants=LIBRARY.illuminants[chosen])
        with pytest.raises(DataError, match=f"{count} different illuminants cannot be split"):
            draw_scenes(few_illuminants, RadiometricSettings(50, "illuminant"))
    assert draw_scenes(few_illuminants, RadiometricSettings(50)).illuminant.max() == 19
    few_surfaces = LIBRARY._replace(reflectances=LIBRARY.reflectances[:23])
    with pytest.raises(DataError, match=r"23 surfaces; give at least 24"):
        draw_scenes(few_surfaces, RadiometricSettings(50))
