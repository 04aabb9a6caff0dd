"""CORe50: the 90 real frames that are available, and small releases in the same layout."""

import io
import zipfile

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from everlight_data.errors import DataError, MissingDataError
from everlight_data.images.core50 import blocks
from everlight_data.images.core50 import prepared as core50
from everlight_data.images.core50 import release as core50_release
from everlight_data.images.core50.prepared import (
    CATEGORY_NAMES,
    OBJECT_NAMES,
    load_core50,
    object_category,
    prepare_core50,
)

# ---- Facts and real frames


def test_object_names_are_the_authors_and_five_share_a_category(real_data):
    labels = real_data("core50_sample/core50_labels.txt").read_text().split()
    assert list(OBJECT_NAMES) == labels
    of_object = [CATEGORY_NAMES[category] for category in object_category(np.arange(50))]
    assert of_object == [label.rstrip("12345") for label in labels]


@pytest.fixture(scope="module")
def sample(real_data, tmp_path_factory):
    """Return the real frames' zip, the folder where they are prepared, and the result."""
    source = real_data("core50_sample/core50_128x128_sample.zip")
    folder = tmp_path_factory.mktemp("prepared")
    return source, folder, prepare_core50(source, folder, partial=True)


def test_real_frames_are_those_that_pillow_decodes_in_the_order_of_their_names(sample):
    source, folder, manifest = sample
    result = load_core50(folder=folder, partial=True)
    assert isinstance(result.images, np.memmap)
    assert result.images.shape == (90, 128, 128, 3)
    assert manifest.aside == {"depth": 0, "350x350": 10, "other": 0}
    assert manifest.counts().sum() == 90
    assert result.name == "CORe50, 90 of 164,866 frames"
    with zipfile.ZipFile(source) as archive:
        ids = list(zip(result.session, result.object, result.frame, strict=True))
        assert ids == sorted(ids)
        for (s, o, f), image in zip(ids, result.images, strict=True):
            name = f"s{s + 1}/o{o + 1}/C_{s + 1:02}_{o + 1:02}_{f:03}.png"
            np.testing.assert_array_equal(image, Image.open(io.BytesIO(archive.read(name))))


def test_a_folder_gives_the_bytes_that_its_zip_gives(sample, tmp_path):
    source, folder, _ = sample
    with zipfile.ZipFile(source) as archive:
        archive.extractall(tmp_path / "core50_128x128")
    prepare_core50(str(tmp_path), str(tmp_path / "prepared"), partial=True)
    assert len(load_core50(folder=str(tmp_path / "prepared"), partial=True).images) == 90
    expected = (folder / "images_128.npy").read_bytes()
    assert (tmp_path / "prepared" / "images_128.npy").read_bytes() == expected


def test_small_images_are_means_of_blocks_and_computed_once(sample):
    _, folder, _ = sample
    full = load_core50(folder=folder, partial=True).images
    small = load_core50(32, folder, partial=True).images
    means = np.asarray(full, np.float64).reshape(90, 32, 4, 32, 4, 3).mean(axis=(2, 4))
    np.testing.assert_allclose(small, means, atol=0.5)
    written = (folder / "images_32.npy").stat().st_mtime_ns
    again = load_core50(32, folder, partial=True).images
    assert isinstance(again, np.memmap)
    assert (folder / "images_32.npy").stat().st_mtime_ns == written


def test_the_incomplete_sample_is_refused_with_what_it_lacks(sample, tmp_path):
    source, folder, _ = sample
    message = r"90 of 164866 frames: s1: 14979 of 14989 missing, 50 objects.*; s11: .*--partial"
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
    """Write a release's folder, in which each image has its place in IDS as its value."""
    counts = np.zeros((11, 50), int)
    for session, number, _ in IDS:
        counts[session - 1, number - 1] += 1
    for module in (core50, core50_release):
        monkeypatch.setattr(module, "FRAME_COUNTS", counts)
    monkeypatch.setattr(blocks, "BLOCK", 4)
    folder = tmp_path / "core50_128x128"
    for place, ids in enumerate(IDS):
        path = folder / name_of(*ids)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(place))
    return folder


