"""Raw photos (DNG and camera makers' formats) as linear camera RGB, decoded by LibRaw.

For a DNG, LibRaw decodes the sensor's values and this package reads the tags (`dng_mosaic`,
`dng_colors`). Lens shading (a DNG's opcode lists) is not corrected.
"""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.ndimage import maximum_filter

from everlight_data.color.photographs.camera_names import make_and_model
from everlight_data.color.raw_files.demosaicing import demosaic, halve
from everlight_data.color.raw_files.dng_colors import as_shot_neutral, read_dng_colors
from everlight_data.color.raw_files.dng_mosaic import (
    FILE_LEVELS,
    BlackLevels,
    LevelArguments,
    MosaicTags,
    bayer_pattern,
    black_map,
    read_mosaic_tags,
    shifted_black,
)
from everlight_data.color.raw_files.dng_tags import is_tiff, opened_tiff, raw_directories
from everlight_data.color.raw_files.raw_refusals import (
    check_level_arguments,
    not_bayer,
    refusing_raw,
)
from everlight_data.color.raw_files.sensor_clipping import clipped_sites
from everlight_data.errors import DataError, MissingPackageError
from everlight_data.formats.files import check_readable
from everlight_data.optional_packages import import_package

if TYPE_CHECKING:
    import rawpy

# Linear sRGB to XYZ (D65) with dcraw's digits: it undoes what LibRaw did to a DNG's ColorMatrix.
LIBRAW_SRGB_TO_XYZ = np.array(
    [
        [0.412453, 0.357580, 0.180423],
        [0.212671, 0.715160, 0.072169],
        [0.019334, 0.119193, 0.950227],
    ]
)


MAX_BYTES = 1_000_000_000
"""Limit on the size of a raw file."""
MAX_PIXELS = 200_000_000
"""Limit on the pixels of a sensor."""


class RawImage(NamedTuple):
    """Raw photo in upright orientation."""

    image: Float[np.ndarray, "h w 3"]
    """Linear camera RGB, float32 `[h, w, 3]`.

    0 at the black level, 1 at the white level. Noise makes some dark pixels negative; clipping
    them would bias their mean.
    """
    saturated: Bool[np.ndarray, "h w"]
    """Pixels that a clipped photosite influences, `[h, w]`.

    Its value is at or above the white level, or the lower one where its channel clips
    (`sensor_clipping`).
    """
    black_level: Float[np.ndarray, "4"]
    """Mean of the levels used for R, G, B and the second G, `[4]`, in sensor units."""
    white_level: int
    """Level used, in sensor units."""
    xyz_to_camera: Float[np.ndarray, "3 3"] | None
    """Matrix from XYZ under D65 to camera RGB, `[3, 3]`, or None.

    A DNG's is its ColorMatrix nearest to D65, with AnalogBalance and CameraCalibration.
    """
    as_shot_neutral: Float[np.ndarray, "3"] | None
    """The camera's own estimate of the illuminant (r, 1, b), `[3]`, or None."""
    camera: str | None
    """Camera name in the file, or None."""
    flip: int
    """Sensor orientation (LibRaw's number), which has been undone; 0 is upright."""
    path: Path
    """Path of the file."""
    levels: LevelArguments = FILE_LEVELS
    """Levels that the user gave instead of the file's."""
    rendering: str = ""
    """A picture's statement of its colours or encoding, which sensor values do not have; or ""."""
    has_gain_map: bool = False
    """True if a DNG states a gain map against lens shading, which is not applied."""


class SensorValues(NamedTuple):
    """Decoded values of the active area of a sensor, as stored."""

    values: Int[np.ndarray, "h w"]
    """Values, `[h, w]`."""
    pattern: Int[np.ndarray, "2 2"]
    """Channel of each position of a 2×2 block (R, G, B, second G)."""
    black: BlackLevels
    """Black levels."""
    white: int
    """White level."""
    flip: int
    """Orientation, LibRaw's number."""
    xyz_to_camera: Float[np.ndarray, "3 3"] | None
    """Matrix of `RawImage.xyz_to_camera`."""
    as_shot_neutral: Float[np.ndarray, "3"] | None
    """Estimate of `RawImage.as_shot_neutral`."""
    has_gain_map: bool = False
    """Statement of `RawImage.has_gain_map`."""


