"""CORe50: the 90 real frames at hand, and small releases in the same layout."""

import csv
import io
import zipfile

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from data_pipelines import core50, core50_release
from data_pipelines.core50 import (
    CATEGORIES,
    OBJECTS,
    category_of,
    load_core50,
    prepare_core50,
)
from data_pipelines.errors import DataError, MissingDataError

# ---- Facts and real frames


def test_frame_counts_are_the_authors(real_data):
    table = real_data("core50_sample/dataset_dims_Color128x128.tsv").read_text()
    rows = list(csv.reader(table.splitlines(), delimiter="\t"))
    official = np.array([[int(cell) for cell in row[1:]] for row in rows[1:] if row])
    counts = core50_release.FRAME_COUNTS
    np.testing.assert_array_equal(counts.T, official[:50, :11])
    np.testing.assert_array_equal(counts.sum(axis=1), official[50, :11])
    assert counts.sum() == official[50, 11] == 164_866


def test_object_names_are_the_authors_and_five_share_a_category(real_data):
    labels = real_data("core50_sample/core50_labels.txt").read_text().split()
    assert list(OBJECTS) == labels
    of_object = [CATEGORIES[category] for category in category_of(np.arange(50))]
    assert of_object == [label.rstrip("12345") for label in labels]


@pytest.fixture(scope="module")
def sample(real_data, tmp_path_factory):
    """The real frames' zip and the folder where they are prepared."""
    source = real_data("core50_sample/core50_128x128_sample.zip")
    folder = tmp_path_factory.mktemp("prepared")
    return source, folder, prepare_core50(source, folder, partial=True)


def test_real_frames_are_those_that_pillow_decodes_in_the_order_of_their_names(sample):
    source, folder, manifest = sample
    found = load_core50(folder=folder, partial=True)
    assert isinstance(found.images, np.memmap)
    assert found.images.shape == (90, 128, 128, 3)
    assert manifest.aside == {"depth": 0, "350x350": 10, "other": 0}
    assert manifest.counts().sum() == 90
    assert found.name == "CORe50, 90 of 164,866 frames"
    with zipfile.ZipFile(source) as archive:
        ids = list(zip(found.session, found.object, found.frame, strict=True))
        assert ids == sorted(ids)
        for (s, o, f), image in zip(ids, found.images, strict=True):
            name = f"s{s + 1}/o{o + 1}/C_{s + 1:02}_{o + 1:02}_{f:03}.png"
            np.testing.assert_array_equal(image, Image.open(io.BytesIO(archive.read(name))))


def test_a_folder_gives_the_bytes_that_its_zip_gives(sample, tmp_path):
    source, folder, _ = sample
    with zipfile.ZipFile(source) as archive:
        archive.extractall(tmp_path / "core50_128x128")
    prepare_core50(tmp_path, tmp_path / "prepared", partial=True)
    expected = (folder / "images_128.npy").read_bytes()
    assert (tmp_path / "prepared" / "images_128.npy").read_bytes() == expected


def test_small_images_are_means_of_blocks_and_computed_once(sample):
    _, folder, _ = sample
    whole = load_core50(folder=folder, partial=True).images
    small = load_core50(32, folder, partial=True).images
    means = np.asarray(whole, np.float64).reshape(90, 32, 4, 32, 4, 3).mean(axis=(2, 4))
    np.testing.assert_allclose(small, means, atol=0.5)
    written = (folder / "images_32.npy").stat().st_mtime_ns
    again = load_core50(32, folder, partial=True).images
    assert isinstance(again, np.memmap)
    assert (folder / "images_32.npy").stat().st_mtime_ns == written


def test_the_incomplete_sample_is_refused_with_what_it_lacks(sample, tmp_path):
    source, folder, _ = sample
    message = r"is incomplete, 90 of 164866 frames: s1: o1-o2 0 of 596, o3 1 of 300, .*; s11: "
    with pytest.raises(DataError, match=message):
        prepare_core50(source, tmp_path)
    with pytest.raises(DataError, match=message):
        load_core50(folder=folder)
    assert not list(tmp_path.iterdir())


# ---- A release of 12 frames, whole in that the table of counts is its own


def picture(number, shape=(128, 128, 3), dtype=np.uint8):
    return imagecodecs.png_encode(np.full(shape, number, dtype))


# Files stand in another order than the frames, and numbers have gaps.
IDS = [(11, 50, 7), (1, 2, 3), *((1, 1, frame) for frame in (9, 0, 4, 5, 6, 7, 20, 299, 1, 100))]


def name_of(session, number, frame):
    return f"s{session}/o{number}/C_{session:02}_{number:02}_{frame:03}.png"


@pytest.fixture
def release(tmp_path, monkeypatch):
    """Its folder; each image holds its place in IDS everywhere."""
    counts = np.zeros((11, 50), int)
    for session, number, _ in IDS:
        counts[session - 1, number - 1] += 1
    for module in (core50, core50_release):
        monkeypatch.setattr(module, "FRAME_COUNTS", counts)
    monkeypatch.setattr(core50, "BLOCK", 4)
    folder = tmp_path / "core50_128x128"
    for place, ids in enumerate(IDS):
        path = folder / name_of(*ids)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(place))
    return folder


