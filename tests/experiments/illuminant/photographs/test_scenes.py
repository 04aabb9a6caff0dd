"""NUS-8's scenes, which eight cameras show: the default unit of intervals across cameras."""

from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from everlight_data.color.dmcc_thumbnails import scenes_of
from everlight_data.color.photographs.thumbnails import thumbnail_cameras
from everlight_data.errors import DataError
from everlight_experiments.illuminant.photographs import source
from everlight_experiments.illuminant.photographs.dataset import DatasetOptions, protocol_words
from everlight_experiments.illuminant.photographs.source import load_cameras
from everlight_experiments.illuminant.photographs.train import IlluminantTrainOptions

CAMERAS = ("NikonD5200", "SonyA57")


@pytest.fixture
def same_scenes(tmp_path, rng):
    """Write 45 scenes by each of two cameras, one exposed less; the first three by one alone."""
    drawn = gaussian_filter(rng.random((48, 64, 64, 3)), (0, 4, 4, 0))
    scenes = np.clip((drawn - 0.5) * 10 + 0.5, 0.02, 1).astype(np.float32)
    for camera, images in zip(CAMERAS, (scenes[:45], 0.7 * scenes[3:]), strict=True):
        np.savez(
            tmp_path / f"{camera}.npz",
            images=images,
            illuminant_rgb=images.mean(axis=(1, 2)),
            names=np.array([f"{camera}_{row:04}" for row in range(45)]),
        )
    return tuple(tmp_path / f"{camera}.npz" for camera in CAMERAS)


def test_images_of_nus8_across_cameras_have_their_scenes(same_scenes, monkeypatch, tmp_path):
    monkeypatch.setattr(source, "thumbnail_files", lambda: same_scenes)
    options = DatasetOptions(split="cross-camera", runs=tmp_path)
    images, _ = load_cameras(options)
    scenes = scenes_of(thumbnail_cameras(same_scenes))
    for camera, data in images.items():
        np.testing.assert_array_equal(data.groups, scenes[camera])
    shared = set(scenes["NikonD5200"]) & set(scenes["SonyA57"])
    assert len(shared) > 30
    np.testing.assert_array_equal(scenes["NikonD5200"][3:][:30], scenes["SonyA57"][:30])
    assert "intervals over groups" in protocol_words(options)
    # Given groups replace the scenes that are found.
    lines = [f"{camera},{name},one" for camera in CAMERAS for name in images[camera].names]
    (tmp_path / "groups.csv").write_text("\n".join(["camera,image,group", *lines, ""]))
    images, _ = load_cameras(
        DatasetOptions(split="cross-camera", runs=tmp_path, groups=tmp_path / "groups.csv")
    )
    assert {*images["SonyA57"].groups.tolist()} == {0}


def test_training_across_cameras_finds_the_same_scenes(same_scenes, monkeypatch, tmp_path):
    """The intervals of `train` took the eight images of a NUS-8 scene as independent."""
    monkeypatch.setattr(source, "thumbnail_files", lambda: same_scenes)
    images, _ = load_cameras(IlluminantTrainOptions(runs=tmp_path))
    scenes = scenes_of(thumbnail_cameras(same_scenes))
    for camera, data in images.items():
        np.testing.assert_array_equal(data.groups, scenes[camera])
    # Folds within one camera are of single images, as those of `dataset`.
    images, _ = load_cameras(IlluminantTrainOptions(runs=tmp_path, cameras=CAMERAS[:1]))
    assert images[CAMERAS[0]].groups is None


@pytest.mark.parametrize(("saturated", "count"), [("highlights", 0), ("none", 45)])
def test_saturated_pixels_are_masked_as_named(same_scenes, tmp_path, saturated, count):
    options = DatasetOptions(thumbnails=same_scenes, saturated=saturated, runs=tmp_path)
    images, note = load_cameras(options)
    assert images["SonyA57"].masks.all(axis=(1, 2)).sum() == count
    assert ("0.95" in note) == (saturated == "highlights")
    with pytest.raises(DataError, match="--saturated is for --thumbnails"):
        load_cameras(DatasetOptions(preset="demo", saturated="none", runs=tmp_path))


@pytest.mark.parametrize(
    "options",
    [
        DatasetOptions(),
        DatasetOptions(split="cross-camera", thumbnails=(Path("mine.npz"),)),
        DatasetOptions(split="cross-camera", release="radiometric"),
        DatasetOptions(split="cross-camera", preset="demo"),
        IlluminantTrainOptions(split="groups", groups=Path("groups.csv")),
        IlluminantTrainOptions(thumbnails=(Path("mine.npz"),)),
    ],
)
def test_other_images_are_independent(options):
    assert not options.are_scenes_found
