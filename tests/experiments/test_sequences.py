"""Driven sequences: killed and continued, refused, diverged; images brought to the device."""

import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.images.image_set import ImageSet, first_per_class, shrink_images
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.common.sequences import store_images
from tests.experiments.a_unit import checkpoints_of, folder_in, train_unit


def run_child(tmp_path, folder, *moment):
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, "-m", "tests.experiments.killed_sequence", str(tmp_path / folder)]
    command += [str(tmp_path / f"{folder}.npz"), *map(str, moment)]
    environment = os.environ | cache
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode


@pytest.mark.slow
def test_killed_anywhere_it_ends_with_the_same_bits(tmp_path):
    """Twenty times, every other one while a checkpoint is being written."""
    kills = 20
    assert run_child(tmp_path, "whole") == 0
    killed = sum(run_child(tmp_path, "killed", moment) == -9 for moment in range(kills))
    assert killed >= 0.75 * kills, "few processes lived to their kill"
    assert run_child(tmp_path, "killed") == 0
    with np.load(tmp_path / "whole.npz") as whole, np.load(tmp_path / "killed.npz") as resumed:
        assert len(whole.files) > 10
        for name in whole.files:
            np.testing.assert_array_equal(whole[name], resumed[name])


def test_checkpoints_of_another_configuration_are_refused_by_name(tmp_path):
    folder_in(tmp_path)
    other = {"strategy": "ewc", "hyperparameter": 10.0}
    Checkpoints(checkpoints_of(tmp_path)).save(4, {"a": jnp.zeros(2)}, {"runs": [other]})
    with pytest.raises(DataError, match=r"runs: .*'hyperparameter': 10.0.* there, .* now"):
        train_unit(tmp_path, tmp_path / "result.npz")


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


def test_given_channels_normalise_instead():
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
    with pytest.raises(DataError, match="side=3"):
        shrink_images(images, 3)


def test_the_first_of_each_class_keep_their_order_and_their_place():
    few = first_per_class(small_set(), 2, 1)
    np.testing.assert_array_equal(few.train_labels, np.tile(np.arange(5), 2))
    np.testing.assert_array_equal(few.test_labels, np.arange(5))
    expected = small_set().images[[*range(10), *range(20, 25)]]
    np.testing.assert_array_equal(few.images, expected)


def test_checkpoints_that_a_killed_run_left_of_a_finished_part_are_removed(tmp_path):
    train_unit(tmp_path, tmp_path / "whole.npz")
    checkpoints = checkpoints_of(tmp_path)
    left = checkpoints / "20" / "state"
    left.mkdir(parents=True)
    (left / "array").write_bytes(b"half removed")
    other = checkpoints.parent / "EWC-1" / "10"
    other.mkdir(parents=True)
    train_unit(tmp_path, tmp_path / "again.npz")
    assert list(checkpoints.parent.iterdir()) == [other.parent]
