"""Errors of one line for raw files that LibRaw or the reader of their tags does not take."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from everlight_data.color.raw_files.dng_mosaic import LevelArguments, read_mosaic_tags
from everlight_data.color.raw_files.dng_tags import LINEAR_RAW, is_tiff, raw_directories
from everlight_data.errors import DataError
from everlight_data.formats.files import converting, memory_lacking
from everlight_data.optional_packages import import_package
from everlight_data.texts import one_line

if TYPE_CHECKING:
    import rawpy

COMPRESSIONS = {
    1: "none",
    5: "LZW",
    7: "JPEG",
    8: "deflate",
    32946: "deflate",
    34892: "lossy JPEG",
    50000: "Zstandard",
    52546: "JPEG XL",
}
"""Names of TIFF's and DNG's compressions."""
MIN_SIDE = 22
"""Minimum side of a sensor that LibRaw opens, in pixels."""
_COPY_AGAIN = "copy it again from the camera."


def refusing_raw(path: Path) -> AbstractContextManager[None]:
    """Convert the errors of LibRaw, and of what reads tags, into a DataError of one line."""
    rawpy = import_package("rawpy")

    def convert(error: Exception) -> DataError:
        if _is_text(path):
            return DataError(
                f"{path} is not a raw file but text; give a DNG or a camera's raw file."
            )
        if isinstance(error, rawpy.LibRawFileUnsupportedError | rawpy.LibRawNotImplementedError):
            return _refused_tag(path) or _unsupported_error(path, _reason(error))
        if isinstance(error, rawpy.LibRawError):
            return _refused_tag(path) or DataError(
                f"{path} is truncated or damaged ({_reason(error)}); {_COPY_AGAIN}"
            )
        if isinstance(error, MemoryError):
            return memory_lacking(path, _COPY_AGAIN)
        # Such as tags without a value.
        return DataError(
            f"{path} is damaged ({type(error).__name__}: {one_line(error)}); {_COPY_AGAIN}"
        )

    return converting(convert)


def _is_text(path: Path) -> bool:
    """Return True if the beginning of a file is text, which that of no raw file is."""
    with path.open("rb") as file:
        start = file.read(256)
    return bool(start) and all(32 <= byte < 127 or byte in b"\t\n\r" for byte in start)


def check_level_arguments(path: Path, levels: LevelArguments) -> None:
    """Refuse a user's levels that are not numbers, or of which there are too few or too many."""
    sizes_by_name = {"black_level": (1, 4), "white_level": (1,)}
    for name, sizes in sizes_by_name.items():
        level = getattr(levels, name)
        if level is None:
            continue
        numbers = np.ravel(np.asarray(level))
        is_finite = numbers.dtype.kind in "iuf" and np.isfinite(numbers).all()
        if not is_finite or numbers.size not in sizes:
            raise DataError(
                f"{path}: {name} is {level!r}; give {' or '.join(map(str, sizes))} finite numbers "
                "in sensor units."
            )


def not_bayer(raw: "rawpy.RawPy", path: Path) -> DataError:
    """Return the error for a file whose values are not a Bayer mosaic."""
    return (is_tiff(path) and _refused_tag(path)) or DataError(
        f"{path} is not the mosaic of a three-colour 2×2 Bayer sensor (colours "
        f"{raw.color_desc.decode()}, {raw.raw_type.name}); give a raw file of such a sensor."
    )


def _refused_tag(path: Path) -> DataError | None:
    """Return the error for a DNG's tag that this package does not read; None without such a tag."""
    try:
        with raw_directories(path) as tags:
            if tags.is_dng and tags.mosaic is not None:
                names = ("ImageLength", "ImageWidth")
                read_mosaic_tags(tags, tuple(int(tags.mosaic[name].value) for name in names))
            elif tags.is_dng and LINEAR_RAW in tags.photometrics:
                return tags.refusal(
                    "PhotometricInterpretation",
                    f"is {LINEAR_RAW} (LinearRaw), pixels that were demosaiced before, as ProRAW "
                    "or pictures merged or enhanced by Lightroom",
                    "give the camera's Bayer raw file, or a linear TIFF of 16 bits",
                )
    except DataError as error:
        return error
    # Only for a message, and a damaged file raises anything.
    except Exception:
        pass
    return None


def _unsupported_error(path: Path, reason: str) -> DataError:
    """Return the error for a file that LibRaw does not decode."""
    try:
        with raw_directories(path) as tags:
            if tags.is_dng:
                stored = tags.first if tags.mosaic is None else tags.mosaic
                code = int(stored["Compression"].value)
                bits = stored["BitsPerSample"].value
                sides = [int(stored[name].value) for name in ("ImageLength", "ImageWidth")]
                kind, remedy = "DNG", "as a DNG without compression or with lossless JPEG"
                if tags.is_bigtiff:
                    kind, remedy = "BigTIFF DNG", "as a DNG in a classic TIFF"
                elif code in (1, 7) and min(sides) < MIN_SIDE:
                    kind = f"DNG of {sides[1]}x{sides[0]} pixels"
                    remedy = f"with sides of {MIN_SIDE} pixels or more"
                elif code in (1, 7):
                    remedy += ", of 16 bits or fewer"
                return DataError(
                    f"{path} is a {kind} with compression {code} "
                    f"({COMPRESSIONS.get(code, 'unnamed')}) and {bits} bits, which LibRaw does not "
                    f"decode; save it {remedy}."
                )
    # Only for a message, and a damaged file raises anything.
    except Exception:
        pass
    return DataError(
        f"{path} is not a raw file that LibRaw can read ({reason}); give a DNG or camera raw file, "
        "not a rendered picture."
    )


def _reason(error: "rawpy.LibRawError") -> str:
    message = error.args[0] if error.args else type(error).__name__
    return one_line(message.decode() if isinstance(message, bytes) else message)
