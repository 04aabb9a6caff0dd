"""Reader and writer of DNG camera profiles, files that end in .dcp.

A profile is one directory of TIFF tags behind a header of its own (DNG specification 1.7, chapter
6, "Extra Camera Profiles"). The tags are kept as bytes, so that a profile that is read and written
has the same bytes: hue and saturation tables, tone curves and tags without a name here included.
Matrices and illuminants are read by `raw_files.calibrations.read_dng_calibration`.
"""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from everlight_data.color.raw_files.dng import (
    ASCII,
    LONG,
    SHORT,
    SIGNED_RATIONAL,
    rationals,
)
from everlight_data.color.raw_files.dng_tags import PROFILE_HEADERS, opened_tiff
from everlight_data.formats.files import read_bytes, refusing
from everlight_data.writing import written_whole

MAX_PROFILE_BYTES = 100_000_000
"""Limit on the size of a profile; RawTherapee's have up to 1.2 MB."""
MAX_TAGS = 1_000
"""Limit on the number of a profile's tags; RawTherapee's have up to 19."""
PADDINGS = (2, 4)
"""Sizes of which a value takes a multiple, in bytes; writers of profiles have one or the other."""
TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}
"""Size in bytes of a value of each of TIFF's types."""
REMEDY = "Give a DNG camera profile that ends in .dcp."
_DIRECTORY, _INLINE = 8, 4


class ProfileTag(NamedTuple):
    """A tag of a profile.

    Attributes:
      code: number of the tag.
      dtype: TIFF's number of the type.
      count: number of values.
      data: values as bytes, in the profile's byte order.
    """

    code: int
    dtype: int
    count: int
    data: bytes


class CameraProfile(NamedTuple):
    """A profile's tags and layout.

    Attributes:
      tags: tags in the order of the file.
      byte_order: "<" or ">", as `struct` names it.
      padding: size in bytes of which a value takes a multiple, 2 or 4.
    """

    tags: tuple[ProfileTag, ...]
    byte_order: str = "<"
    padding: int = 2


def read_profile(path: Path) -> CameraProfile:
    """Read a profile's tags, without interpreting them.

    Raises:
      MissingDataError: the file does not exist.
      MissingPackageError: tifffile is not installed.
      DataError: the file is damaged, truncated or no profile.
    """
    content = read_bytes(path, MAX_PROFILE_BYTES, REMEDY)
    with refusing(path, REMEDY):
        order = PROFILE_HEADERS.get(content[:4])
        if order is None:
            raise ValueError("it does not begin with IIRC or MMCR")
        (start,) = struct.unpack_from(f"{order}I", content, 4)
        with opened_tiff(path) as file:
            if len(file.pages) != 1:
                raise ValueError(f"it has {len(file.pages)} directories, not 1")
            entries = list(file.pages[0].tags)
        (count,) = struct.unpack_from(f"{order}H", content, start)
        if count != len(entries) or count > MAX_TAGS:
            raise ValueError(f"{len(entries)} of its {count} tags are readable")
        tags = tuple(_tag(entry, content) for entry in entries)
        if len({tag.code for tag in tags}) < len(tags):
            raise ValueError("a tag occurs twice")
        if sum(len(tag.data) for tag in tags) > len(content):
            raise ValueError("its tags overlap")
    profile = CameraProfile(tags, order)
    layouts = (profile._replace(padding=padding) for padding in PADDINGS)
    return next((layout for layout in layouts if profile_bytes(layout) == content), profile)


def write_profile(path: Path, profile: CameraProfile) -> None:
    """Write a profile; one that was read gets the bytes that it had.

    This holds where the values stand behind the directory in the order of the tags, padded to 2 or
    4 bytes, as in all 139 profiles of RawTherapee 5.9. Other files keep their tags.

    Raises:
      DataError: the file cannot be written.
    """
    with written_whole(path) as unfinished:
        unfinished.write_bytes(profile_bytes(profile))


def profile_bytes(profile: CameraProfile) -> bytes:
    """Return a profile as bytes."""
    order, tags = profile.byte_order, profile.tags
    magic = next(magic for magic, name in PROFILE_HEADERS.items() if name == order)
    offset = _DIRECTORY + 2 + 12 * len(tags) + 4
    entries, values = [], []
    for tag in tags:
        entry = struct.pack(f"{order}HHI", tag.code, tag.dtype, tag.count)
        if len(tag.data) <= _INLINE:
            entries.append(entry + tag.data.ljust(_INLINE, b"\0"))
            continue
        entries.append(entry + struct.pack(f"{order}I", offset))
        values.append(tag.data + bytes(-len(tag.data) % profile.padding))
        offset += len(values[-1])
    header = magic + struct.pack(f"{order}IH", _DIRECTORY, len(tags))
    return b"".join([header, *entries, bytes(4), *values])


def _tag(entry: object, content: bytes) -> ProfileTag:
    """Return a tag of tifffile with its bytes, which must lie within the file."""
    size = TYPE_SIZES[int(entry.dtype)] * entry.count
    end = entry.valueoffset + size
    if not 0 < end <= len(content):
        raise ValueError(f"tag {entry.code} ends behind the file")
    return ProfileTag(
        int(entry.code), int(entry.dtype), entry.count, content[entry.valueoffset : end]
    )


class IlluminantMatrices(NamedTuple):
    """Matrices of a profile under one illuminant.

    Attributes:
      illuminant: EXIF's number of the light source, such as 17 for standard illuminant A.
      color_matrix: matrix from XYZ under the illuminant to camera colours.
      forward_matrix: matrix from white-balanced camera colours to XYZ under D50.
    """

    illuminant: int
    color_matrix: Float[np.ndarray, "3 3"]
    forward_matrix: Float[np.ndarray, "3 3"]


def new_profile(camera: str, name: str, matrices: Sequence[IlluminantMatrices]) -> CameraProfile:
    """Return a profile of one or two illuminants.

    Args:
      camera: UniqueCameraModel, by which converters find the profile.
      name: name that converters show.
      matrices: those of each illuminant, the first one the warmest as is usual.
    """
    tags = [_text_tag(50708, camera), _text_tag(50936, name)]  # UniqueCameraModel, ProfileName
    tags.append(ProfileTag(50941, LONG, 1, struct.pack("<I", 0)))  # ProfileEmbedPolicy: copy
    for place, fitted in enumerate(matrices):
        illuminant = struct.pack("<H", fitted.illuminant)
        tags.append(ProfileTag(50778 + place, SHORT, 1, illuminant))  # CalibrationIlluminant
        tags.append(_matrix_tag(50721 + place, fitted.color_matrix))  # ColorMatrix
        tags.append(_matrix_tag(50964 + place, fitted.forward_matrix))  # ForwardMatrix
    return CameraProfile(tuple(sorted(tags)))


def _text_tag(code: int, text: str) -> ProfileTag:
    data = text.encode("utf-8") + b"\0"
    return ProfileTag(code, ASCII, len(data), data)


def _matrix_tag(code: int, matrix: Float[np.ndarray, "3 3"]) -> ProfileTag:
    return ProfileTag(code, SIGNED_RATIONAL, 9, struct.pack("<18i", *rationals(matrix)))
