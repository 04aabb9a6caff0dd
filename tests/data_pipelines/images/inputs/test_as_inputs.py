"""Images on the device, normalized by their own channels or given ones; sets made smaller."""

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.images.inputs.as_inputs import store_images
from everlight_data.sets.image_set import ImageSet, PerClass, first_per_class, shrink_images


def small_set():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (30, 4, 4, 3), dtype=np.uint8)
    train, test = np.arange(20) % 5, np.arange(10) % 5
    return ImageSet("noise", images, train, test, tuple("abcde"))


@pytest.mark.parametrize("channels", [1, 3])
def test_stored_images_carry_the_training_channels_mean_and_deviation(channels):
    images = small_set()
    images = images._replace(images=images.images[..., :channels])
    stored = store_images(images)
    train = np.float64(images.images[:20])
    assert stored.mean.shape == (channels,)
    np.testing.assert_allclose(stored.mean, train.mean((0, 1, 2)), rtol=1e-5)
    np.testing.assert_allclose(stored.deviation, train.std((0, 1, 2)), rtol=1e-5)


def test_given_channels_normalize_instead():
    images, mean, deviation = small_set(), (0.5, 0.25, 1.0), (0.2, 0.4, 0.1)
    stored = store_images(images, (mean, deviation))
    np.testing.assert_array_equal(stored.images, images.images)
    np.testing.assert_allclose(stored.mean, [127.5, 63.75, 255], rtol=1e-6)
    np.testing.assert_allclose(stored.deviation, [51, 102, 25.5], rtol=1e-6)


def test_images_shrink_to_means_of_blocks_and_only_by_whole_factors():
    images = small_set()
    small = shrink_images(images, 2).images
    block = np.float64(images.images[3, :2, 2:4])
    np.testing.assert_allclose(small[3, 0, 1], block.mean((0, 1)), atol=0.5)
    with pytest.raises(DataError, match="--side 3"):
        shrink_images(images, 3)


def test_the_first_of_each_class_keep_their_order_and_their_place():
    few = first_per_class(small_set(), PerClass(2, 1))
    np.testing.assert_array_equal(few.train_labels, np.tile(np.arange(5), 2))
    np.testing.assert_array_equal(few.test_labels, np.arange(5))
    expected = small_set().images[[*range(10), *range(20, 25)]]
    np.testing.assert_array_equal(few.images, expected)