@pytest.fixture
def decoded(monkeypatch):
    """List the names of decoded frames; a run is interrupted at the frame `stop_at`."""

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
    stored = {"images_128.npy", "images_128.crc32", "manifest.npz", ".lock"}
    assert {path.name for path in folder.iterdir()} == stored
    return [(folder / file).read_bytes() for file in ("images_128.npy", "manifest.npz")]


def test_a_whole_release_is_prepared_in_the_order_of_session_object_and_frame(release, tmp_path):
    prepare_core50(release, tmp_path / "prepared")
    result = load_core50(folder=tmp_path / "prepared")
    assert result.name == "CORe50"
    expected = sorted(IDS)
    ids = np.stack([result.session + 1, result.object + 1, result.frame], axis=1)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(result.images[:, 5, 6, 1], [IDS.index(ids) for ids in expected])
    assert (result.object_names, result.category_names) == (OBJECT_NAMES, CATEGORY_NAMES)
    assert not result.images.flags.writeable


@pytest.mark.parametrize("stop_at", [1, 5, 11])
def test_a_stopped_preparation_goes_on_to_the_same_bytes(release, decoded, tmp_path, stop_at):
    prepare_core50(release, tmp_path / "straight")
    folder = tmp_path / "prepared"
    names = [name_of(*ids) for ids in sorted(IDS)]
    decoded.stop_at = names[stop_at]
    with pytest.raises(KeyboardInterrupt):
        prepare_core50(release, folder)
    with pytest.raises(MissingDataError, match="not prepared there, or incompletely"):
        load_core50(folder=folder)
    done = stop_at // 4 * 4
    # A part that a kill left half written behind the last note is written again.
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


def test_other_frames_in_the_source_restart_the_preparation(release, decoded, tmp_path):
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


def test_the_default_folder_lies_below_the_data_root(release, tmp_path, monkeypatch):
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    with pytest.raises(MissingDataError, match=r"core50 does not exist.*prepare.*6 GB.*8.1 GB"):
        load_core50()
    prepare_core50(release, tmp_path / "core50")
    assert len(load_core50(16).images) == 12


# ---- Refusals


def test_frames_that_are_damaged_or_too_many_are_refused_and_read_once_put_right(release, tmp_path):
    faulty, more = release / name_of(1, 1, 20), release / name_of(1, 2, 4)
    content = faulty.read_bytes()
    faulty.write_bytes(content[:-30])
    with pytest.raises(DataError, match=r"core50_128x128: s1/o1/C_01_01_020\.png is damaged"):
        prepare_core50(release, tmp_path / "prepared")
    more.write_bytes(content)
    with pytest.raises(DataError, match="2 frames in s1/o2, but the release has 1"):
        prepare_core50(release, tmp_path / "prepared", partial=True)
    more.unlink()
    faulty.write_bytes(content)
    assert prepare_core50(release, tmp_path / "prepared").counts()[0, :2].tolist() == [10, 1]


def test_a_disk_that_is_too_small_is_reported_before_anything_is_written(
    release, tmp_path, monkeypatch
):
    usage = type("Usage", (), {"free": 9})
    monkeypatch.setattr("everlight_data.writing.shutil.disk_usage", lambda path: usage)
    with pytest.raises(DataError, match=r"images_128\.npy: 1\.6 MB are needed .*0 kB are"):
        prepare_core50(release, tmp_path / "prepared")
    assert [path.name for path in (tmp_path / "prepared").iterdir()] == [".lock"]


@pytest.mark.parametrize("side", [0, -1, 48, 256])
def test_a_side_that_does_not_divide_128_is_refused(side):
    with pytest.raises(DataError, match=f"--side {side}; give a divisor of 128"):
        load_core50(side)


