"""Readings of a DNG's mosaic by its tags, against the specification's sums in float64."""

import struct

import numpy as np
import pytest
import tifffile

from everlight_data.color.raw_files.dng import (
    LONG,
    RATIONAL,
    SHORT,
    SIGNED_RATIONAL,
    DngTags,
    rationals,
)
from everlight_data.color.raw_files.dng import write_dng as write_mosaic
from everlight_data.color.raw_files.dng_mosaic import LevelArguments
from everlight_data.color.raw_files.dng_tags import raw_directories
from everlight_data.color.raw_files.photos import stated_warnings
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.errors import DataError
from tests.refusals import refused

COLOR = np.array([0.3, 0.5, 0.2])
HEIGHT, WIDTH = 30, 44
WHITE = 16383
BYTE, UNDEFINED = 1, 7
QUAD = b"\0\0\1\1\0\0\1\1\1\1\2\2\1\1\2\2"
RGGB_TWICE = b"\0\1\0\1\1\2\1\2\0\1\0\1\1\2\1\2"


def colors_of(height=HEIGHT, width=WIDTH):
    """Return the linear value of each photosite of an RGGB sensor that sees one colour."""
    return np.tile([[COLOR[0], COLOR[1]], [COLOR[1], COLOR[2]]], (height // 2, width // 2))


def mosaic_over(black, height=HEIGHT, width=WIDTH, white=WHITE):
    """Return sensor values over a map of black levels."""
    return np.uint16(np.round(black + colors_of(height, width) * (white - black)))


def write(path, mosaic, *tags, white=WHITE):
    write_mosaic(path, mosaic, [0] * 4, white, tags=DngTags(extra=tags))
    return path


def rational_tag(code, values, kind=RATIONAL):
    return (code, kind, np.size(values), rationals(np.asarray(values, float)))


def pattern_tags(pattern, kind=RATIONAL):
    pattern = np.asarray(pattern, float)
    if kind == RATIONAL:
        levels = rational_tag(50714, pattern)
    else:
        levels = (50714, kind, pattern.size, tuple(pattern.astype(int).ravel().tolist()))
    return (50713, SHORT, 2, pattern.shape), levels


def expect_color(photo, tolerance=2e-4):
    expected = np.broadcast_to(COLOR, photo.image.shape)
    np.testing.assert_allclose(photo.image, expected, atol=tolerance)


@pytest.mark.parametrize("kind", [SHORT, LONG, RATIONAL])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (1, 2), (4, 4), (3, 5), (6, 2), (8, 8)])
def test_black_levels_repeat_in_blocks_of_any_size(tmp_path, rng, shape, kind):
    pattern = rng.integers(20, 3000, shape)
    tiled = np.tile(pattern, (HEIGHT, WIDTH))[:HEIGHT, :WIDTH]
    path = write(tmp_path / "a.dng", mosaic_over(tiled), *pattern_tags(pattern, kind))
    photo = read_raw(path)
    expect_color(photo)
    parts = [tiled[0::2, 0::2], tiled[0::2, 1::2], tiled[1::2, 1::2], tiled[1::2, 0::2]]
    np.testing.assert_allclose(photo.black_level, [part.mean() for part in parts], rtol=1e-6)


