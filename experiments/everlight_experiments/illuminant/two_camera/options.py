"""Options of `everlight paper two-camera`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from everlight.checks import Between
from everlight_data.color.photographs.published_folds import FOLDS
from everlight_experiments.illuminant.config import PRESETS, PairPreset
from everlight_experiments.run_folder.options import Count, ExperimentOptions

BLOCK = 9
"""Number of consecutive pairs in a block of s20 presets."""
MIN_SCENES = 16
"""Minimum number of scenes: ten train, and linear regression fits that many numbers."""
BOTH_RULES = "held-out selection and the paper's test-set selection, a table each; quote held-out"
"""Selection rule of an experiment on folds, for its report."""
READERS = {
    "seeds": "nus and s20 presets",
    "camera_pairs": "rendered presets except the demo",
    "scenes": "rendered presets",
    "block": "s20 presets",
}
"""Presets, in words, by the options that only some of them read."""


@dataclass(frozen=True)
class TwoCameraOptions(ExperimentOptions):
    """Reproduce the two-camera paper's tables 1 to 4, each as a preset."""

    preset: PairPreset = "rendered-demo"
    """Configuration to run: rendered scenes (table 1), NUS photographs (table 2), or S20 phone
    pairs (tables 3 and 4); a demo needs no data, small runs on two cores, paper has the paper's
    optimizer."""
    seeds: Count = 8
    """Number of trainings per fold of nus and s20 presets, each with its own initialization and
    validation pairs."""
    camera_pairs: Annotated[int, Between(1, 378)] = 5
    """Number of randomly drawn pairs of measured cameras, for rendered presets except the demo."""
    scenes: Annotated[int, Between(MIN_SCENES, 10_000_000)] | None = None
    """Number of scenes of 24 surfaces, split 60/20/20, for rendered presets; by default 12,000 for
    the demo and 18,000 for others."""

    block: Annotated[int, Between(1, 54)] | None = None
    """Number of consecutive pairs that s20 presets hold out and resample together, 9 if none is
    given: pictures taken one after another share their illuminant. 1 takes the published folds of
    single pairs, beside the paper's table 3."""

    @property
    def training_seeds(self) -> Sequence[int]:
        """Seeds of a fold's trainings; the first also draws the folds that are not published."""
        return range(self.seed, self.seed + self.seeds)

    @property
    def _blocks(self) -> str:
        single = self.block in (None, 1)
        return "" if single else f" of whole blocks of {self.block} consecutive pairs"

    @property
    def protocol_in_folds(self) -> dict[str, str]:
        """Row of the report on the folds."""
        words = f"{FOLDS} folds{self._blocks}; statistics within a fold, averaged over folds"
        return {"Protocol": words}

    @property
    def seeds_in_folds(self) -> str:
        """Seeds of an experiment on folds, in words."""
        return f"{self.seeds} per fold, from {self.seed}{self._drawing}"

    @property
    def _drawing(self) -> str:
        """Words on what draws the folds; those of single measured pairs are published."""
        is_published = self.block == 1 and PRESETS[self.preset].measured
        return "; published folds" if is_published else ", which also draws the folds"
