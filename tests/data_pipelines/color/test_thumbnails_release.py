"""Thumbnails of colour constancy sets, prepared from their repository, and pairs of one scene."""

import shutil

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from everlight_data.color.dmcc_thumbnails import (
    NUS_FOLDERS,
    group_scenes,
    load_same_scene_pairs,
    same_scenes,
)
from everlight_data.color.pairs.camera_folders import camera_set
from everlight_data.color.pairs.pair_lists import match_images
from everlight_data.color.photographs.image_groups import read_image_groups
from everlight_data.color.s20 import load_s20
from everlight_data.errors import DataError
from everlight_experiments import cli
from tests.data_pipelines.prepared import arrays, prepare


@pytest.fixture
def thumbnails(tmp_path, rng):
    """Write two images per camera, as the repository has them."""
    for camera, folder in {**NUS_FOLDERS, "b": "Cube+"}.items():
        for name in (f"{camera}_0002", f"{camera}_0001"):
            image = rng.random((64, 64, 3)).astype(np.float32)
            image[3, 5] = 0
            for part, array in (
                ("data", image / image.max()),
                ("labels", np.array([0.3, 0.5, 0.2])),
            ):
                path = tmp_path / "clone" / "dataset" / folder / f"numpy_{part}" / f"{name}.npy"
                path.parent.mkdir(parents=True, exist_ok=True)
                np.save(path, array)
    return tmp_path / "clone"


def test_thumbnails_keep_their_numbers_to_16_bits_and_their_illuminants(root, thumbnails):
    nus = prepare(root, "nus-thumbnails", thumbnails)
    assert {path.stem for path in nus.glob("*.npz")} == set(NUS_FOLDERS)
    result = arrays(nus / "SonyA57.npz")
    assert result["names"].tolist() == ["SonyA57_0001", "SonyA57_0002"]
    published = np.load(thumbnails / "dataset/NUS-Sony/numpy_data/SonyA57_0002.npy")
    np.testing.assert_allclose(result["images_u16"][1] / 65535, published, atol=0.5001 / 65535)
    np.testing.assert_allclose(result["illuminant_rgb"] * np.sqrt(0.38), [[0.3, 0.5, 0.2]] * 2)
    scenes = read_image_groups(nus / "scenes.csv", {"SonyA57": tuple(result["names"].tolist())})
    assert len(scenes["SonyA57"]) == 2
    cube = arrays(prepare(root, "cube-plus-thumbnails", thumbnails) / "Canon550D.npz")
    np.testing.assert_array_equal(cube["illuminant_rgb"], [[0.3, 0.5, 0.2]] * 2)


def test_pairs_of_one_scene_are_found_by_their_neighbors_too(rng):
    """Two stretches of twelve scenes have another order; the camera has other noise."""

    def draw(count):
        drawn = gaussian_filter(rng.random((count, 64, 64, 3)), (0, 4, 4, 0))
        return np.clip((drawn - 0.5) * 10 + 0.5, 0.02, 1)

    main = draw(25)
    main[:, :8, :8] = 0
    order = [*range(12, 24), *range(12)]
    second = main[order] * 0.4 + 0.02 * rng.random((24, 64, 64, 3))
    second = np.concatenate([second, draw(2)])
    places, alike = same_scenes(main, second)
    result = {tuple(pair) for pair in places.tolist()}
    assert result <= {(order[j], j) for j in range(24)}
    assert len(result) >= 22  # At the ends of stretches there are few neighbours.
    # Without noise the exposure alone changes little, and nothing in who is whose partner.
    places, unchanged = same_scenes(main, main * 0.4)
    np.testing.assert_array_equal(places, np.stack([np.arange(25)] * 2, axis=1))
    assert alike.max() < 0.95 < unchanged.min()


