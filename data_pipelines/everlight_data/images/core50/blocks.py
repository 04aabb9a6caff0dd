"""Files of CORe50's frames, written and read in blocks that each have a checksum.

A file `images_128.npy` has its blocks' CRC-32 beside it in `images_128.crc32`. While it is written
it is called `images_128.part`; an interrupted writing continues after its last valid block.
"""

import io
import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from everlight_data.errors import DataError
from everlight_data.formats.arrays import dtype_and_shape, map_npy
from everlight_data.formats.files import MAX_RELEASE_BYTES, opened
from everlight_data.formats.tables import read_json
from everlight_data.locks import locked_folder
from everlight_data.progress import progress
from everlight_data.writing import cannot_write, check_room, written_whole

BLOCK = 512
"""Frames per checksum."""
REMEDY = "Prepare CORe50 again; only damaged parts are read again."
BUSY = "Wait until it has prepared CORe50."

Block = Callable[[int, int], list[np.ndarray] | np.ndarray]
"""Function from a range of frames, first and end, to the frames."""


class FrameFile(NamedTuple):
    """An .npy file of square RGB frames, uint8 `[count, side, side, 3]`, complete or in part."""

    path: Path
    count: int
    """Number of frames."""
    side: int
    """Side of the frames in pixels."""

    @property
    def part(self) -> "FrameFile":
        """The same frames while they are written."""
        return self._replace(path=self.path.with_suffix(".part"))

    @property
    def sums_path(self) -> Path:
        """Path of the checksums, which a file and its unfinished part share."""
        return self.path.with_suffix(".crc32")

    @property
    def starts(self) -> range:
        """First frame of each block."""
        return range(0, self.count, BLOCK)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of all frames."""
        return (self.count, self.side, self.side, 3)

    def _header(self) -> bytes:
        stream = io.BytesIO()
        header = {"descr": "|u1", "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(stream, header)
        return stream.getvalue()

    def _size(self, frames: int) -> int:
        return frames * self.side * self.side * 3

    def write(self, block: Block) -> None:
        """Write the file, which gets its name once it is complete.

        Blocks whose checksums match are kept.

        Raises:
          DataError: the disk is too small or cannot be written, or another process writes there.
        """
        with locked_folder(self.path.parent, BUSY):
            if self.path.exists() and not self.part.path.exists():
                if all(self.valid_blocks()):
                    return
                self.path.replace(self.part.path)
            valid = self.part.valid_blocks()
            sums = self._read_sums() if any(valid) else [None] * len(valid)
            check_room(self.path.parent, self._size(valid.count(False) * BLOCK), self.path.name)
            try:
                self.part._write_blocks(valid, sums, block)
                self.part.path.replace(self.path)
            except OSError as error:
                if isinstance(error, DataError):
                    raise
                raise cannot_write(self.part.path, error) from error

    def _write_blocks(self, valid: Sequence[bool], sums: list[int | None], block: Block) -> None:
        """Write the invalid blocks, each with its checksum."""
        header = self._header()
        done = min(BLOCK * valid.count(True), self.count)
        bar = progress(self.path.stem, self.count, done, "frame")
        # Not mapped: writing to a mapped file on a full disk ends the process.
        with bar, self.path.open("r+b" if self.path.exists() else "w+b") as stream:
            stream.write(header)
            stream.truncate(len(header) + self._size(self.count))
            for number in np.flatnonzero(~np.array(valid)).tolist():
                first, last = number * BLOCK, min((number + 1) * BLOCK, self.count)
                content = np.asarray(block(first, last)).tobytes()
                stream.seek(len(header) + self._size(first))
                stream.write(content)
                stream.flush()
                sums[number] = zlib.crc32(content)
                with written_whole(self.sums_path) as unfinished:
                    unfinished.write_text(json.dumps(sums))
                bar.update(last - first)
            os.fsync(stream.fileno())

    def _read_sums(self) -> list[int | None]:
        """Return the checksum of each block, None for blocks not written yet."""
        sums, blocks = read_json(self.sums_path, REMEDY), len(self.starts)
        if not isinstance(sums, list) or len(sums) != blocks:
            raise DataError(
                f"{self.sums_path} does not have a checksum for each of {blocks} blocks. {REMEDY}"
            )
        return sums

    def valid_blocks(self) -> list[bool]:
        """Return True for each block that matches its checksum; all False without a file."""
        header, invalid = self._header(), [False] * len(self.starts)
        try:
            sums, valid = self._read_sums(), []
            with opened(self.path, MAX_RELEASE_BYTES, REMEDY) as stream:
                if stream.read(len(header)) != header:
                    return invalid
                for start, expected in zip(self.starts, sums, strict=True):
                    length = self._size(min(start + BLOCK, self.count) - start)
                    valid.append(zlib.crc32(stream.read(length)) == expected)
                if stream.read(1):
                    valid[-1] = False
            return valid
        except DataError:
            return invalid

    def check(self) -> None:
        """Compare all blocks with their checksums.

        Raises:
          DataError: a block differs, or the checksums are missing or damaged.
        """
        self._read_sums()
        valid = self.valid_blocks()
        if not all(valid):
            first = BLOCK * valid.index(False)
            raise DataError(
                f"{self.path} is damaged: frames {first} to {min(first + BLOCK, self.count) - 1} "
                f"differ from their checksum ({valid.count(False)} of {len(valid)} blocks do). "
                f"{REMEDY}"
            )

    def map(self) -> UInt8[np.ndarray, "n side side 3"]:
        """Map the frames into memory, read-only.

        Raises:
          DataError: the file is missing or damaged, or has another shape or type.
        """
        images = map_npy(self.path, REMEDY)
        if images.shape != self.shape or images.dtype != np.uint8:
            raise DataError(
                f"{self.path} has {dtype_and_shape(images)}, but its manifest lists {self.count} "
                f"frames. {REMEDY}"
            )
        return images
