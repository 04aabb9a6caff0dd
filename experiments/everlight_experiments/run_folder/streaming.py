"""Image files that cannot be decoded, found once per run and left out."""

import zlib

import numpy as np

from everlight_data.images.imagenet import ImageFiles, leave_out
from everlight_data.images.inputs.jpeg_store import JpegStore
from everlight_data.progress import progress
from everlight_experiments.run_folder.folder import RunFolder

CHECKED_AT_A_TIME = 1000
"""Files that are decoded between two steps of a progress bar."""


def leave_out_undecodable(folder: RunFolder, files: ImageFiles, store: JpegStore) -> ImageFiles:
    """Return the files without damaged images; every file is decoded once per run.

    Raises:
      DataError: the run has checked other files before, or one is too large for the store.
    """

    def check() -> dict[str, np.ndarray]:
        places, parts = np.arange(len(files.images)), []
        with progress("checking files", len(places), unit="file") as bar:
            for start in range(0, len(places), CHECKED_AT_A_TIME):
                some = places[start : start + CHECKED_AT_A_TIME]
                parts.append(store.undecodable(some))
                bar.update(len(some))
        return {"places": np.concatenate(parts)}

    undecodable = folder.computed("undecodable", {"files": zlib.crc32(files.images)}, check)
    left = leave_out(files, undecodable["places"])
    folder.log(event="files", count=len(left.images), remarks=list(left.remarks))
    return left
