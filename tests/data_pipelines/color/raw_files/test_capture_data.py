"""Time and settings of a capture from tags of files written here."""

import struct

import numpy as np
import pytest

from everlight_data.color.raw_files.capture_data import read_capture
from everlight_data.color.raw_files.dng import DngTags, write_dng
from everlight_data.errors import DataError, MissingDataError

ASCII, SHORT, LONG, RATIONAL = 2, 3, 4, 5


def written(path, **changed):
    tags = {
        "exposure": (33434, RATIONAL, 1, (1, 250)),
        "iso": (34855, SHORT, 1, 800),
        "date": (36867, ASCII, 20, "2026:06:21 17:45:09"),
        "flash": (37385, SHORT, 1, 9),
    } | changed
    mosaic = np.full((32, 32), 500, np.uint16)
    stored = [tag for tag in tags.values() if tag]
    write_dng(path, mosaic, [0] * 4, 1000, tags=DngTags(extra=stored))
    return path


def test_tags_are_read(tmp_path):
    result = read_capture(written(tmp_path / "a.dng"))
    assert result.time == 17 * 3600 + 45 * 60 + 9
    assert result.day == (2026, 6, 21)
    assert (result.iso, result.exposure, result.flash) == (800, 1 / 250, True)
    dark = read_capture(written(tmp_path / "b.dng", flash=(37385, SHORT, 1, 16)))
    assert not dark.flash
    assert not read_capture(written(tmp_path / "c.dng", flash=None)).flash


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"date": None}, "DateTimeOriginal is None"),
        ({"date": (36867, ASCII, 20, "2026:06:21 25:45:09")}, "25:45:09"),
        ({"date": (36867, ASCII, 20, "0000:00:00 00:00:00")}, "0000:00:00"),
        ({"date": (36867, ASCII, 20, "2020:13:40 10:00:00")}, "2020:13:40"),
        ({"iso": None}, "ISOSpeedRatings is None"),
        ({"iso": (34855, SHORT, 1, 65535)}, "stands for a larger value"),
        ({"exposure": (33434, RATIONAL, 1, (0, 250))}, r"ExposureTime is 0\.0"),
    ],
)
def test_missing_and_damaged_tags_are_refused(tmp_path, changed, message):
    with pytest.raises(DataError, match=message):
        read_capture(written(tmp_path / "odd.dng", **changed))


def test_a_sensitivity_beyond_16_bits_has_a_tag_of_its_own(tmp_path):
    tags = {"iso": (34855, SHORT, 1, 65535), "index": (34866, LONG, 1, 102400)}
    assert read_capture(written(tmp_path / "a.dng", **tags)).iso == 102400


def test_no_photograph_is_refused(tmp_path):
    with pytest.raises(MissingDataError):
        read_capture(tmp_path / "none.dng")
    (tmp_path / "text.dng").write_text("no TIFF")
    with pytest.raises(DataError, match=r"text\.dng"):
        read_capture(tmp_path / "text.dng")


def test_tags_of_the_exif_directory_are_read(tmp_path):
    """The file is a TIFF of one pixel, whose first directory points to an EXIF directory."""
    date = b"2026:01:02 03:04:05\0"
    first, second, end = 8, 8 + 2 + 8 * 12 + 4, 8 + 2 + 8 * 12 + 4 + 2 + 4 * 12 + 4
    pixel = [(256, 4, 1, 1), (257, 4, 1, 1), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    pixel += [(273, 4, 1, end + 28), (279, 4, 1, 1), (34665, 4, 1, second)]
    settings = [(33434, 5, 1, end), (34855, 3, 1, 200), (36867, 2, 20, end + 8), (37385, 3, 1, 1)]
    content = b"II*\0" + struct.pack("<I", first)
    for tags in (pixel, settings):
        content += struct.pack("<H", len(tags))
        content += b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4)
    content += struct.pack("<II", 1, 60) + date + b"\x07"
    (tmp_path / "a.tif").write_bytes(content)
    result = read_capture(tmp_path / "a.tif")
    assert result == (3 * 3600 + 4 * 60 + 5, (2026, 1, 2), 200, 1 / 60, True)