@pytest.fixture
def decoded(monkeypatch):
    """Names of the decoded frames, as they are; `stop_at` is one at which a run is interrupted."""

    class Decoded(list):
        stop_at = None

    names, decode = Decoded(), core50.decode_frame

    def recorded(read, source, name):
        if name == names.stop_at:
            raise KeyboardInterrupt
        names.append(name)
        return decode(read, source, name)

    monkeypatch.setattr(core50, "decode_frame", recorded)
    return names


def prepared_bytes(folder):
    assert {path.name for path in folder.iterdir()} == {"images_128.npy", "manifest.npz"}
    return [(folder / file).read_bytes() for file in ("images_128.npy", "manifest.npz")]


def test_a_whole_release_is_prepared_in_the_order_of_session_object_and_frame(release, tmp_path):
    prepare_core50(release, tmp_path / "prepared")
    found = load_core50(folder=tmp_path / "prepared")
    assert found.name == "CORe50"
    expected = sorted(IDS)
    ids = np.stack([found.session + 1, found.object + 1, found.frame], axis=1)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(found.images[:, 5, 6, 1], [IDS.index(ids) for ids in expected])
    assert (found.object_names, found.category_names) == (OBJECTS, CATEGORIES)
    assert not found.images.flags.writeable


@pytest.mark.parametrize("stop_at", [1, 5, 11])
def test_a_stopped_preparation_goes_on_to_the_same_bytes(release, decoded, tmp_path, stop_at):
    prepare_core50(release, tmp_path / "straight")
    folder = tmp_path / "prepared"
    names = [name_of(*ids) for ids in sorted(IDS)]
    decoded.stop_at = names[stop_at]
    with pytest.raises(KeyboardInterrupt):
        prepare_core50(release, folder)
    with pytest.raises(MissingDataError, match="not prepared there, or not to its end"):
        load_core50(folder=folder)
    done = stop_at // 4 * 4
    # What a kill left half written behind the last note is written again.
    part = np.lib.format.open_memmap(folder / "images_128.part", "r+")
    part[done:] = 255
    part.flush()
    decoded.stop_at = None
    decoded.clear()
    prepare_core50(release, folder)
    assert sorted(decoded) == sorted(names[done:])
    assert prepared_bytes(folder) == prepared_bytes(tmp_path / "straight")


def test_a_second_preparation_decodes_nothing(release, decoded, tmp_path):
    first = prepare_core50(release, tmp_path / "prepared")
    decoded.clear()
    second = prepare_core50(release, tmp_path / "prepared")
    assert decoded == []
    assert all(map(np.array_equal, first, second))


def test_other_frames_in_the_source_start_anew(release, decoded, tmp_path):
    late = release / name_of(*IDS[0])
    content = late.read_bytes()
    late.unlink()
    folder = tmp_path / "prepared"
    prepare_core50(release, folder, partial=True)
    assert load_core50(32, folder, partial=True).name == "CORe50, 11 of 12 frames"
    late.write_bytes(content)
    prepare_core50(release, folder)
    assert len(decoded) == 11 + 12
    assert len(load_core50(32, folder).images) == 12
    np.testing.assert_array_equal(load_core50(32, folder).images[-1], 0)


def test_depth_and_large_frames_beside_are_counted_and_left(release, tmp_path):
    beside = {
        "s1/o1/D_01_01_000.png": b"depth",
        "depth/s1/o1/C_01_01_001.png": b"depth",
        "core50_350x350/s1/o1/C_01_01_000.png": b"large",
        "__MACOSX/s1/o1/._C_01_01_000.png": b"other",
        "paths.pkl": b"other",
    }
    for name, content in beside.items():
        (release / name).parent.mkdir(parents=True, exist_ok=True)
        (release / name).write_bytes(content)
    manifest = prepare_core50(release, tmp_path / "prepared")
    assert manifest.aside == {"depth": 2, "350x350": 1, "other": 2}
    assert len(manifest.frame) == 12


def test_the_default_folder_lies_below_the_data_root(release, tmp_path, monkeypatch):
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    with pytest.raises(MissingDataError, match=r"core50 does not exist.*6 GB.*prepare_core50"):
        load_core50()
    prepare_core50(release, tmp_path / "core50")
    assert len(load_core50(16).images) == 12


# ---- Refusals


def test_missing_frames_are_named_with_session_object_and_counts():
    counts = core50_release.FRAME_COUNTS.copy()
    counts[2, [0, 4, 5, 6, 8]] = [7, 0, 0, 0, 0]
    counts[10, 49] -= 1
    with pytest.raises(DataError) as caught:
        core50_release.check_counts(counts, "here", partial=False)
    assert (
        "here is incomplete, 163373 of 164866 frames: s3: o1 7 of 299, o5-o7 0 of 900, "
        "o9 0 of 300; s11: o50 299 of 300. " in str(caught.value)
    )
    core50_release.check_counts(counts, "here", partial=True)
    core50_release.check_counts(core50_release.FRAME_COUNTS, "here", partial=False)