def read_raw(
    path: str | Path, levels: LevelArguments = FILE_LEVELS, half_size: bool = False
) -> RawImage:
    """Read a Bayer raw file: demosaiced and scaled, with no white balance, matrix or gamma.

    Bilinear demosaicing never mixes channels and keeps the mean colour of a patch. That is all that
    a colour transform between downsampled images uses; edge-directed methods (AHD) guess one
    channel from another. Values are clipped at white but not at black, where sensors count from a
    pedestal.

    Args:
      path: path of the file.
      levels: levels that replace the file's.
      half_size: return one pixel for each complete 2×2 block of photosites instead of
        interpolating.

    Raises:
      MissingDataError: the file does not exist.
      MissingPackageError: rawpy or tifffile is not installed.
      DataError: the file is truncated or not a raw file of a three-colour 2×2 Bayer sensor with
        square pixels. Or its black level is not below its white level, or a tag states what is not
        supported.
    """
    path = Path(path)
    sensor = read_sensor(path, levels)
    height, width = sensor.values.shape
    black = black_map(sensor.black, height, width).astype(np.float32)
    mosaic = (sensor.values - black) / (sensor.white - black)
    mosaic = np.minimum(mosaic, np.float32(1), dtype=np.float32)
    image = (halve if half_size else demosaic)(mosaic, sensor.pattern)
    means = {
        int(sensor.pattern[row, column]): black[row::2, column::2].mean(dtype=float)
        for row in (0, 1)
        for column in (0, 1)
    }
    return RawImage(
        image=upright(image, sensor.flip),
        saturated=upright(_saturated_pixels(sensor, black, half_size), sensor.flip),
        black_level=np.array([means[channel] for channel in range(4)]),
        white_level=sensor.white,
        xyz_to_camera=sensor.xyz_to_camera,
        as_shot_neutral=sensor.as_shot_neutral,
        camera=camera_name(path),
        flip=sensor.flip,
        path=path,
        levels=levels,
        has_gain_map=sensor.has_gain_map,
    )


def read_sensor(path: Path, levels: LevelArguments = FILE_LEVELS) -> SensorValues:
    """Read the values and tags of a raw file's sensor; arguments and errors as for `read_raw`."""
    check_readable(path, MAX_BYTES, "Give the path of a DNG or camera raw file.")
    check_level_arguments(path, levels)
    with refusing_raw(path), import_package("rawpy").RawPy() as raw:
        raw.open_file(str(path))
        _check_size(raw, path)
        raw.unpack()
        _check_one_mosaic(raw, path)
        shape = raw.sizes.raw_height, raw.sizes.raw_width
        neutral, matrix, is_dng = _as_shot_neutral(raw), None, False
        stated = MosaicTags(raw.sizes.flip)
        if is_tiff(path):
            with raw_directories(path, shape) as tags:
                stated = read_mosaic_tags(tags, shape, levels)
                is_dng = tags.is_dng
                if is_dng:
                    neutral = as_shot_neutral(tags)
                    colors = read_dng_colors(tags)
                    matrix = colors.daylight() if colors.matrices else _camera_matrix(raw)
                elif stated.black is not None:
                    stated = stated._replace(black=_visible_black(raw, stated))
        if not is_dng:
            matrix = _camera_matrix(raw)
        values, pattern = _active(raw, stated if is_dng else None, path)
        black, white = _levels(raw, stated, pattern, levels)
        _check_black_level(path, black, white, values.shape)
        return SensorValues(
            values=values,
            pattern=pattern,
            black=black,
            white=white,
            flip=stated.flip if is_dng else raw.sizes.flip,
            xyz_to_camera=None if matrix is None else matrix.astype(np.float32),
            as_shot_neutral=neutral,
            has_gain_map=stated.has_gain_map,
        )


def _check_size(raw: "rawpy.RawPy", path: Path) -> None:
    """Refuse too large sensors before anything is decoded."""
    if raw.sizes.raw_height * raw.sizes.raw_width > MAX_PIXELS:
        raise DataError(
            f"{path} claims {raw.sizes.raw_width}x{raw.sizes.raw_height} pixels, above "
            "the limit; copy it again from the camera."
        )


def _check_one_mosaic(raw: "rawpy.RawPy", path: Path) -> None:
    if raw.raw_type.name != "Flat" or raw.num_colors != 3 or raw.color_desc != b"RGBG":
        raise not_bayer(raw, path)
    if raw.sizes.pixel_aspect != 1:
        raise DataError(
            f"{path} has pixels of aspect {raw.sizes.pixel_aspect}; give a file with square pixels."
        )


def _active(
    raw: "rawpy.RawPy", stated: MosaicTags | None, path: Path
) -> tuple[Int[np.ndarray, "h w"], Int[np.ndarray, "2 2"]]:
    """Return the values and the colour pattern of the active area.

    Args:
      raw: decoded file.
      stated: a DNG's tags; None takes what LibRaw knows of the camera.
      path: path of the file.
    """
    if stated is not None and stated.pattern is not None:
        top, left, bottom, right = stated.area
        return np.array(raw.raw_image[top:bottom, left:right]), stated.pattern
    known = raw.raw_pattern
    if known is None or known.shape != (2, 2):
        raise not_bayer(raw, path)
    colors = raw.raw_colors_visible[:2, :2]
    pattern = bayer_pattern(np.where(colors == 3, 1, colors))
    if pattern is None:
        raise not_bayer(raw, path)
    return np.array(raw.raw_image_visible), pattern


