"""Options of `everlight illuminant pairs`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from everlight.checks import Between
from everlight_data.errors import DataError
from everlight_experiments.run_folder.options import Count, ExperimentOptions, Preset, refuse_unread


@dataclass(frozen=True)
class PairsOptions(ExperimentOptions):
    """Test whether a second camera helps, on pairs of photographs with known illuminants."""

    main: Path | None = None
    """Photographs of the camera whose illuminant is estimated: a folder of raw files, or of linear
    PNG and TIFF of 16 bits, with illuminants.csv (columns file, red, green, blue); or an .npz file
    of thumbnails as for `illuminant dataset`. An illuminant is the raw colour of a grey surface in
    the photo, on any scale."""
    second: Path | None = None
    """Photographs of the second camera, in either form."""
    preset: Preset = "small"
    """Configuration to run: demo renders 162 pairs of two cameras, small trains 3,000 steps, paper
    20,000."""
    match: Path | None = None
    """CSV file with the columns main and second: the names of both images of each pair, without
    the extension of a photo. Without it both names are equal, or end in the same number."""
    groups: Path | None = None
    """Text file with a word per pair, in the order of the main images or of --match: its scene
    or session. Folds and intervals take whole groups. Without it each --block is a group."""
    block: Annotated[int, Between(1, 10_000)] = 1
    """Number of consecutive pairs in a group. Pictures taken one after another share their
    illuminant: give the number that does."""
    folds: Path | None = None
    """File with the fold, 1 to 3, of each pair, as for `illuminant dataset`. Without it folds of
    whole groups are drawn by --seed."""
    side: Annotated[int, Between(32, 512)] = 64
    """Longest side in pixels; larger photos are averaged down to it before they are registered."""
    seeds: Count = 5
    """Number of trainings per network, each with its own initialization and validation pairs."""

    def check_sources(self) -> None:
        """Refuse options that contradict each other.

        Raises:
          DataError: a camera is missing, or options exclude each other.
        """
        if self.preset == "demo":
            if self.main or self.second:
                raise DataError("--preset demo renders its own pairs; leave out the photographs")
            readers = {"match": "photographs", "side": "photographs"}
            refuse_unread(self, readers, (), "--preset demo renders its own pairs")
        elif self.main is None or self.second is None:
            raise DataError("give the photographs of both cameras, --main and --second")
        if self.groups is not None and self.block > 1:
            raise DataError("--groups and --block both make groups; give one")
