"""The static benchmark of CORe50: all training sessions at once; presets as those of CORe50."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from everlight.scenarios.core50 import Level
from everlight_experiments.continual.benchmarks.statements import AS_PUBLISHED
from everlight_experiments.core50.config import ON_TRAINING_SESSIONS, Base, Length, Pretraining
from everlight_experiments.run_folder.options import Preset


@dataclass(frozen=True, kw_only=True)
class StaticConfig(Base):
    """Options of the static benchmark's command."""

    not_identifying: ClassVar[tuple[str, ...]] = (
        *Base.not_identifying,
        *("levels", "fine_tuning", "scratch"),
    )
    levels: tuple[Level, ...] = ("object", "category")
    """Classes to predict: the 50 objects or the 10 categories."""
    fine_tuning: Length
    """Training of the pretrained network."""
    scratch: Length
    """Training of the network that begins at random."""


STATIC_PRESETS: Mapping[Preset, StaticConfig] = {
    "demo": StaticConfig(
        frames=8,
        fine_tuning=Length(240, 240, 1e-2),
        scratch=Length(480, 480, 1e-2),
        chosen=ON_TRAINING_SESSIONS,
    ),
    "small": StaticConfig(
        frames=20,
        pretraining=Pretraining(images=120),
        fine_tuning=Length(960, 960, 1e-2),
        scratch=Length(1920, 1920, 1e-2),
        chosen=ON_TRAINING_SESSIONS,
    ),
    "paper": StaticConfig(
        data="core50",
        frames=300,
        side=128,
        net="Mid-CaffeNet",
        dense_rate=10.0,
        batch_size=256,
        fine_tuning=Length(2000, 2000, 1e-3),
        scratch=Length(10_000, 10_000, 1e-2),
        chosen=AS_PUBLISHED,
    ),
}
