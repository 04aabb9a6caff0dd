"""Rendered pairs: what networks are given, under exact and noisy conditions."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from everlight_data.color.rendered.rendered_pairs import (
    TRAINING_NOISE,
    draw_camera_pairs,
    render_conditions,
)
from everlight_data.color.rendered.variants import Variant, render_variants
from everlight_data.color.spectra.library import embedded_library
from everlight_data.errors import DataError

# All tests have this many scenes, so that each program is compiled once.
SCENES = 100
ONE_COLOR = Variant(colors=1).name


def test_pairs_are_different_and_drawn_by_the_seed():
    cameras = ["A", "B", "C", "D"]
    pairs = draw_camera_pairs(cameras, 6, seed=0)
    assert len({frozenset(pair) for pair in pairs}) == 6
    first, same, other = (draw_camera_pairs(cameras, 2, seed) for seed in (0, 0, 1))
    assert first == same != other


@pytest.mark.parametrize("count", [0, 7])
def test_more_pairs_than_there_are_is_refused(count):
    with pytest.raises(DataError, match=f"camera_pairs={count}; 4 cameras make 1 to 6 pairs"):
        draw_camera_pairs(["A", "B", "C", "D"], count, seed=0)


@pytest.fixture(scope="module")
def prepared():
    """Render one pair of cameras, exact and noisy, in few scenes."""
    library = embedded_library()
    return library, render_conditions(library, [library.camera_names], SCENES, 0)


def test_exact_and_noisy_pairs_share_illuminants_and_noisy_ones_have_fewer_colors(prepared):
    _, data = prepared
    for split in ("random", "illuminant"):
        (exact,), (noisy,) = data["exact", split], data["noisy", split]
        np.testing.assert_array_equal(exact.scenes.illuminant, noisy.scenes.illuminant)
        counts = [len(set(row)) for row in noisy.scenes.surfaces.tolist()]
        assert min(counts) == 1 < max(counts) <= 24
        low, high = TRAINING_NOISE
        assert low <= noisy.main.read_noise.min() < noisy.main.read_noise.max() <= high


def test_network_inputs_equal_float64(prepared):
    """Each input is compared with float64 from the colours that the cameras measured."""
    _, data = prepared
    (exact,) = data["exact", "random"]
    row = 7
    main, second = (np.float64(view.colors[row]) for view in (exact.main, exact.second))
    plain = np.linalg.lstsq(main, second)[0]
    shares = [view / view.sum(1, keepdims=True) for view in (main, second)]
    expected = {
        "T with exposure": plain,
        "T": plain * 3 / plain.sum(),
        "T of sum-normalised": np.linalg.lstsq(*shares)[0],
    }
    for value, transform in expected.items():
        np.testing.assert_allclose(exact.inputs[value][row], transform.ravel(), atol=2e-3)
    moments = np.asarray(exact.inputs["moments"][row])
    ratio = main[:, 0].mean() / main[:, 2].mean()
    np.testing.assert_allclose(moments[2] / moments[0], ratio, rtol=1e-5)
    both = np.concatenate([exact.inputs["T"][row], moments])
    np.testing.assert_array_equal(exact.inputs["T and moments"][row], both)


def _float64_edge_moments(image):
    """Return roots of mean products of gradient magnitudes: blue first, then squared degrees."""
    along = [
        gaussian_filter(np.float64(image), (1, 1, 0), order=(*order, 0), truncate=3)[3:-3, 3:-3]
        for order in ((1, 0), (0, 1))
    ]
    red, green, blue = np.hypot(*along).reshape(-1, 3).T
    singles = [channel.mean() for channel in (blue, green, red)]
    products = (blue * blue, green * blue, green * green, red * blue, red * green, red * red)
    moments = np.array([*singles, *(np.sqrt(product.mean()) for product in products)])
    return moments / moments.mean()


def test_edge_moments_of_both_cameras_equal_float64(prepared):
    (noisy,) = prepared[1]["noisy", "random"]
    second, row = noisy.seen_by_second(), 7
    np.testing.assert_array_equal(second.main.illuminants, noisy.second.illuminants)
    for pair, view in ((noisy, noisy.main), (second, noisy.second)):
        expected = _float64_edge_moments(view.images(slice(0, SCENES))[row])
        inputs = pair.inputs["moments and edge moments"]
        np.testing.assert_allclose(inputs[row, 9:], expected, rtol=1e-3)
        np.testing.assert_array_equal(inputs[:, :9], pair.inputs["moments"])


def test_exact_scenes_have_no_distances_from_a_prior(prepared):
    (exact,) = prepared[1]["exact", "random"]
    with pytest.raises(DataError, match="exact scenes have no prior; give a pair of"):
        exact.find_determined(exact.scenes.test)


def test_a_noisy_image_is_what_its_patch_means_are_of(prepared):
    _, data = prepared
    (noisy,) = data["noisy", "random"]
    images = np.asarray(noisy.main.images(slice(3, 6)))
    means = images.reshape(3, 4, 8, 6, 8, 3).mean((2, 4)).reshape(3, 24, 3)
    np.testing.assert_allclose(means, noisy.main.colors[3:6], atol=1e-5)
    assert np.abs(images[:, 0, 0] - means[:, 0]).max() > 1e-3


def test_without_a_transform_a_scene_is_counted_as_invalid_and_not_trained_on(prepared):
    """One colour gives no transform by sum-normalized least squares, but a most probable one."""
    library, data = prepared
    photographed = render_variants(library, [library.camera_names], data, "random", 0)
    (one_color,) = photographed[ONE_COLOR]
    assert np.isfinite(one_color.inputs["T"]).all()
    (noisy,) = data["noisy", "random"]
    lost = ~np.isfinite(noisy.inputs["T of sum-normalised"]).all(axis=1)
    spoiled = {**noisy.inputs, "T": noisy.inputs["T"].at[:10].set(jnp.nan)}
    problem = noisy._replace(inputs=spoiled).problem("T")
    assert problem.features.shape == (60, 9)
    np.testing.assert_array_equal(problem.features[:50], noisy.inputs["T"][10:60])
    np.testing.assert_array_equal(problem.features[50:], noisy.inputs["T"][10:20])
    assert lost.sum() < 60
