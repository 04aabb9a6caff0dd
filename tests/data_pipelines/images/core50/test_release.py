"""CORe50's release: the authors' counts, which files are frames, and what is refused."""

import csv
import zipfile
from itertools import starmap
from pathlib import Path

import imagecodecs
import numpy as np
import pytest

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.archives import Member
from everlight_data.images.core50.release import (
    FRAME_COUNTS,
    check_counts,
    decode_frame,
    list_frames,
    opened_release,
)

SOURCE = Path("core50_128x128")
FIRST = "s1/o1/C_01_01_000.png"


def test_frame_counts_are_the_authors(real_data):
    table = real_data("core50_sample/dataset_dims_Color128x128.tsv").read_text()
    rows = list(csv.reader(table.splitlines(), delimiter="\t"))
    official = np.array([[int(cell) for cell in row[1:]] for row in rows[1:] if row])
    np.testing.assert_array_equal(FRAME_COUNTS.T, official[:50, :11])
    np.testing.assert_array_equal(FRAME_COUNTS.sum(axis=1), official[50, :11])
    assert FRAME_COUNTS.sum() == official[50, 11] == 164_866


def test_frames_are_listed_in_order_and_other_files_counted():
    files = {
        "core50_128x128/s11/o50/C_11_50_007.png": 5,
        "core50_128x128/s2/o10/C_02_10_100.png": 6,
        "core50_128x128/s2/o9/C_02_09_299.png": 7,
        "core50_128x128/s2/o9/D_02_09_299.png": 1,
        "core50_128x128_depth/s2/o9/C_02_09_299.png": 1,
        "core50_350x350/s2/o9/C_02_09_299.png": 1,
        "__MACOSX/s2/o9/._C_02_09_299.png": 1,
        "paths.pkl": 1,
    }
    names, manifest = list_frames(list(starmap(Member, files.items())), SOURCE)
    expected = ["C_02_09_299.png", "C_02_10_100.png", "C_11_50_007.png"]
    assert [Path(name).name for name in names] == expected
    assert manifest.source == "core50_128x128"
    assert manifest.aside == {"depth": 2, "350x350": 1, "other": 2}
    result = [part.tolist() for part in manifest[1:-1]]
    assert result == [[1, 1, 10], [8, 9, 49], [299, 100, 7], [7, 6, 5]]
    counts = manifest.counts()
    assert counts.sum() == counts[1, 8] + counts[1, 9] + counts[10, 49] == 3


@pytest.mark.parametrize(
    "name",
    [
        *("s1/o1/C_02_01_000.png", "s1/o2/C_01_01_000.png", "s12/o1/C_12_01_000.png"),
        *("s1/o51/C_01_51_000.png", "s0/o1/C_00_01_000.png"),
    ],
)
def test_a_name_that_is_none_of_the_releases_is_refused(name):
    message = f"core50_128x128: copy/{name} is not a file name of CORe50"
    with pytest.raises(DataError, match=message):
        list_frames([Member(FIRST, 1), Member(f"copy/{name}", 1)], SOURCE)


def test_a_frame_that_is_there_twice_is_named():
    with pytest.raises(DataError, match=f"holds a frame twice, {FIRST} and copy/{FIRST}"):
        list_frames([Member(FIRST, 1), Member(f"copy/{FIRST}", 1)], SOURCE)


def test_contents_of_a_source_without_frames_are_named():
    message = (
        "no 128x128 frame.* 0 depth images, 1 of 350x350 and 2 other files. Download .*about 6 GB"
    )
    others = [Member("paths.pkl", 1), Member("labels.txt", 1)]
    with pytest.raises(MissingDataError, match=message):
        list_frames([Member(f"core50_350x350/{FIRST}", 1), *others], SOURCE)
    with pytest.raises(MissingDataError, match=r"Give the zip itself: core50_128x128/in/a\.zip"):
        list_frames([Member("in/b.zip", 1), Member("in/a.zip", 1), *others], SOURCE)


