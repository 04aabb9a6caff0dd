"""Inputs for pairs of cameras never seen, with made-up cameras whose transforms are known."""

import numpy as np
import pytest

from everlight_data.color.camera_descriptions import (
    Sensors,
    all_shots,
    between_known,
    draw_camera_folds,
    draw_shots,
    inputs_of,
    known_illuminants,
    principal_components,
    samples_of,
    see_scenes,
)
from everlight_data.color.spectra import WAVELENGTHS, SpectralLibrary, embedded_library
from everlight_data.errors import DataError

CAMERAS = 12
# What the third camera makes of the first one's channels.
MIX = np.array([[0.8, 0.2, 0.1], [0.1, 0.7, 0.1], [0.0, 0.2, 0.6]])


def made_up(cameras=CAMERAS):
    """The two embedded cameras, moved by some nanometres; the third is a mixture of the first."""
    library = embedded_library()
    moved = [
        np.stack([np.interp(WAVELENGTHS - 3 * (i // 2), WAVELENGTHS, channel) for channel in own])
        for i in range(cameras)
        for own in [library.sensitivities[i % 2]]
    ]
    moved[2] = MIX.T @ moved[0]
    names = tuple(f"camera {i}" for i in range(cameras))
    return library._replace(sensitivities=np.stack(moved), camera_names=names, note="made up")


@pytest.fixture(scope="module")
def library() -> SpectralLibrary:
    return made_up()


@pytest.fixture(scope="module")
def sensors(library):
    return Sensors(*known_illuminants(library), principal_components(library, np.arange(6)))


def test_every_camera_is_in_one_part_and_none_is_left_out_twice():
    folds = draw_camera_folds(28, 14, seed=3)
    for fold in folds:
        assert sorted(np.concatenate(fold)) == list(range(28))
        assert [len(part) for part in fold] == [2, 4, 22]
        assert fold.roles() == [tuple(fold.unseen), tuple(fold.unseen[::-1])]
    assert sorted(np.concatenate([fold.unseen for fold in folds])) == list(range(28))
    assert not np.array_equal(folds[0].unseen, draw_camera_folds(28, 14, seed=4)[0].unseen)


@pytest.mark.parametrize(("cameras", "pairs", "least"), [(10, 1, 11), (11, 6, 12)])
def test_too_few_cameras_are_refused(cameras, pairs, least):
    with pytest.raises(DataError, match=f"{cameras} cameras; {pairs} pairs .* need {least}"):
        draw_camera_folds(cameras, pairs, seed=0)


def test_shots_are_of_all_pairs_of_two_different_cameras(rng):
    cameras = np.array([3, 5, 8, 11])
    shots = draw_shots(rng, cameras, slice(100, 200), 12_000)
    pairs, counts = np.unique(np.stack([shots.main, shots.second]), axis=1, return_counts=True)
    assert pairs.shape == (2, 12)
    assert (pairs[0] != pairs[1]).all()
    assert set(pairs.ravel()) == set(cameras)
    # Four deviations of 1,000.
    assert np.abs(counts - 1_000).max() < 130
    assert (shots.scene.min(), shots.scene.max()) == (100, 199)


def test_the_known_illuminants_give_the_transforms_and_whites_that_numpy_gives(library, sensors):
    transforms = sensors.transforms.reshape(CAMERAS, CAMERAS, 2, 3, 3)
    for camera in range(CAMERAS):
        np.testing.assert_allclose(transforms[camera, camera], [np.eye(3)] * 2, atol=1e-3)
    np.testing.assert_allclose(transforms[0, 2], [MIX / MIX.sum(1).mean()] * 2, atol=2e-3)
    whites, fitted = [], []
    for kelvin in (2856, 6504):
        power = 1e9 * WAVELENGTHS**-5.0 / np.expm1(1.438777e7 / (WAVELENGTHS * kelvin))
        main, second = library.sensitivities[[1, 4]] * power
        red, green, blue = main.sum(axis=1)
        whites += [np.log(red / green), np.log(blue / green)]
        seen = [library.reflectances @ camera.T for camera in (main, second)]
        transform = np.linalg.lstsq(*seen)[0]
        fitted.append(transform / transform.sum(axis=1).mean())
    np.testing.assert_allclose(sensors.whites[1], whites, atol=1e-3)
    np.testing.assert_allclose(transforms[1, 4], fitted, atol=5e-3)


def test_components_are_those_of_the_teachers_alone(library, sensors):
    changed = library.sensitivities.copy()
    changed[6:] = changed[6:, ::-1]
    others = principal_components(library._replace(sensitivities=changed), np.arange(6))
    np.testing.assert_array_equal(others[:6], sensors.components[:6])
    assert np.abs(others[6:] - sensors.components[6:]).max() > 0.1
    # Of six cameras five components are all; four keep most of the distances.
    flat = library.sensitivities.reshape(CAMERAS, -1)
    flat = flat / flat.max(axis=1, keepdims=True)
    apart = np.linalg.norm(flat[:6, None] - flat[None, :6], axis=2)
    kept = sensors.components[:6]
    np.testing.assert_allclose(
        np.linalg.norm(kept[:, None] - kept[None], axis=2), apart, atol=0.05 * apart.max()
    )


def test_inputs_are_the_shots_own(library, sensors):
    world = see_scenes(library, 40, "random", seed=1)
    shots = all_shots(4, 1, slice(10, 20))
    inputs = inputs_of(shots, world, sensors)
    main, second = (np.float64(world.colors[camera, 10:20]) for camera in (4, 1))
    for row in range(10):
        transform = np.linalg.lstsq(main[row], second[row])[0]
        expected = transform / transform.sum(axis=1).mean()
        np.testing.assert_allclose(inputs["T"][row].reshape(3, 3), expected, atol=1e-2)
        ratio = main[row].mean(axis=0)
        np.testing.assert_allclose(
            inputs["moments"][row, :3] / inputs["moments"][row, 1],
            ratio[::-1] / ratio[1],
            rtol=1e-4,
        )
    np.testing.assert_array_equal(inputs["whites"], [sensors.whites[4]] * 10)
    components = np.concatenate(sensors.components[[4, 1]])
    np.testing.assert_array_equal(inputs["sensitivities"], [components] * 10)


@pytest.mark.parametrize(("share", "told"), [(0.0, 0.0), (1.0, 1.0), (0.25, 0.25), (5.0, 2.0)])
def test_a_transform_on_the_way_between_the_known_illuminants_has_the_light_between(
    rng, sensors, share, told
):
    """And one beside the way the same place, with what is left told in lengths of the way."""
    shots = all_shots(1, 4, slice(0, 2))
    first, second = np.float64(sensors.transforms[1, 4]).reshape(2, 9)
    aside = rng.normal(size=9)
    way = second - first
    aside -= way * (aside @ way) / (way @ way)
    found = between_known(first + share * way + np.stack([0 * aside, aside]), shots, sensors)
    whites = np.float64(sensors.whites[1]).reshape(2, 2)
    expected = np.exp((1 - told) * whites[0] + told * whites[1])
    np.testing.assert_allclose(found.illuminant, [expected] * 2, rtol=1e-4)
    length = np.linalg.norm(way)
    np.testing.assert_allclose(found.place[:, 0], told, atol=1e-4)
    np.testing.assert_allclose(found.place[:, 1:10], [0 * aside, aside / length], atol=1e-4)
    np.testing.assert_allclose(found.place[0, 10:19], way / length, atol=1e-5)
    np.testing.assert_allclose(found.place[:, 19], np.log(length), rtol=1e-5)
    np.testing.assert_array_equal(found.place[:, 20:], [sensors.whites[1]] * 2)


def test_samples_without_a_transform_are_replaced_with_their_targets(library, sensors):
    world = see_scenes(library, 40, "random", seed=1)
    dark = world._replace(colors=world.colors.at[4, 12].set(0))
    shots = all_shots(4, 1, slice(10, 20))
    whole, samples = samples_of(shots, world, sensors), samples_of(shots, dark, sensors)
    rows = [0, 1, 3, 4, 5, 6, 7, 8, 9, 0]
    np.testing.assert_allclose(samples.inputs["T"], whole.inputs["T"][rows], rtol=1e-5)
    np.testing.assert_array_equal(samples.targets, whole.targets[rows])