def test_damaged_prepared_files_are_named(release, tmp_path):
    folder = tmp_path / "prepared"
    prepare_core50(release, folder)
    images, manifest = folder / "images_128.npy", folder / "manifest.npz"
    full = images.read_bytes()
    images.write_bytes(full[:-1])
    with pytest.raises(DataError, match=r"images_128\.npy is damaged .*only damaged parts"):
        load_core50(folder=folder)
    np.save(images, np.zeros((11, 128, 128, 3), np.uint8))
    with pytest.raises(
        DataError, match=r"images_128\.npy has dtype uint8 and shape \(11, .* lists 12 frames"
    ):
        load_core50(folder=folder)
    images.write_bytes(full)
    manifest.write_bytes(manifest.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"manifest\.npz has changed since it was written"):
        load_core50(folder=folder)


def damage(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 16
    path.write_bytes(content)


def test_a_flipped_bit_of_a_prepared_file_is_found_and_its_block_alone_read_again(
    release, decoded, tmp_path
):
    folder = tmp_path / "prepared"
    prepare_core50(release, folder)
    straight = prepared_bytes(folder)
    size, generator = len(straight[0]), np.random.default_rng(0)
    for place in generator.integers(0, size, 20):
        damage(folder / "images_128.npy", place)
        with pytest.raises(DataError, match=r"images_128\.npy is damaged"):
            load_core50(folder=folder)
        decoded.clear()
        prepare_core50(release, folder)
        # The header belongs to all of the three blocks.
        assert len(decoded) == (4 if place >= 128 else 12)
        assert prepared_bytes(folder) == straight
    for place in range(0, len(straight[1]), 7):
        damage(folder / "manifest.npz", place)
        with pytest.raises(DataError, match=r"manifest\.npz"):
            load_core50(folder=folder)
        damage(folder / "manifest.npz", place)


def test_damaged_smaller_images_are_made_again(release, tmp_path):
    folder = tmp_path / "prepared"
    prepare_core50(release, folder)
    expected = np.array(load_core50(32, folder).images)
    damage(folder / "images_32.npy", 20_000)
    np.testing.assert_array_equal(load_core50(32, folder).images, expected)


@pytest.mark.parametrize("claim", ["[1, 2, 3]", "999999", "-5", "", "[null]", "\xff", "{}"])
def test_notes_of_half_written_files_are_not_trusted(release, tmp_path, claim):
    """A note beside a part of black frames calls them done."""
    prepare_core50(release, tmp_path / "straight")
    folder = tmp_path / "prepared"
    prepare_core50(release, folder)
    full = (folder / "images_128.npy").read_bytes()
    (folder / "images_128.npy").unlink()
    for length in (0, 5_000, 128 + 7 * 128 * 128 * 3):
        (folder / "images_128.part").write_bytes(full[:length])
        (folder / "images_128.crc32").write_text(claim, encoding="latin1")
        prepare_core50(release, folder)
        assert prepared_bytes(folder) == prepared_bytes(tmp_path / "straight")
        (folder / "images_128.npy").unlink()


def test_a_refusal_before_the_first_block_leaves_nothing(release, tmp_path):
    (release / name_of(*sorted(IDS)[0])).write_bytes(b"no PNG")
    with pytest.raises(DataError, match="is damaged or not the expected file"):
        prepare_core50(release, tmp_path / "prepared")
    assert [path.name for path in (tmp_path / "prepared").iterdir()] == [".lock"]


def test_a_frame_that_unpacks_to_gigabytes_is_refused_before_it_does(release, tmp_path):
    """The files are a deflated member of zeros, and a PNG that claims 65,535 x 65,535 pixels."""
    faulty = release / name_of(1, 1, 20)
    content = faulty.read_bytes()
    faulty.write_bytes(content[:16] + b"\x00\x00\xff\xff" * 2 + content[24:])
    with pytest.raises(DataError, match=r"C_01_01_020\.png is damaged.*65535x65535 pixels"):
        prepare_core50(release, tmp_path / "prepared")
    faulty.unlink()
    archive = tmp_path / "core50_128x128.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(release.rglob("*.png")):
            packed.write(path, path.relative_to(release))
        packed.writestr(name_of(1, 1, 20), bytes(50_000_000))
    with pytest.raises(DataError, match=r"C_01_01_020\.png claims 50,000,000 bytes, more than"):
        prepare_core50(archive, tmp_path / "prepared")