def test_rows_and_columns_add_to_the_black_level(tmp_path, rng):
    pattern = np.array([[500, 520], [540, 560]])
    rows, columns = rng.integers(-90, 90, HEIGHT) / 4, rng.integers(0, 900, WIDTH) / 8
    black = np.tile(pattern, (HEIGHT // 2, WIDTH // 2)) + rows[:, None] + columns
    tags = (
        *pattern_tags(pattern),
        rational_tag(50715, columns, SIGNED_RATIONAL),
        rational_tag(50716, rows, SIGNED_RATIONAL),
    )
    expect_color(read_raw(write(tmp_path / "a.dng", mosaic_over(black), *tags)))
    only = tags[:2] + tags[3:]
    black = np.tile(pattern, (HEIGHT // 2, WIDTH // 2)) + rows[:, None]
    expect_color(read_raw(write(tmp_path / "b.dng", mosaic_over(black), *only)))


def test_fractions_of_a_black_level_count(tmp_path):
    """A dark 8-bit sensor's level of 63 for 63.99 would give r/g 0.64 instead of 0.6."""
    black, white = 63.99, 255
    values = np.full((HEIGHT, WIDTH), 74)
    values[::2, ::2], values[1::2, 1::2] = 70, 72
    path = write(tmp_path / "a.dng", np.uint16(values), *pattern_tags([[black]]), white=white)
    photo = read_raw(path)
    red, green = photo.image[5, 5, :2]
    np.testing.assert_allclose(red / green, (70 - black) / (74 - black), rtol=1e-5)
    np.testing.assert_allclose(photo.black_level, 63.99, rtol=1e-6)


def test_patterns_begin_at_the_active_area(tmp_path, rng):
    top, left, bottom, right = 3, 5, 25, 41
    pattern, height, width = rng.integers(50, 2000, (4, 3)), bottom - top, right - left
    rows, columns = rng.integers(0, 50, height), rng.integers(0, 50, width)
    black = np.tile(pattern, (height, width))[:height, :width] + rows[:, None] + columns
    mosaic = np.full((HEIGHT, WIDTH), 9000, np.uint16)
    mosaic[top:bottom, left:right] = mosaic_over(black, height, width)
    tags = (
        *pattern_tags(pattern),
        rational_tag(50715, columns, SIGNED_RATIONAL),
        rational_tag(50716, rows, SIGNED_RATIONAL),
        (50829, LONG, 4, (top, left, bottom, right)),
        # Lit pixels outside do not replace the level that is stated.
        (50830, LONG, 4, (0, 0, HEIGHT, left)),
    )
    photo = read_raw(write(tmp_path / "a.dng", mosaic, *tags))
    assert photo.image.shape == (height, width, 3)
    expect_color(photo)


def test_levels_that_are_given_replace_those_of_the_tags(tmp_path):
    black = np.full((HEIGHT, WIDTH), 700.0)
    tags = (*pattern_tags(np.full((4, 4), 90)), rational_tag(50715, np.full(WIDTH, 9)))
    path = write(tmp_path / "a.dng", mosaic_over(black), *tags)
    expect_color(read_raw(path, LevelArguments(black_level=700)))
    # Damaged tags do not matter then.
    damaged = write(tmp_path / "b.dng", mosaic_over(black), (50713, SHORT, 2, (3, 3)))
    expect_color(read_raw(damaged, LevelArguments(black_level=700, white_level=WHITE)))
    refused(r"b\.dng: BlackLevel has 4 levels for \(3, 3\)", lambda: read_raw(damaged), DataError)


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (((33421, SHORT, 2, (4, 4)), (33422, BYTE, 16, QUAD)), "CFARepeatPatternDim is 4x4"),
        (((33421, SHORT, 2, (2, 4)), (33422, BYTE, 8, b"\0\1\0\1\1\2\2\1")), "Dim is 2x4"),
        (((33422, BYTE, 4, b"\0\1\2\1"),), "CFAPattern is 2x2 with other colours"),
        (((33422, BYTE, 4, b"\0\1\1\3"),), "CFAPattern is 2x2 with other colours"),
        (((33421, SHORT, 2, (4, 4)),), r"CFAPattern has 4 colours for \(4, 4\)"),
        (((50710, BYTE, 3, b"\0\1\1"),), r"CFAPlaneColor is \[0, 1, 1\]"),
        (((50711, SHORT, 1, 2),), r"CFALayout is \[2\], and only 1"),
        (((50975, LONG, 1, 2),), r"RowInterleaveFactor is \[2\]"),
        (((52547, LONG, 1, 2),), r"ColumnInterleaveFactor is \[2\]"),
        (((274, SHORT, 1, 0),), "Orientation is 0, not 1 to 8"),
        (((274, SHORT, 1, 9),), "Orientation is 9"),
        (((50715, SIGNED_RATIONAL, 2, (1, 1, 1, 1)),), "BlackLevelDeltaH has 2 values for 44"),
        (((50716, SIGNED_RATIONAL, 2, (1, 1, 1, 1)),), "BlackLevelDeltaV has 2 values for 30"),
        (((50714, RATIONAL, 4, (1, 0) * 4),), "BlackLevel holds no finite numbers"),
        (((50829, LONG, 4, (5, 0, 5, 44)),), "ActiveArea is"),
        (((50712, SHORT, 4, (0, 1, 2, 3)), (50717, LONG, 2, (9, 8))), r"WhiteLevel is"),
        (((50714, RATIONAL, 2, (1, 1) * 2),), r"BlackLevel has 2 levels for \(2, 2\)"),
        (((50717, LONG, 2, (9, 8)),), r"WhiteLevel is \[9.0, 8.0\], not one whole number"),
        (((50717, RATIONAL, 1, (8191, 2)),), r"WhiteLevel is \[4095.5\]"),
        (((50710, BYTE, 2, b"\0\1"),), r"CFAPlaneColor is \[0, 1\]"),
        (((33422, BYTE, 3, b"\0\1\1"),), r"CFAPattern has 3 colours for \(2, 2\)"),
        (((50710, BYTE, 4, b"\3\4\5\1"), (33422, BYTE, 4, b"\0\1\2\3")), "CFAPattern is"),
        (((50829, LONG, 4, (0, 0, HEIGHT + 6, WIDTH)),), r"ActiveArea is \[0, 0, 36, 44\]"),
        (((50829, LONG, 4, (20, 20, 9, 9)),), r"ActiveArea is \[20, 20, 9, 9\]"),
        (((50727, RATIONAL, 3, (0, 1, 1, 1, 1, 1)),), r"AnalogBalance is \[0.0, 1.0, 1.0\]"),
        (((50721, SIGNED_RATIONAL, 9, (1, 1) * 9),), "ColorMatrix1 .*has no inverse"),
        (((50721, SIGNED_RATIONAL, 9, (0, 1) * 9),), "ColorMatrix1 .*has no inverse"),
    ],
)
def test_unsupported_tags_are_refused_by_name(tmp_path, tags, message):
    path = write(tmp_path / "a.dng", mosaic_over(0), *tags)
    refused(rf"a\.dng: .*{message}.*; ", lambda: read_raw(path), DataError)


def test_equal_white_levels_are_one(tmp_path):
    path = write(tmp_path / "a.dng", mosaic_over(0), (50717, LONG, 3, (WHITE,) * 3))
    photo = read_raw(path)
    assert photo.white_level == WHITE
    expect_color(photo)


def test_masked_pixels_without_a_black_level_are_refused(tmp_path):
    """The specification's default of 0 would be silently wrong: r/g is 0.60 and would be 0.63."""
    mosaic = mosaic_over(np.full((HEIGHT, WIDTH), 1000.0))
    mosaic[:, :8] = 1000
    names = [
        (50706, BYTE, 4, b"\1\4\0\0"),
        (33421, SHORT, 2, (2, 2)),
        (33422, BYTE, 4, b"\0\1\1\2"),
    ]
    names += [(50829, LONG, 4, (0, 8, HEIGHT, WIDTH)), (50830, LONG, 4, (0, 0, HEIGHT, 8))]
    names += [(50717, LONG, 1, WHITE)]
    path, extra = tmp_path / "a.dng", [(*tag, True) for tag in names]
    tifffile.imwrite(path, mosaic, photometric=32803, metadata=None, extratags=extra)
    refused("BlackLevel is missing, although MaskedAreas is", lambda: read_raw(path), DataError)
    expect_color(read_raw(path, LevelArguments(black_level=1000)))


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ({"black_level": float("nan")}, "black_level is nan; give 1 or 4 finite"),
        ({"black_level": [1, 2, 3]}, r"black_level is \[1, 2, 3\]; give 1 or 4"),
        ({"black_level": [1, 2, 3, float("inf")]}, "black_level is"),
        ({"white_level": float("nan")}, "white_level is nan; give 1 finite"),
        ({"white_level": [9, 9]}, r"white_level is \[9, 9\]; give 1"),
        ({"white_level": "9"}, "white_level is '9'"),
    ],
)
def test_levels_that_are_no_numbers_are_refused(tmp_path, levels, message):
    path = write(tmp_path / "a.dng", mosaic_over(0))
    refused(rf"a\.dng: {message}", lambda: read_raw(path, LevelArguments(**levels)), DataError)


