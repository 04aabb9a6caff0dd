"""Images that an update adds to a run's benchmark: their class names."""

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.sets.image_set import ImageSet, LoadedImages
from everlight_experiments.continual.benchmarks.benchmark import Request
from everlight_experiments.continual.benchmarks.run_data import AddedData
from everlight_experiments.images.added_images import options_of_earlier_images, with_added_task
from everlight_experiments.images.config import CONFIGS, Config, Unevenness
from everlight_experiments.images.data import load_inputs

RNG = np.random.default_rng(3)


def images(count):
    return RNG.integers(0, 256, (count, 8, 8, 3), np.uint8)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Return the inputs of a benchmark of the classes Cat, dog, 1 and 2."""
    labels = np.repeat(np.arange(4, dtype=np.int32), 4)
    image_set = ImageSet("pets", images(32), labels, labels, ("Cat", "dog", "1", "2"))
    config = Config(tasks=(2,), net="mlp:4", validation_fraction=0)
    request = Request("images", config, ("class-incremental",), 0, tmp_path_factory.mktemp("runs"))
    return load_inputs(request, LoadedImages(image_set, "pets"))


def added(folder, *names):
    """Return new images of classes with these names."""
    path = folder / "new.npz"
    np.savez(path, images=images(10 * len(names)), labels=np.repeat(names, 10))
    return AddedData(str(path))


@pytest.mark.parametrize(("old", "new"), [("Cat", "cat"), ("dog", "Dog"), ("1", "01")])
def test_a_name_that_hardly_differs_from_an_earlier_one_is_refused(inputs, tmp_path, old, new):
    with pytest.raises(DataError, match=rf"new\.npz: the classes '{old}' and '{new}' "):
        with_added_task(inputs, added(tmp_path, new, "bird"), tmp_path)


def test_equal_names_are_one_class_and_others_come_last(inputs, tmp_path):
    grown = with_added_task(inputs, added(tmp_path, "bird", "Cat"), tmp_path)
    assert grown.images.class_names == ("Cat", "dog", "1", "2", "bird")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Config(), ""),
        (Config(data="photos", side=8, classes=3), ""),
        (CONFIGS["cifar10"]["demo"], "--per-class 100 50"),
        (
            Config(shots=5, label_noise=0.2, unevenness=Unevenness(imbalance=100)),
            "--label-noise 0.2, --shots 5, --imbalance 100",
        ),
    ],
)
def test_options_that_do_not_apply_to_new_images_are_named(config, words):
    assert options_of_earlier_images(config) == words