def _levels(
    raw: "rawpy.RawPy", stated: MosaicTags, pattern: Int[np.ndarray, "2 2"], levels: LevelArguments
) -> tuple[BlackLevels, int]:
    """Return the levels that are given, or else those of the tags, or else LibRaw's."""
    replaced = levels.black_level is not None
    by_channel = levels.black_level if replaced else raw.black_level_per_channel
    black = BlackLevels(np.broadcast_to(np.asarray(by_channel, float), 4)[pattern])
    if not replaced and stated.black is not None:
        black = stated.black
    white = raw.white_level if stated.white is None else stated.white
    return black, int(white if levels.white_level is None else levels.white_level)


def _visible_black(raw: "rawpy.RawPy", stated: MosaicTags) -> BlackLevels:
    """Return the black levels of what LibRaw shows of a file that is not a DNG."""
    sizes = raw.sizes
    rows, columns = sizes.top_margin - stated.area[0], sizes.left_margin - stated.area[1]
    moved = shifted_black(stated.black, max(rows, 0), max(columns, 0))
    return moved._replace(
        row_additions=None if moved.row_additions is None else moved.row_additions[: sizes.height],
        column_additions=None
        if moved.column_additions is None
        else moved.column_additions[: sizes.width],
    )


def _check_black_level(path: Path, black: BlackLevels, white: int, shape: tuple[int, int]) -> None:
    highest = black_map(black, *shape).max()
    if not (black.pattern.min() >= 0 and highest < white):
        low = black.pattern.min()
        raise DataError(
            f"{path}: black level {low:g} to {highest:g} does not lie between 0 and the white "
            f"level {white}; give the sensor's own as black_level and white_level."
        )


def _saturated_pixels(
    sensor: SensorValues, black: Float[np.ndarray, "h w"], half_size: bool
) -> Bool[np.ndarray, "h w"]:
    saturated = clipped_sites(sensor.values, black, sensor.white)
    if not half_size:
        return maximum_filter(saturated, size=3)
    # An odd last row or column fills no block.
    rows, columns = saturated.shape[0] // 2, saturated.shape[1] // 2
    blocks = saturated[: 2 * rows, : 2 * columns].reshape(rows, 2, columns, 2)
    return blocks.any(axis=(1, 3))


def upright(array: np.ndarray, flip: int) -> np.ndarray:
    """Return an array of rows and columns without LibRaw's `flip`.

    Bit 2 mirrors the rows and bit 1 the columns; then bit 4 swaps the axes.
    """
    if flip & 2:
        array = array[::-1]
    if flip & 1:
        array = array[:, ::-1]
    if flip & 4:
        array = array.swapaxes(0, 1)
    return np.ascontiguousarray(array)


def _camera_matrix(raw: "rawpy.RawPy") -> Float[np.ndarray, "3 3"] | None:
    if np.any(raw.rgb_xyz_matrix):
        return raw.rgb_xyz_matrix[:3].astype(np.float32)
    # LibRaw keeps of a DNG's matrix its product with sRGB's, rows scaled to sum 1 and inverted,
    # and the scales (as daylight white balance).
    srgb_from_camera = raw.color_matrix[:, :3].astype(float)
    if not np.any(srgb_from_camera):
        return None
    scales = np.array(raw.daylight_whitebalance[:3])
    to_camera = np.linalg.inv(srgb_from_camera) / scales[:, None]
    return (to_camera @ np.linalg.inv(LIBRAW_SRGB_TO_XYZ)).astype(np.float32)


def _as_shot_neutral(raw: "rawpy.RawPy") -> Float[np.ndarray, "3"] | None:
    multipliers = np.array(raw.camera_whitebalance[:3])
    if not np.all(multipliers > 0):
        return None
    return (multipliers[1] / multipliers).astype(np.float32)


def black_text(photo: RawImage) -> str:
    """Return a photo's black levels as text."""
    return f"[{', '.join(f'{level:.7g}' for level in photo.black_level)}]"


def camera_name(path: Path) -> str | None:
    """Return UniqueCameraModel, or make and model, of a TIFF-based raw file; None without one."""
    return next(iter(camera_names(path)), None)


def camera_names(path: Path) -> tuple[str, ...]:
    """Return the names of the camera in a TIFF-based raw file or a camera profile.

    They are UniqueCameraModel, make and model, and the model with the maker's first word and alone:
    profiles have "Olympus E-PL6" where the maker is "OLYMPUS IMAGING CORP.".
    """
    try:
        with opened_tiff(path) as file:
            tags = file.pages[0].tags
            unique = tags.valueof("UniqueCameraModel")
            unique = unique.decode() if isinstance(unique, bytes) else unique
            make, model = tags.valueof("Make") or "", tags.valueof("Model") or ""
            names = [unique or "", make_and_model(make, model)]
            if model:
                names += [make_and_model(make.split(" ")[0], model), model]
    except MissingPackageError:
        raise
    # A camera without a name is permitted, and damaged tags raise errors of any kind.
    except Exception:
        return ()
    # Messages and tables have a name in one line.
    plain = (" ".join(name.replace("\0", " ").split()) for name in names)
    return tuple(filter(None, plain))
