"""Reader of CORe50's release: present frames, missing frames and pixels.

In `s{1..11}/o{1..50}/C_{ss}_{oo}_{fff}.png`, s is the session, o the object and f the frame, at 20
frames per second with gaps. Session and object count from 0 in this module.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt8

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.archives import Member, opened_archive, opened_source
from everlight_data.formats.files import refusing
from everlight_data.formats.image_headers import png_size
from everlight_data.optional_packages import import_package

ARCHIVE, ARCHIVE_SIZE = "core50_128x128.zip", "about 6 GB"
OWNER = "vlomonaco.github.io/core50"
SOURCE = f"{ARCHIVE} from {OWNER}"
_REMEDY = f"Download it again: {SOURCE}."
SIDE = 128
MAX_FRAME_BYTES = 200_000
"""Limit on the size of a frame's PNG; its decoded pixels take 49,152 bytes."""
MAX_PIXELS = 1_000_000
"""Limit on the pixels of a decoded image."""

# Numbers of frames that objects (digits) lack of 300 in each session (row), by the authors.
_SHORT = (
    "04000100200100000001000000000000000000200000000000",
    "00000000000001000000020005102000000120000000000000",
    "10000000000000020000000000100000001002000000000100",
    "00300000001000000000000000000000000010000000000000",
    "10000000003300127011000011100000000003000020201400",
    "01002001000000010000020001000000000000000000300000",
    "00000000400000010000000000000000000010000000000000",
    "01210000010002420000000000000000000001020000000000",
    "00000000000000000000000000000000000001000013000100",
    "00000000000000020000000101000003000000020000102101",
    "00000003301000000100000000000000000000000000001000",
)
FRAME_COUNTS: Int[np.ndarray, "11 50"] = 300 - np.array([[*map(int, row)] for row in _SHORT])
"""Frames per session and object in the complete release, 164,866 in all."""

MAX_SHOWN_PARTS, MAX_SHOWN_SESSIONS, MAX_SHOWN_RANGES = 11, 3, 6
"""Limits on the missing parts in a message: object groups, sessions with named objects, ranges."""

Read = Callable[[str], bytes]


class FrameTable(NamedTuple):
    """Frames found, sorted by session, object and time, one entry per frame."""

    source: str
    """Name of the folder or zip of the release."""
    session: Int[np.ndarray, "n"]
    object: Int[np.ndarray, "n"]
    frame: Int[np.ndarray, "n"]
    size: Int[np.ndarray, "n"]
    """Size of the PNG in bytes."""
    aside: dict[str, int]
    """Numbers of other files: "depth" images, "350x350" frames and "other" files."""

    def counts(self) -> Int[np.ndarray, "11 50"]:
        """Return the number of frames found per session and object."""
        return count_frames(self.session, self.object)


def count_frames(
    session: Int[np.ndarray, "n"], number: Int[np.ndarray, "n"]
) -> Int[np.ndarray, "11 50"]:
    """Count the frames per session and object."""
    counts = np.zeros_like(FRAME_COUNTS)
    np.add.at(counts, (session, number), 1)
    return counts


@contextmanager
def opened_release(source: Path) -> Iterator[tuple[list[Member], Read]]:
    """Open a folder or zip; yield its files and their reader.

    Raises:
      MissingDataError: the file or folder does not exist.
      DataError: the zip is damaged.
    """
    if not source.exists():
        raise MissingDataError(f"{source} does not exist. Download {SOURCE} ({ARCHIVE_SIZE}).")
    opening = opened_source if source.is_dir() else opened_archive
    with opening(source, f"Download it completely: {SOURCE}.") as files:
        yield files.files(), lambda name: files.read(name, MAX_FRAME_BYTES)


_FRAME = re.compile(r"(?:.*/)?s(\d+)/o(\d+)/C_(\d\d)_(\d\d)_(\d{3})\.png")


def list_frames(files: list[Member], source: Path) -> tuple[list[str], FrameTable]:
    """Return the frames' sorted names and their table.

    Raises:
      MissingDataError: no file is a frame.
      DataError: a frame occurs twice, or its name is not one of CORe50's; the message names it.
    """
    aside = Counter({"depth": 0, "350x350": 0, "other": 0})
    frames: dict[tuple[int, int, int], Member] = {}
    for name, size in files:
        match = _FRAME.fullmatch(name)
        if "depth" in name.lower() or Path(name).name.startswith("D_"):
            aside["depth"] += 1
        elif "350x350" in name:
            aside["350x350"] += 1
        elif match is None:
            aside["other"] += 1
        else:
            ids = _ids(match, source)
            if ids in frames:
                raise DataError(
                    f"{source} holds a frame twice, {frames[ids].name} and {name}. Remove one."
                )
            frames[ids] = Member(name, size)
    if not frames:
        raise MissingDataError(
            f"{source} holds no 128x128 frame s*/o*/C_*.png, but {aside['depth']} depth images, "
            f"{aside['350x350']} of 350x350 and {aside['other']} other files. "
            + _remedy(files, source)
        )
    ordered = sorted(frames)
    session, objects, frame = np.array(ordered, np.int32).T
    names, sizes = zip(*(frames[ids] for ids in ordered), strict=True)
    return list(names), FrameTable(
        source.name, session, objects, frame, np.array(sizes, np.int32), dict(aside)
    )