def test_scenes_of_all_cameras_are_grouped(rng):
    """The first and third camera share a scene only through the second one."""
    drawn = gaussian_filter(rng.random((20, 64, 64, 3)), (0, 4, 4, 0))
    scenes = np.clip((drawn - 0.5) * 10 + 0.5, 0.02, 1)
    shown = [[*range(20)], [*range(16)], [*range(4, 20)]]
    groups = group_scenes(
        [scenes[rows] * gain for rows, gain in zip(shown, (1, 0.5, 0.7), strict=True)]
    )
    flat, expected = np.concatenate(groups), np.concatenate(shown)
    np.testing.assert_array_equal(flat[:, None] == flat, expected[:, None] == expected)


def test_scenes_of_nus8_are_seen_by_most_cameras(real_data):
    """Numbers of the Samsung's and the Nikon's images, which no step reads, agree nearly."""
    folder = real_data("nus8_64x64/NikonD5200.npz").parent
    cameras = ("NikonD5200", "SamsungNX2000", "FujifilmXM1")
    files = {camera: arrays(folder / f"{camera}.npz") for camera in cameras}
    rows = {
        camera: np.flatnonzero(np.char.startswith(file["names"], f"{camera}_"))
        for camera, file in files.items()
    }
    groups = group_scenes([files[camera]["images_u16"][rows[camera]] / 65535 for camera in cameras])
    numbers = [
        {group: int(name.rpartition("_")[2]) for group, name in zip(scenes, names, strict=True)}
        for scenes, names in zip(
            groups, (files[camera]["names"][rows[camera]] for camera in cameras), strict=True
        )
    ]
    shared = numbers[0].keys() & numbers[1].keys()
    assert len(shared) > 180
    apart = [abs(numbers[0][group] - numbers[1][group]) for group in shared]
    assert np.median(apart) <= 1
    assert np.mean(np.array(apart) <= 5) > 0.95


def test_pairs_are_nearly_the_available_ones(real_data):
    """The available list was made by another similarity, and 10 of its 172 are not found."""
    folder = real_data("nus8_64x64/NikonD5200.npz").parent
    main, second = (arrays(folder / f"{camera}.npz") for camera in ("NikonD5200", "Canon1DsMkIII"))
    selected = np.char.startswith(main["names"], "NikonD5200")
    images = (main["images_u16"][selected] / 65535, second["images_u16"] / 65535)
    places, _ = same_scenes(*images)
    result = {(main["names"][selected][i], second["names"][j]) for i, j in places}
    listed = load_same_scene_pairs(folder)
    expected = set(zip(listed.main, listed.second, strict=True))
    assert len(result & expected) >= 160
    assert len(result - expected) <= 3


def test_a_thumbnail_without_its_illuminant_is_named(root, thumbnails):
    (thumbnails / "dataset/NUS-Fuji/numpy_labels/FujifilmXM1_0002.npy").unlink()
    with pytest.raises(DataError, match=r"NUS-Fuji/numpy_labels/FujifilmXM1_0002\.npy"):
        prepare(root, "nus-thumbnails", thumbnails)


def test_a_camera_s_folder_that_occurs_twice_is_refused(root, thumbnails):
    """Names came from both folders, and images from the first."""
    shutil.copytree(thumbnails / "dataset/NUS-Fuji", thumbnails / "old/NUS-Fuji")
    message = "it has two folders NUS-Fuji, dataset/NUS-Fuji/ and old/NUS-Fuji/; keep one"
    with pytest.raises(DataError, match=message):
        prepare(root, "nus-thumbnails", thumbnails)


def test_two_files_of_one_name_are_refused(root, thumbnails):
    (thumbnails / "dataset/Cube+/numpy_data/b_0001.NPY").write_bytes(b"")
    with pytest.raises(DataError, match=r"Cube\+/numpy_data has two files b_0001; keep one"):
        prepare(root, "cube-plus-thumbnails", thumbnails)


TAU_FOLDERS = {"C_5DSR": "TAU_C_5DSR", "N_D810": "TAU_N_D810", "S_IMX135_BLCCSC": "TAU_S_IMX135"}
TAU_PARTS = ("field_0999", "field_1000", "field3cam_002", "field3cam_001", "lab_realscene_1")


