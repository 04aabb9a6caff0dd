import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipelines.errors import DataError
from data_pipelines.radiometric import RadiometricSettings, draw_scenes, photograph
from data_pipelines.spectra import embedded_library

LIBRARY = embedded_library()
MAIN, SECOND = LIBRARY.camera_names


def parts_of(scenes, values):
    return [values[part] for part in (scenes.train, scenes.valid, scenes.test)]


@pytest.mark.parametrize("split", ["random", "illuminant"])
def test_the_papers_scenes(split):
    scenes = draw_scenes(LIBRARY, RadiometricSettings(split=split))
    lights = parts_of(scenes, scenes.illuminant)
    assert [len(part) for part in lights] == [10_800, 3_600, 3_600]
    assert (scenes.train.start, scenes.valid.start, scenes.test.start) == (0, 10_800, 14_400)
    assert scenes.surfaces.shape == (18_000, 24)
    assert all(len(set(row)) == 24 for row in scenes.surfaces.tolist())
    assert set(scenes.surfaces.ravel()) == set(range(214))
    kinds = [set(part.tolist()) for part in lights]
    assert set.union(*kinds) == set(range(107))
    if split == "random":
        assert kinds[0] == kinds[1] == kinds[2]
    else:
        assert [len(kind) for kind in kinds] == [65, 21, 21]
        assert sum(len(kind) for kind in kinds) == 107


def test_lights_and_surfaces_are_drawn_evenly():
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
def test_any_split_is_whole_and_shares_no_light_where_promised(scenes, split, seed):
    drawn = draw_scenes(LIBRARY, RadiometricSettings(scenes, split, seed))
    lights = parts_of(drawn, drawn.illuminant)
    assert sum(len(part) for part in lights) == len(drawn.illuminant) == scenes
    assert len(lights[1]) == len(lights[2]) == scenes // 5
    if split == "illuminant":
        kinds = [set(part.tolist()) for part in lights]
        assert len(set.union(*kinds)) == sum(len(kind) for kind in kinds)


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


def test_a_perfect_reflector_would_show_the_illuminant():
    white = LIBRARY._replace(reflectances=np.ones_like(LIBRARY.reflectances))
    scenes = draw_scenes(white, RadiometricSettings(50))
    view = photograph(white, MAIN, scenes)
    np.testing.assert_allclose(
        view.colors, np.repeat(view.illuminants[:, None], 24, axis=1), rtol=1e-6
    )


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


def test_too_few_lights_or_surfaces_are_refused():
    few_lights = LIBRARY._replace(illuminants=LIBRARY.illuminants[:4])
    with pytest.raises(DataError, match=r"4 lights cannot be split"):
        draw_scenes(few_lights, RadiometricSettings(50, "illuminant"))
    assert draw_scenes(few_lights, RadiometricSettings(50)).illuminant.max() == 3
    few_surfaces = LIBRARY._replace(reflectances=LIBRARY.reflectances[:23])
    with pytest.raises(DataError, match=r"23 surfaces, fewer than 24"):
        draw_scenes(few_surfaces, RadiometricSettings(50))


def test_an_unknown_camera_is_refused():
    scenes = draw_scenes(LIBRARY, RadiometricSettings(5))
    with pytest.raises(DataError, match=r"'Nikon 5200' is not .* nearest: Nikon 5100"):
        photograph(LIBRARY, "Nikon 5200", scenes)