def _remedy(files: list[Member], source: Path) -> str:
    zips = [name for name, _ in files if name.lower().endswith(".zip")]
    return (
        f"Give the zip itself: {source / min(zips)}."
        if zips
        else f"Download {SOURCE} ({ARCHIVE_SIZE})."
    )


def _ids(match: re.Match[str], source: Path) -> tuple[int, int, int]:
    session, number, *named, frame = (int(part) for part in match.groups())
    if named != [session, number] or not (1 <= session <= 11 and 1 <= number <= 50):
        raise DataError(
            f"{source}: {match[0]} is not a file name of CORe50. Download {SOURCE} again."
        )
    return session - 1, number - 1, frame


def check_counts(counts: Int[np.ndarray, "11 50"], origin: Path, partial: bool) -> None:
    """Compare the frame counts with the authors' table.

    Raises:
      DataError: there are too many frames, or too few and `partial` is False; the message names
        them.
    """
    for session, number in np.argwhere(counts > FRAME_COUNTS):
        raise DataError(
            f"{origin}: {counts[session, number]} frames in s{session + 1}/o{number + 1}, but the "
            f"release has {FRAME_COUNTS[session, number]}. Download {SOURCE} again."
        )
    if not partial and (counts < FRAME_COUNTS).any():
        raise DataError(
            f"{origin} is incomplete, {counts.sum()} of {FRAME_COUNTS.sum()} frames: "
            f"{_describe_missing(counts)}. Download the rest ({SOURCE}), or give partial "
            "(--partial) to use what is there."
        )


def _describe_missing(counts: Int[np.ndarray, "11 50"]) -> str:
    """Describe the missing frames by object if that is short, else by session."""
    short = [np.flatnonzero(lacks) for lacks in counts < FRAME_COUNTS]
    sessions = [session for session, objects in enumerate(short) if len(objects)]
    parts = {
        session: _object_counts(counts[session], session, short[session]) for session in sessions
    }
    if sum(map(len, parts.values())) <= MAX_SHOWN_PARTS:
        return "; ".join(f"s{s + 1}: {', '.join(text)}" for s, text in parts.items())
    totals = []
    for place, session in enumerate(sessions):
        missing, official = (FRAME_COUNTS - counts)[session].sum(), FRAME_COUNTS[session].sum()
        named = f" ({_ranges(short[session])})" if place < MAX_SHOWN_SESSIONS else ""
        objects = f"{len(short[session])} object{'s' * (len(short[session]) > 1)}"
        totals.append(f"s{session + 1}: {missing} of {official} missing, {objects} short{named}")
    return "; ".join(totals)


def _object_counts(
    counts: Int[np.ndarray, "50"], session: int, short: Int[np.ndarray, "k"]
) -> list[str]:
    """Describe objects that lack frames, as in `o7 20 of 300` and `o9-o50 0 of 12587`."""
    official = FRAME_COUNTS[session]
    # Neighbours without any frame are described as one range.
    joined = (np.diff(short) == 1) & (counts[short[1:]] == 0) & (counts[short[:-1]] == 0)
    return [
        f"{_name(run)} {counts[run].sum()} of {official[run].sum()}" for run in _runs(short, joined)
    ]


def _ranges(short: Int[np.ndarray, "k"]) -> str:
    """Return the first ranges of objects, as in `o1-o2, o4`."""
    names = [_name(run) for run in _runs(short, np.diff(short) == 1)]
    return ", ".join(names[:MAX_SHOWN_RANGES] + ["..."] * (len(names) > MAX_SHOWN_RANGES))


def _runs(
    objects: Int[np.ndarray, "k"], joined: Bool[np.ndarray, "k-1"]
) -> list[Int[np.ndarray, "j"]]:
    return np.split(objects, np.flatnonzero(~joined) + 1)


def _name(run: Int[np.ndarray, "j"]) -> str:
    return f"o{run[0] + 1}" + (f"-o{run[-1] + 1}" if len(run) > 1 else "")


def decode_frame(read: Read, source: Path, name: str) -> UInt8[np.ndarray, "128 128 3"]:
    """Decode one frame.

    Raises:
      MissingPackageError: imagecodecs is not installed.
      DataError: the frame is damaged or not a 128x128 RGB image; the message names it.
    """
    with refusing(f"{source}: {name}", _REMEDY):
        content = read(name)
        height, width = png_size(content)
        if height * width > MAX_PIXELS:
            raise ValueError(f"{height}x{width} pixels; give frames of {SIDE}x{SIDE}")
        pixels = import_package("imagecodecs").png_decode(content)
    if pixels.shape != (SIDE, SIDE, 3) or pixels.dtype != np.uint8:
        raise DataError(
            f"{source}: {name} has dtype {pixels.dtype} and shape {pixels.shape}, not uint8 "
            f"and (128, 128, 3). Download the 128x128 frames: {SOURCE}."
        )
    return pixels
