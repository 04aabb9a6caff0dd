"""CORe50's release, read once into the folder where the runs of scale paper look for it.

    EVERLIGHT_DATA=data python -m experiments core50 prepare core50_128x128.zip

It goes on where it was stopped.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from data_pipelines.errors import MissingDataError
from data_pipelines.images.core50 import FOLDER, prepare_core50
from data_pipelines.images.core50_release import FRAME_COUNTS, SIZE
from data_pipelines.locations import data_root


@dataclass(frozen=True)
class PrepareSettings:
    """Prepare CORe50's release in EVERLIGHT_DATA for the other two runs at the scale paper.

    Attributes:
      release: the zip core50_128x128.zip, or the folder with its files.
      partial: prepare an incomplete release too.
    """

    release: tyro.conf.Positional[Path]
    partial: bool = False


def prepare(settings: PrepareSettings) -> Path:
    """Prepares it and prints what was found; returns the folder.

    Raises:
      DataError: EVERLIGHT_DATA is not set, or the release is missing, incomplete or damaged; named.
    """
    root = data_root()
    if root is None:
        raise MissingDataError(
            "EVERLIGHT_DATA is not set. Set EVERLIGHT_DATA=<folder> to the folder of the data "
            f"sets; CORe50 ({SIZE}) is prepared in <folder>/{FOLDER}."
        )
    manifest = prepare_core50(settings.release, root / FOLDER, settings.partial)
    sessions, objects = (len(np.unique(each)) for each in (manifest.session, manifest.object))
    aside = ", ".join(f"{count:,} {name}" for name, count in manifest.aside.items())
    print(
        f"{settings.release}: {len(manifest.frame):,} of {FRAME_COUNTS.sum():,} frames, "
        f"{objects} objects in {sessions} sessions; files left aside: {aside}\n"
        f"prepared: {root / FOLDER}"
    )
    return root / FOLDER