def write_behind_picture(path, mosaic, names, levels=(), subfile=True):
    """Write a small picture with tags, and the mosaic as its SubIFD or as the next directory."""
    tags = [(33421, SHORT, 2, (2, 2)), (33422, BYTE, 4, b"\0\1\1\2"), (50717, LONG, 1, WHITE)]
    tags = [(*tag, True) for tag in (*tags, *levels)]
    picture = {"photometric": "rgb", "subfiletype": 1, "subifds": int(subfile)}
    with tifffile.TiffWriter(path) as writer:
        pixels = np.zeros((24, 24, 3), np.uint8)
        writer.write(pixels, metadata=None, extratags=names, **picture)
        writer.write(mosaic, photometric=32803, subfiletype=0, metadata=None, extratags=tags)
    return path


def test_a_table_outside_the_mosaics_directory_is_refused(tmp_path):
    """LibRaw applies it to the mosaic, to which it does not belong."""
    table = (50712, SHORT, 512, tuple(range(0, 5120, 10)), True)
    names = [(50706, BYTE, 4, b"\1\4\0\0", True), table]
    path = write_behind_picture(tmp_path / "a.dng", mosaic_over(0), names)
    message = r"a\.dng: LinearizationTable stands in the first directory"
    refused(message, lambda: read_raw(path), DataError)