@pytest.fixture
def tau(tmp_path, rng):
    """Write five images per camera, as the repository has them."""
    for camera, folder in TAU_FOLDERS.items():
        for part in TAU_PARTS:
            image = rng.random((64, 64, 3)).astype(np.float32)
            for kind, array in (
                ("data", image / image.max()),
                ("labels", np.array([0.3, 0.5, 0.2])),
            ):
                path = (
                    tmp_path / "clone/dataset" / folder / f"numpy_{kind}" / f"{camera}_{part}.npy"
                )
                path.parent.mkdir(parents=True, exist_ok=True)
                np.save(path, array)
    return tmp_path / "clone"


def test_intel_tau_is_upright_and_in_the_order_of_its_numbers(root, tau):
    """The Sony IMX135 was upside down in the laboratory and in scenes that all cameras took."""
    folder = prepare(root, "intel-tau-thumbnails", tau)
    ordered = ("field_0999", "field_1000", "field3cam_001", "field3cam_002", "lab_realscene_1")
    for camera, stem in {"C_5DSR": "Canon_5DSR", "S_IMX135_BLCCSC": "Sony_IMX135"}.items():
        result = arrays(folder / f"{stem}.npz")
        assert result["names"].tolist() == [
            "field-0999",
            "field-1000",
            "field3cam-0001",
            "field3cam-0002",
            "lab_realscene-0001",
        ]
        published = np.stack(
            [
                np.load(
                    tau / "dataset" / TAU_FOLDERS[camera] / "numpy_data" / f"{camera}_{part}.npy"
                )
                for part in ordered
            ]
        )
        if stem == "Sony_IMX135":
            published[2:] = np.rot90(published[2:], 2, axes=(1, 2))
        np.testing.assert_allclose(result["images_u16"] / 65535, published, atol=0.5001 / 65535)
        np.testing.assert_array_equal(result["illuminant_rgb"], [[0.3, 0.5, 0.2]] * 5)


def test_shared_scenes_of_intel_tau_pair_any_two_of_its_cameras(root, tau):
    (tau / "dataset/TAU_N_D810/numpy_data/N_D810_field3cam_002.npy").rename(
        tau / "dataset/TAU_N_D810/numpy_data/N_D810_field3cam_003.npy"
    )
    label = tau / "dataset/TAU_N_D810/numpy_labels"
    (label / "N_D810_field3cam_002.npy").rename(label / "N_D810_field3cam_003.npy")
    folder = prepare(root, "intel-tau-thumbnails", tau)
    listed = (folder / "same_scenes.csv").read_text()
    assert listed == "main,second\nfield3cam-0001,field3cam-0001\n"
    cameras = [camera_set(folder / f"{camera}.npz") for camera in ("Sony_IMX135", "Nikon_D810")]
    names = [camera.names for camera in cameras]
    np.testing.assert_array_equal(match_images(*names, folder / "same_scenes.csv"), [[2, 2]])


def test_a_file_of_intel_tau_without_part_or_number_is_named(root, tau):
    folder = tau / "dataset/TAU_C_5DSR"
    for kind in ("data", "labels"):
        path = folder / f"numpy_{kind}" / "C_5DSR_field_0999.npy"
        path.rename(path.with_name("C_5DSR_attic_0999.npy"))
    with pytest.raises(DataError, match="C_5DSR_attic_0999 does not end in a part of INTEL-TAU"):
        prepare(root, "intel-tau-thumbnails", tau)


def test_s20_equals_its_published_release(root, real_data):
    folder = real_data("s20_two_camera/Metadata_Image_Pairs.zip").parent
    cli.main(["data", "prepare", "s20", str(folder)])
    for actual, expected in zip(load_s20(), load_s20(folder), strict=True):
        np.testing.assert_array_equal(actual, expected)
