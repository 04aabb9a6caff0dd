"""Raw photos (DNG and camera makers' formats) as linear camera RGB, decoded by LibRaw.

Lens shading (a DNG's opcode lists) is not corrected: LibRaw does not apply it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import rawpy
import tifffile
from jaxtyping import Bool, Float, Int
from scipy.ndimage import maximum_filter

from everlight_data.errors import DataError
from everlight_data.files import one_line, opened

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
    """Raw photo in upright orientation.

    Attributes:
      image: linear camera RGB, float32 `[h, w, 3]`: 0 at the black level, 1 at the white level.
        Noise makes some dark pixels negative; clipping them would bias their mean.
      saturated: pixels influenced by a photosite at or above the white level, `[h, w]`.
      black_level: levels used for R, G, B and the second G, `[4]`, in sensor units.
      white_level: level used, in sensor units.
      xyz_to_camera: matrix from XYZ under D65 to camera RGB (a DNG's ColorMatrix), `[3, 3]`, or
        None.
      as_shot_neutral: the camera's own estimate of the illuminant (r, 1, b), `[3]`, or None.
      camera: camera name in the file, or None.
      flip: sensor orientation (LibRaw's number), which has been undone; 0 is upright.
      path: path of the file.
    """

    image: Float[np.ndarray, "h w 3"]
    saturated: Bool[np.ndarray, "h w"]
    black_level: Int[np.ndarray, "4"]
    white_level: int
    xyz_to_camera: Float[np.ndarray, "3 3"] | None
    as_shot_neutral: Float[np.ndarray, "3"] | None
    camera: str | None
    flip: int
    path: Path


def read_raw(
    path: str | Path,
    black_level: int | Sequence[int] | None = None,
    white_level: int | None = None,
    half_size: bool = False,
) -> RawImage:
    """Read a Bayer raw file: demosaiced and scaled, with no white balance, matrix or gamma.

    Bilinear demosaicing never mixes channels and keeps the mean colour of a patch. That is all that
    a colour transform between downsampled images uses; edge-directed methods (AHD) guess one
    channel from another. Values are clipped at white but not at black, where sensors count from a
    pedestal.

    Args:
      path: path of the file.
      black_level: in sensor units, one value or four for R, G, B and the second G. It replaces the
        file's level, which LibRaw misreads for some phones.
      white_level: in sensor units; it replaces the file's.
      half_size: return one pixel for each complete 2×2 block of photosites instead of
        interpolating.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is truncated or not a raw file of a three-colour 2×2 Bayer sensor with
        square pixels. Or its black level is not below its white level.
    """
    path = Path(path)
    with opened(path, MAX_BYTES, "Give the path of a DNG or camera raw file."):
        pass
    try:
        with rawpy.RawPy() as raw:
            raw.open_file(str(path))
            _check_size(raw, path)
            raw.unpack()
            _check_bayer(raw, path)
            black, white = _levels(raw, black_level, white_level, path)
            # Before the demosaicing, which changes LibRaw's sizes and flip in place.
            saturated, flip = _saturated(raw, white, half_size), raw.sizes.flip
            rows, columns = saturated.shape
            image = _demosaic(raw, black, white, half_size)[:rows, :columns]
            xyz_to_camera, as_shot_neutral = _camera_matrix(raw), _as_shot_neutral(raw)
    except (rawpy.LibRawFileUnsupportedError, rawpy.LibRawNotImplementedError) as error:
        raise DataError(
            f"{path} is not a raw file that LibRaw can read ({_reason(error)}); "
            "give a DNG or camera raw file, not a rendered picture."
        ) from error
    except rawpy.LibRawError as error:
        raise DataError(
            f"{path} is truncated or damaged ({_reason(error)}); copy it again from the camera."
        ) from error
    except DataError:
        raise
    # Such as a colour matrix that has no inverse.
    except Exception as error:
        raise DataError(
            f"{path} is damaged ({type(error).__name__}: {one_line(error)}); copy it again from "
            "the camera."
        ) from error
    return RawImage(
        image=_upright(image, flip),
        saturated=_upright(saturated, flip),
        black_level=black,
        white_level=white,
        xyz_to_camera=xyz_to_camera,
        as_shot_neutral=as_shot_neutral,
        camera=camera_name(path),
        flip=flip,
        path=path,
    )


def _check_size(raw: rawpy.RawPy, path: Path) -> None:
    """Refuse too large sensors before anything is decoded."""
    if raw.sizes.raw_height * raw.sizes.raw_width > MAX_PIXELS:
        raise DataError(
            f"{path} claims {raw.sizes.raw_width}x{raw.sizes.raw_height} pixels, above "
            "the limit; copy it again from the camera."
        )


def _reason(error: rawpy.LibRawError) -> str:
    message = error.args[0] if error.args else type(error).__name__
    return one_line(message.decode() if isinstance(message, bytes) else message)


def _check_bayer(raw: rawpy.RawPy, path: Path) -> None:
    pattern = raw.raw_pattern
    bayer = (
        raw.raw_type == rawpy.RawType.Flat
        and raw.num_colors == 3
        and raw.color_desc == b"RGBG"
        and pattern is not None
        and pattern.shape == (2, 2)
    )
    if not bayer:
        raise DataError(
            f"{path} is not the mosaic of a three-colour 2×2 Bayer sensor (colours "
            f"{raw.color_desc.decode()}, {raw.raw_type.name}); only such raw files are supported."
        )
    if raw.sizes.pixel_aspect != 1:
        raise DataError(
            f"{path} has pixels of aspect {raw.sizes.pixel_aspect}; only square ones are supported."
        )


def _levels(
    raw: rawpy.RawPy,
    black_level: int | Sequence[int] | None,
    white_level: int | None,
    path: Path,
) -> tuple[Int[np.ndarray, "4"], int]:
    given = raw.black_level_per_channel if black_level is None else black_level
    black = np.broadcast_to(np.asarray(given, int), 4).copy()
    white = int(raw.white_level if white_level is None else white_level)
    if black.min() < 0 or black.max() >= white:
        raise DataError(
            f"{path}: black level {black.tolist()} does not lie between 0 and the white level "
            f"{white}; give the sensor's own as black_level and white_level."
        )
    return black, white


def _demosaic(
    raw: rawpy.RawPy, black: Int[np.ndarray, "4"], white: int, half_size: bool
) -> Float[np.ndarray, "h w 3"]:
    # LibRaw clips values below the given black level. So it gets only the channels' differences,
    # and the common pedestal is subtracted afterwards. It scales by
    # user_sat, and raises the exposure of dim images unless adjust_maximum_thr is 0.
    pedestal = int(black.min())
    scaled = raw.postprocess(
        demosaic_algorithm=rawpy.DemosaicAlgorithm.LINEAR,
        half_size=half_size,
        user_flip=0,
        user_black=0,
        user_cblack=(black - pedestal).tolist(),
        user_sat=white,
        user_wb=[1, 1, 1, 1],
        output_color=rawpy.ColorSpace.raw,
        gamma=(1, 1),
        no_auto_bright=True,
        adjust_maximum_thr=0,
        output_bps=16,
    )
    red, green, blue, second_green = white - black
    ranges = np.array([red, (green + second_green) / 2, blue])
    sensor_units = scaled * (white / 65535) - pedestal
    return np.minimum(sensor_units / ranges, 1).astype(np.float32)


def _saturated(raw: rawpy.RawPy, white: int, half_size: bool) -> Bool[np.ndarray, "h w"]:
    saturated = raw.raw_image_visible >= white
    if not half_size:
        return maximum_filter(saturated, size=3)
    # An odd last row or column fills no block, and LibRaw leaves its missing colours at 0.
    rows, columns = saturated.shape[0] // 2, saturated.shape[1] // 2
    blocks = saturated[: 2 * rows, : 2 * columns].reshape(rows, 2, columns, 2)
    return blocks.any(axis=(1, 3))


def _upright(array: np.ndarray, flip: int) -> np.ndarray:
    """Undo LibRaw's `flip`: 2 mirrors the rows, 1 the columns, then 4 swaps the axes."""
    if flip & 2:
        array = array[::-1]
    if flip & 1:
        array = array[:, ::-1]
    if flip & 4:
        array = array.swapaxes(0, 1)
    return np.ascontiguousarray(array)


def _camera_matrix(raw: rawpy.RawPy) -> Float[np.ndarray, "3 3"] | None:
    if np.any(raw.rgb_xyz_matrix):
        return raw.rgb_xyz_matrix[:3].astype(np.float32)
    # Of a DNG's matrix LibRaw keeps its product with sRGB's, rows scaled to sum 1 and inverted,
    # and the scales (as daylight white balance).
    srgb_from_camera = raw.color_matrix[:, :3].astype(float)
    if not np.any(srgb_from_camera):
        return None
    scales = np.array(raw.daylight_whitebalance[:3])
    to_camera = np.linalg.inv(srgb_from_camera) / scales[:, None]
    return (to_camera @ np.linalg.inv(LIBRAW_SRGB_TO_XYZ)).astype(np.float32)


def _as_shot_neutral(raw: rawpy.RawPy) -> Float[np.ndarray, "3"] | None:
    multipliers = np.array(raw.camera_whitebalance[:3])
    if not np.all(multipliers > 0):
        return None
    return (multipliers[1] / multipliers).astype(np.float32)


def camera_name(path: Path) -> str | None:
    """Return UniqueCameraModel, or make and model, of a TIFF-based raw file; None without one."""
    try:
        with tifffile.TiffFile(path) as file:
            tags = file.pages[0].tags
            unique = tags.valueof("UniqueCameraModel")
            parts = [tags.valueof("Make"), tags.valueof("Model")]
    # Only a name, and a damaged tag raises anything.
    except Exception:
        return None
    return unique or " ".join(part for part in parts if part) or None