def test_more_frames_than_the_release_has_are_refused(release, tmp_path):
    (release / name_of(1, 2, 4)).write_bytes(picture(0))
    with pytest.raises(DataError, match="2 frames in s1/o2, but the release has 1"):
        prepare_core50(release, tmp_path / "prepared", partial=True)


FAULTY = name_of(1, 1, 20)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged or no PNG"),
        (picture(3)[:-30], "is damaged or no PNG"),
        (b"JFIF", "is damaged or no PNG"),
        (picture(3, (350, 350, 3)), r"is uint8 of \(350, 350, 3\), not uint8 of \(128, 128, 3\)"),
        (picture(3, (128, 128)), r"is uint8 of \(128, 128\)"),
        (picture(3, dtype=np.uint16), r"is uint16 of \(128, 128, 3\)"),
    ],
)
def test_a_damaged_frame_or_one_of_another_size_is_named(release, tmp_path, content, message):
    (release / FAULTY).write_bytes(content)
    with pytest.raises(DataError, match=f"core50_128x128: {FAULTY} {message}"):
        prepare_core50(release, tmp_path / "prepared")


def test_a_damaged_frame_in_a_zip_is_named_and_one_put_right_is_read(release, tmp_path):
    path = tmp_path / "core50_128x128.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for ids in IDS:
            archive.write(release / name_of(*ids), f"core50_128x128/{name_of(*ids)}")
        info = archive.getinfo(f"core50_128x128/{FAULTY}")
    whole = path.read_bytes()
    at = info.header_offset + 30 + len(info.filename) + info.file_size // 2
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(DataError, match=f"{FAULTY} is damaged or no PNG.*CRC"):
        prepare_core50(path, tmp_path / "prepared")
    path.write_bytes(whole)
    prepare_core50(path, tmp_path / "prepared")
    path.write_bytes(whole[:-40])
    with pytest.raises(DataError, match=r"core50_128x128\.zip is no whole zip"):
        prepare_core50(path, tmp_path / "prepared")


@pytest.mark.parametrize(
    "name", ["s1/o1/C_02_01_000.png", "s1/o2/C_01_01_000.png", "s12/o1/C_12_01_000.png"]
)
def test_a_name_that_is_none_of_the_releases_is_refused(release, tmp_path, name):
    (release / name).parent.mkdir(parents=True, exist_ok=True)
    (release / name).write_bytes(picture(0))
    with pytest.raises(DataError, match=f"{name} is no name of CORe50"):
        prepare_core50(release, tmp_path / "prepared")


def test_a_frame_that_is_there_twice_is_named(release, tmp_path):
    (release / "copy" / FAULTY).parent.mkdir(parents=True)
    (release / "copy" / FAULTY).write_bytes(picture(0))
    with pytest.raises(DataError, match=rf"a frame twice.*{FAULTY}"):
        prepare_core50(release, tmp_path / "prepared")


def test_a_source_without_frames_is_told_from_one_that_is_not_there(tmp_path):
    with pytest.raises(
        MissingDataError, match=r"nowhere does not exist.*core50_128x128\.zip.*6 GB"
    ):
        prepare_core50(tmp_path / "nowhere", tmp_path / "prepared")
    large = tmp_path / "source" / "core50_350x350" / name_of(1, 1, 1)
    large.parent.mkdir(parents=True)
    large.write_bytes(b"")
    with pytest.raises(MissingDataError, match=r"holds no 128x128 frame.*'350x350': 1"):
        prepare_core50(tmp_path / "source", tmp_path / "prepared")


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(
    release, tmp_path, monkeypatch
):
    monkeypatch.setattr(core50.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 9}))
    with pytest.raises(DataError, match=r"images_128\.npy needs 0\.0 GB more"):
        prepare_core50(release, tmp_path / "prepared")


@pytest.mark.parametrize("side", [0, -1, 48, 256])
def test_a_side_that_does_not_divide_128_is_refused(side):
    with pytest.raises(DataError, match=f"side={side}; give a divisor of 128"):
        load_core50(side)


def test_damaged_prepared_files_are_named(release, tmp_path):
    folder = tmp_path / "prepared"
    prepare_core50(release, folder)
    np.save(folder / "images_32.npy", np.zeros((11, 32, 32, 3), np.uint8))
    with pytest.raises(DataError, match=r"images_32\.npy is uint8 of \(11, .* names 12 frames"):
        load_core50(32, folder)
    images, manifest = folder / "images_128.npy", folder / "manifest.npz"
    images.write_bytes(images.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"images_128\.npy is damaged"):
        load_core50(folder=folder)
    manifest.write_bytes(manifest.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"manifest\.npz is damaged or another file"):
        load_core50(folder=folder)
