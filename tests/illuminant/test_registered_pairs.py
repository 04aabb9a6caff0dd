"""Re-illumination without a chart against images whose pixels are re-illuminated, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.moments import edge_moments, pixel_moments
from everlight.illuminant.camera_pairs import CameraPairs
from everlight.illuminant.pair_inputs import VIEWS
from everlight.illuminant.registered_pairs import (
    MOMENTS_AND_EDGES,
    WHITES,
    RegisteredPairs,
    registered_augmentations,
)

COUNT = 6
TRANSFORM = np.array([[-1.9, -2.0, -0.4], [2.4, 2.6, 0.9], [-0.9, -0.7, -0.4]])
"""A transform whose mean row sum is below 0."""


def fitted(main, second):
    views = (np.float64(view.reshape(-1, 3)) for view in (main, second))
    return np.linalg.lstsq(*(view / view.mean() for view in views))[0]


def moments(image):
    parts = (function(jnp.float32(image), None) for function in (pixel_moments, edge_moments))
    return np.concatenate(list(parts))


@pytest.fixture
def images(rng):
    """Return both cameras' images of six greenish scenes, pixel by pixel aligned."""
    level = rng.uniform(0.2, 0.8, (COUNT, 12, 14, 1))
    main = np.array([0.45, 1, 0.5]) * level + rng.uniform(-0.02, 0.02, (COUNT, 12, 14, 3))
    return {"main": main, "second": main @ TRANSFORM}


@pytest.fixture
def pairs(images, rng):
    illuminants = {view: np.float32(rng.uniform(0.5, 1, (COUNT, 3))) for view in VIEWS}
    return RegisteredPairs(
        transforms=np.float32([fitted(*both) for both in zip(*images.values(), strict=True)]),
        means={
            view: np.float32([i.mean((0, 1)) / i.mean() for i in images[view]]) for view in VIEWS
        },
        moments={view: np.stack([moments(image) for image in images[view]]) for view in VIEWS},
        illuminants=illuminants,
    )


def camera_pairs(pairs, view):
    truth = pairs.illuminants
    folds = np.arange(COUNT).reshape(3, 2)
    inputs = pairs.inputs(view)
    return CameraPairs(inputs, truth["main"], truth["second"], folds, ("a", "b"), "", view)


def test_inputs_are_eighteen_numbers_for_one_camera_and_for_two(pairs):
    inputs = pairs.inputs("main")
    sizes = {name: values.shape[1] for name, values in inputs.items()}
    assert sizes == {"T": 9, "moments": 9, "T and moments": 18, MOMENTS_AND_EDGES: 18, WHITES: 2}
    main, second = (np.float64(pairs.illuminants[view]) for view in VIEWS)
    red, blue = ((main[:, c] / main[:, 1]) / (second[:, c] / second[:, 1]) for c in (0, 2))
    np.testing.assert_allclose(inputs[WHITES], np.stack([red, blue], axis=1), rtol=1e-5)
    assert pairs.inputs("second").keys() == {MOMENTS_AND_EDGES}
    assert (pairs.transforms.sum((1, 2)) < 0).all(), "row sums are below 0"


@pytest.mark.parametrize("view", VIEWS)
def test_re_illuminated_inputs_are_those_of_re_illuminated_images(pairs, images, view):
    data, train = camera_pairs(pairs, view), np.array([0, 2, 3, 5])
    samples = registered_augmentations(pairs)["von Kries"](data, train, jax.random.key(3))
    targets = data.targets(train)
    assert len(samples.targets) == len(train) ** 2
    for place, chromaticity in enumerate(np.asarray(samples.targets)):
        source = train[place // len(train)]
        target = train[np.abs(targets - chromaticity).sum(axis=1).argmin()]
        relit = {
            name: images[name][source]
            * (np.float64(pairs.illuminants[name][target]) / pairs.illuminants[name][source])
            for name in VIEWS
        }
        np.testing.assert_allclose(
            samples.inputs[MOMENTS_AND_EDGES][place], moments(relit[view]), rtol=2e-3
        )
        if view == "main":
            expected = fitted(relit["main"], relit["second"]).ravel()
            np.testing.assert_allclose(samples.inputs["T"][place], expected, rtol=1e-2, atol=1e-2)
            np.testing.assert_allclose(samples.inputs[WHITES][place], data.inputs[WHITES][target])
            joined = np.hstack([samples.inputs["T"][place], samples.inputs["moments"][place]])
            np.testing.assert_array_equal(samples.inputs["T and moments"][place], joined)


def test_both_augmentations_give_equally_many(pairs):
    data, train = camera_pairs(pairs, "main"), np.arange(4)
    counts = {
        len(augment(data, train, jax.random.key(0)).targets)
        for augment in registered_augmentations(pairs).values()
    }
    assert counts == {16}
