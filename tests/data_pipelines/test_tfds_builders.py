"""Builders for users of other libraries, prepared and read without TensorFlow."""

import imagecodecs
import numpy as np
import pytest
import tensorflow_datasets as tfds

from everlight_data import tfds_builders
from everlight_data.color.s20 import load_s20
from everlight_data.images.core50.prepared import prepare_core50
from everlight_data.procedural.render import World
from everlight_data.procedural.world import load_procedural
from everlight_data.sets.image_set import PerClass


def prepared(name, folder):
    builder = tfds.builder(name, data_dir=folder, file_format="array_record")
    builder.download_and_prepare()
    return builder


def test_core50_has_its_paper_s_test_sessions(tmp_path, monkeypatch):
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    for session in (1, 3, 11):
        path = tmp_path / "r" / f"s{session}" / "o7" / f"C_{session:02}_07_005.png"
        path.parent.mkdir(parents=True)
        path.write_bytes(imagecodecs.png_encode(np.full((128, 128, 3), session, np.uint8)))
    prepare_core50(tmp_path / "r", tmp_path / "core50", partial=True)
    builder = prepared("core50", tmp_path / "tfds")
    train, test = builder.as_data_source(["train", "test"])
    assert sorted(sample["session"] for sample in train) == [0, 10]
    (sample,) = test
    expected = {"label": 6, "category": 1, "session": 2, "frame": 5}
    assert {**sample, "image": 0} == {"image": 0, **expected}
    np.testing.assert_array_equal(sample["image"], np.full((128, 128, 3), 3))
    assert builder.info.features["label"].int2str(6) == "mobile_phone2"


def test_s20_s_pairs_are_those_of_the_loader(tmp_path, real_data):
    real_data("s20_two_camera/Metadata_Image_Pairs.zip")
    source = prepared("s20_two_camera", tmp_path).as_data_source("train")
    expected = load_s20()
    result = {sample["name"].decode(): sample for sample in source}
    assert sorted(result) == sorted(expected.names)
    for place, name in enumerate(expected.names):
        sample = result[name]
        assert place in expected.folds[sample["fold"]]
        for field in ("illuminant_main", "illuminant_second", "transform_image", "transform_chart"):
            np.testing.assert_array_equal(sample[field], getattr(expected, field)[place])


@pytest.mark.slow
def test_the_procedural_world_is_that_of_the_loader(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds_builders.ProceduralWorld, "PER_CLASS", PerClass(2, 1))
    world = World(superclasses=4, subclasses=5)
    expected = load_procedural(world, PerClass(2, 1))
    train = prepared("procedural_world", tmp_path).as_data_source("train")
    images = {sample["image"].tobytes(): sample for sample in train}
    assert len(images) == len(expected.train_labels) == 40
    for image, label in zip(expected.images, expected.train_labels, strict=False):
        assert images[image.tobytes()]["label"] == label
        assert images[image.tobytes()]["superclass"] == label // 5
