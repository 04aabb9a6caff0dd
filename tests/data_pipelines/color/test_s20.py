"""The S20 two-camera set: small releases, damaged ones, and the released files."""

import zipfile

import numpy as np
import pytest
import scipy.io

from everlight_data.color import s20
from everlight_data.errors import DataError, MissingDataError
from tests.data_pipelines.color.s20_files import as_npy, release_pair


@pytest.fixture
def release(tmp_path):
    """Write six pairs as an archive, and their folds."""
    with zipfile.ZipFile(tmp_path / s20.ARCHIVE, "w") as archive:
        archive.mkdir("Metadata_Image_Pairs")
        for index in range(6):
            name = f"Metadata_Image_Pairs/RAW_{index:04}.npy"
            archive.writestr(name, as_npy(release_pair(index)))
    scipy.io.savemat(
        tmp_path / s20.FOLDS_FILE, {"idx_parts_no_rep": np.array([[5, 0], [3, 1], [2, 4]])}
    )
    return tmp_path


def unpack(release):
    archive = release / s20.ARCHIVE
    zipfile.ZipFile(archive).extractall(release)
    archive.unlink()
    return release / "Metadata_Image_Pairs"


@pytest.mark.parametrize("unpacked", [False, True])
def test_archive_and_unpacked_folder_give_the_same(release, unpacked):
    if unpacked:
        unpack(release)
    data = s20.load_s20(release)
    assert data.names == tuple(f"RAW_{index:04}" for index in range(6))
    np.testing.assert_array_equal(data.illuminant_main[4], [4.5, 5, 4.25])
    np.testing.assert_array_equal(data.illuminant_second[4], [4.5, 5, 4.5])
    assert [data.transform_image[4, 0, 0], data.transform_image_reverse[4, 0, 0]] == [5, 6]
    assert [data.transform_chart[4, 1, 1], data.transform_chart_reverse[4, 1, 1]] == [7, 8]
    assert [fold.tolist() for fold in data.folds] == [[5, 0], [3, 1], [2, 4]]
    assert {column.dtype for column in data[1:9]} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wb_gt_2": None}, r"RAW_0002\.npy has no 'wb_gt_2'"),
        ({"wb_gt_1": np.array([1.0, np.nan, 1.0])}, r"RAW_0002\.npy: 'wb_gt_1' is not \(3,\)"),
        ({"transform_image_1to2": np.eye(2)}, r"RAW_0002\.npy: 'transform_image_1to2'"),
    ],
)
def test_a_faulty_pair_is_named(release, change, message):
    pair = release_pair(2) | change
    path = unpack(release) / "RAW_0002.npy"
    path.write_bytes(as_npy({key: value for key, value in pair.items() if value is not None}))
    with pytest.raises(DataError, match=message):
        s20.load_s20(release)


def test_an_array_without_a_dictionary_is_named(release):
    np.save(unpack(release) / "RAW_0003.npy", np.eye(3))
    with pytest.raises(DataError, match=r"RAW_0003\.npy does not hold one dictionary"):
        s20.load_s20(release)


@pytest.mark.parametrize(
    ("folds", "message"),
    [
        ([[5, 0], [3, 1], [2, 5]], r"more than once: \[5\]; in no fold: \[4\]"),
        ([[5, 0], [3, 1], [2, 6]], r"outside the set: \[6\]; in no fold: \[4\]"),
    ],
)
def test_folds_that_do_not_part_the_set_are_refused(release, folds, message):
    scipy.io.savemat(release / s20.FOLDS_FILE, {"idx_parts_no_rep": np.array(folds)})
    with pytest.raises(DataError, match=message):
        s20.load_s20(release)


def test_a_file_without_folds_is_named(release):
    scipy.io.savemat(release / s20.FOLDS_FILE, {"something": np.eye(2)})
    with pytest.raises(DataError, match=r"no_rep\.mat has no variable idx_parts_no_rep"):
        s20.load_s20(release)


def test_an_empty_folder_and_none_are_named(tmp_path_factory, monkeypatch):
    with pytest.raises(MissingDataError, match="SamsungLabs/two-camera-white-balance"):
        s20.load_s20(tmp_path_factory.mktemp("empty"))
    monkeypatch.delenv("EVERLIGHT_DATA", raising=False)
    with pytest.raises(MissingDataError, match="EVERLIGHT_DATA is not set"):
        s20.load_s20()