# ---- Counts


def test_missing_frames_are_named_with_session_object_and_counts():
    counts = FRAME_COUNTS.copy()
    counts[2, [0, 4, 5, 6, 8]] = [7, 0, 0, 0, 0]
    counts[10, 49] -= 1
    with pytest.raises(DataError) as caught:
        check_counts(counts, SOURCE, partial=False)
    assert (
        "core50_128x128 is incomplete, 163373 of 164866 frames: s3: o1 7 of 299, o5-o7 0 of 900, "
        "o9 0 of 300; s11: o50 299 of 300. " in str(caught.value)
    )


def test_many_missing_frames_are_reported_by_session():
    """Every other object of s1 lacks a frame, s2 all, and o3 to o50 of the rest two, except s11."""
    counts = FRAME_COUNTS.copy()
    counts[0, ::2] -= 1
    counts[1] = 0
    counts[2:10, 2:] -= 2
    with pytest.raises(DataError) as caught:
        check_counts(counts, SOURCE, partial=False)
    sizes = (14995, 14966, 14989, 14994, 14984, 14994, 14986)
    later = [f"s{s}: 96 of {n} missing, 48 objects short" for s, n in enumerate(sizes, 4)]
    assert str(caught.value) == (
        "core50_128x128 is incomplete, 149087 of 164866 frames: "
        "s1: 25 of 14989 missing, 25 objects short (o1, o3, o5, o7, o9, o11, ...); "
        "s2: 14986 of 14986 missing, 50 objects short (o1-o50); "
        "s3: 96 of 14992 missing, 48 objects short (o3-o50); "
        f"{'; '.join(later)}. Download the rest (core50_128x128.zip from "
        "vlomonaco.github.io/core50), or give partial (--partial) to use what is there."
    )


def test_a_complete_release_passes_and_a_partial_one_on_request():
    check_counts(FRAME_COUNTS, SOURCE, partial=False)
    check_counts(FRAME_COUNTS // 2, SOURCE, partial=True)


@pytest.mark.parametrize("partial", [False, True])
def test_more_frames_than_the_release_has_are_refused(partial):
    counts = FRAME_COUNTS.copy()
    counts[0, 1] = 297
    with pytest.raises(DataError, match="297 frames in s1/o2, but the release has 296"):
        check_counts(counts, SOURCE, partial)


# ---- Files


def picture(shape=(128, 128, 3), dtype=np.uint8):
    return imagecodecs.png_encode(np.full(shape, 90, dtype))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged or not the expected file"),
        (picture()[:-30], "is damaged or not the expected file"),
        (b"JFIF", "is damaged or not the expected file"),
        (
            picture((350, 350, 3)),
            r"has dtype uint8 and shape \(350, 350, 3\), not uint8 and \(128, 128, 3\)",
        ),
        (picture((128, 128)), r"has dtype uint8 and shape \(128, 128\)"),
        (picture((128, 128, 4)), r"has dtype uint8 and shape \(128, 128, 4\)"),
        (picture(dtype=np.uint16), r"has dtype uint16 and shape \(128, 128, 3\)"),
    ],
)
def test_a_damaged_frame_or_one_of_another_kind_is_named(content, message):
    with pytest.raises(DataError, match=f"core50_128x128: {FIRST} {message}"):
        decode_frame({FIRST: content}.get, SOURCE, FIRST)


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "core50_128x128.zip"
    with zipfile.ZipFile(path, "w") as written:
        written.writestr(FIRST, picture())
    return path


def test_a_zip_lists_and_reads_what_its_folder_does(archive, tmp_path):
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path / "folder")
    for source in (archive, tmp_path / "folder"):
        with opened_release(source) as (files, read):
            assert files == [(FIRST, len(picture()))]
            np.testing.assert_array_equal(decode_frame(read, source, FIRST), 90)