def test_pixels_that_were_demosaiced_are_named(tmp_path):
    """ProRAW and merged pictures are LinearRaw."""
    path = tmp_path / "a.dng"
    names = [(50706, BYTE, 4, b"\1\6\0\0", True), (50708, 2, 0, "Two Eyes", True)]
    pixels = np.full((HEIGHT, WIDTH, 3), 900, np.uint16)
    tifffile.imwrite(path, pixels, photometric=34892, metadata=None, extratags=names)
    message = r"a\.dng: PhotometricInterpretation is 34892 .LinearRaw.*; give the camera's Bayer"
    refused(message, lambda: read_raw(path), DataError)


def test_a_cameras_name_has_one_line(tmp_path):
    values = mosaic_over(0)
    path = write(tmp_path / "a.dng", values, (50708, 2, 0, " Two\n  Eyes "))
    assert read_raw(path).camera == "Two Eyes"


def test_a_bayer_block_that_is_stated_twice_is_bayer(tmp_path):
    tags = ((33421, SHORT, 2, (4, 4)), (33422, BYTE, 16, RGGB_TWICE))
    expect_color(read_raw(write(tmp_path / "a.dng", mosaic_over(0), *tags)))


@pytest.mark.parametrize("planes", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_planes_in_another_order_keep_their_colors(tmp_path, rng, planes):
    """CFAPattern names colours, matrices and neutrals are in the order of CFAPlaneColor."""
    matrix, neutral = rng.uniform(0.1, 0.9, (3, 3)).round(3), np.array([0.5, 1.0, 0.625])
    order = list(planes)
    tags = (
        (50710, BYTE, 3, bytes(planes)),
        (50778, SHORT, 1, 21),
        rational_tag(50721, matrix[order], SIGNED_RATIONAL),
        rational_tag(50728, neutral[order]),
    )
    photo = read_raw(write(tmp_path / "a.dng", mosaic_over(0), *tags))
    expect_color(photo)
    np.testing.assert_allclose(photo.xyz_to_camera, matrix, rtol=1e-6)
    np.testing.assert_allclose(photo.as_shot_neutral, neutral, rtol=1e-6)


@pytest.mark.parametrize("subfile", [True, False])
def test_tags_of_the_mosaics_own_directory_count(tmp_path, subfile):
    pattern = np.arange(100, 1700, 100).reshape(4, 4)
    tiled = np.tile(pattern, (HEIGHT, WIDTH))[:HEIGHT, :WIDTH]
    names = [(50706, BYTE, 4, b"\1\4\0\0", True), (50708, 2, 0, "Two Eyes", True)]
    # The picture's levels are its own.
    names += [(50713, SHORT, 2, (1, 2), True), (50714, SHORT, 2, (9, 5000), True)]
    names += [(50717, LONG, 1, 255, True), (50829, LONG, 4, (0, 0, 9, 9), True)]
    mosaic, levels = mosaic_over(tiled), pattern_tags(pattern)
    path = write_behind_picture(tmp_path / "a.dng", mosaic, names, levels, subfile)
    expect_color(read_raw(path))


def write_stored(path, values, **options):
    tags = [(33421, SHORT, 2, (2, 2)), (33422, BYTE, 4, b"\0\1\1\2"), (50708, 2, 0, "X")]
    tags += [(50706, BYTE, 4, b"\1\4\0\0"), (50717, LONG, 1, options.pop("white", WHITE))]
    extra = [(*tag, True) for tag in tags]
    tifffile.imwrite(path, values, photometric=32803, metadata=None, extratags=extra, **options)
    return path


def test_a_mosaic_of_eight_bits_is_read(tmp_path):
    values = np.uint8(mosaic_over(0, white=200))
    expect_color(read_raw(write_stored(tmp_path / "a.dng", values, white=200)), 1e-6)


@pytest.mark.parametrize(
    ("dtype", "side", "options", "message"),
    [
        ("u2", 30, {"bigtiff": True}, "is a BigTIFF DNG .*; save it as a DNG in a classic TIFF"),
        ("u2", 20, {}, "is a DNG of 20x20 pixels .*; save it with sides of 22 pixels or more"),
        ("f4", 30, {}, r"SampleFormat is \[3\].*16-bit unsigned integers"),
        ("f2", 30, {}, r"SampleFormat is \[3\]"),
        ("i2", 30, {}, r"SampleFormat is \[2\]"),
        ("u4", 30, {}, "is a DNG with compression 1 .none. and 32 bits, which LibRaw does not"),
        ("u2", 30, {"compression": "deflate"}, "compression 32946 .deflate. and 16 bits"),
        ("u2", 30, {"compression": "lzw"}, "compression 5 .LZW."),
        ("u2", 30, {"compression": 52546}, "compression 52546 .JPEG XL..*save it as a DNG witho"),
    ],
)
def test_mosaics_that_are_stored_otherwise_are_refused(tmp_path, dtype, side, options, message):
    values = mosaic_over(0, side, side).astype(dtype)
    try:
        path = write_stored(tmp_path / "a.dng", values, **options)
    except (NotImplementedError, ImportError, ValueError) as error:
        pytest.skip(f"tifffile does not write it: {error}")
    refused(rf"a\.dng.*{message}", lambda: read_raw(path), DataError)


def test_a_file_of_two_mosaics_is_refused(tmp_path):
    path = write_stored(tmp_path / "a.dng", mosaic_over(0))
    write_stored(path, mosaic_over(0), append=True)
    refused(r"a\.dng holds 2 mosaics of one size", lambda: read_raw(path), DataError)
    # None of them has the decoded one's size.
    message = r"a\.dng holds 2 mosaics of sizes that the decoded one does not have"
    with pytest.raises(DataError, match=message), raw_directories(path, (HEIGHT, WIDTH + 2)):
        pass


@pytest.mark.parametrize(
    ("code", "operations", "warned"),
    [
        (51009, [(1, b"x" * 20), (9, b"")], True),
        (51022, [(9, bytes(76))], True),
        # The numbers of an operation's data are no operations.
        (51009, [(4, struct.pack(">2I", 9, 9))], False),
        (51009, [], False),
    ],
)
def test_a_gain_map_that_is_not_applied_is_warned_of(tmp_path, code, operations, warned):
    """Phones write it against lens shading."""
    content = struct.pack(">I", len(operations)) + b"".join(
        struct.pack(">4I", number, 0x01030000, 0, len(data)) + data for number, data in operations
    )
    tag = (code, UNDEFINED, len(content), content)
    photo = read_raw(write(tmp_path / "a.dng", mosaic_over(0), tag))
    expect_color(photo)
    assert any("states a gain map" in text for text in stated_warnings(photo)) == warned