def write_augmented(folder, count=12):
    """Write two copies of six pairs, as the authors' loader reads them: illuminants are columns."""
    with zipfile.ZipFile(folder / s20.AUGMENTED_ARCHIVE, "w") as archive:
        for index in range(count):
            pair = {"image_name_1": "", "image_name_2": ""}
            pair["wb_gt_1"] = pair["wb_gt_2"] = np.array([[0.5], [1], [0.25]]) + index
            pair["transform_image_1to2"] = np.eye(3) * (index + 1)
            archive.writestr(f"Metadata_Image_Pairs_Augment_99/RAW_{index:05}.npy", as_npy(pair))
    folds = np.array([[10, 11, 0, 1], [6, 7, 2, 3], [4, 5, 8, 9]])
    scipy.io.savemat(folder / s20.AUGMENTED_FOLDS, {"idx_parts": folds})


def test_the_released_reilluminations_are_read_as_the_authors_loader_does(release):
    assert s20.load_augmented_s20(6, release) is None
    write_augmented(release)
    data = s20.load_augmented_s20(6, release)
    assert data.copies == 2
    assert data.transforms.shape == (12, 3, 3)
    np.testing.assert_array_equal(data.transforms[:, 1, 1], np.arange(12) + 1)
    np.testing.assert_array_equal(data.illuminants[5], [5.5, 6, 5.25])
    # The folds of copies are those of the pairs.
    pairs = [{int(row) // data.copies for row in fold} for fold in data.folds]
    assert pairs == [set(fold.tolist()) for fold in s20.load_s20(release).folds]


def test_reilluminations_that_do_not_divide_or_have_no_folds_are_named(release):
    write_augmented(release, 11)
    with pytest.raises(DataError, match="11 files, not a multiple of 6 pairs"):
        s20.load_augmented_s20(6, release)
    write_augmented(release)
    (release / s20.AUGMENTED_FOLDS).unlink()
    with pytest.raises(MissingDataError, match=r"s20_idx_3_parts\.mat does not exist"):
        s20.load_augmented_s20(6, release)


@pytest.fixture(scope="module")
def released(real_data):
    return s20.load_s20(real_data("s20_two_camera"))


def test_the_release_has_162_pairs_in_three_folds_of_54(released):
    assert released.names[0] == "RAW_0000"
    assert len(released.names) == len(released.illuminant_main) == 162
    assert [fold.shape for fold in released.folds] == [(54,)] * 3
    np.testing.assert_array_equal(np.sort(np.concatenate(released.folds)), np.arange(162))


def test_the_released_folds_of_copies_are_those_of_the_pairs(released, real_data):
    folds = scipy.io.loadmat(real_data("s20_two_camera") / s20.AUGMENTED_FOLDS)["idx_parts"]
    for copies, fold in zip(folds, released.folds, strict=True):
        np.testing.assert_array_equal(np.unique(copies // 100), np.sort(fold))


def mean_angle(estimates, truth):
    """Return the mean angle in degrees and float64."""
    cosine = (estimates * truth).sum(1)
    cosine /= np.linalg.norm(estimates, axis=1) * np.linalg.norm(truth, axis=1)
    return np.degrees(np.arccos(np.minimum(cosine, 1))).mean()


def test_the_phones_own_white_balance_is_of_the_main_image(released):
    """Its mean error is 2.9 degrees; that of the second camera is 9 degrees."""

    truth = released.illuminant_main
    assert mean_angle(released.as_shot_neutral_main, truth) == pytest.approx(2.87, abs=0.01)
    assert mean_angle(released.as_shot_neutral_second, truth) > 4


def test_rows_of_the_released_transforms_sum_to_one(released):
    """The sums show that the pixels were divided by their sums before the fit."""
    for transform in released[5:9]:
        np.testing.assert_allclose(transform.sum(-1), 1, atol=0.01)


@pytest.mark.parametrize(
    ("source", "target", "transform"),
    [
        ("illuminant_main", "illuminant_second", "transform_chart"),
        ("illuminant_second", "illuminant_main", "transform_chart_reverse"),
    ],
)
def test_the_released_chart_transforms_carry_one_illuminant_to_the_other(
    released, source, target, transform
):
    """Colours are rows, camera 1 to 2; read otherwise the mean error is above 8 degrees."""
    illuminant = getattr(released, source).astype(np.float64)
    shares = illuminant / illuminant.sum(1, keepdims=True)
    mapped = np.einsum("ni,nij->nj", shares, getattr(released, transform))
    assert mean_angle(mapped, getattr(released, target)) < 0.7
