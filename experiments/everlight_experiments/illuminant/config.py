"""Presets of the illuminant commands, read top to bottom; nothing is computed here."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from everlight.illuminant.illuminant_training import TrainingSettings
from everlight_data.color.rendered.rendered_pairs import Condition
from everlight_experiments.run_folder.options import Preset

MAIN, SECOND = "NikonD5200", "Canon1DsMkIII"
"""Main and second camera of the paper's table 2."""

PairPreset = Literal[
    "rendered-demo",
    "rendered-small",
    "rendered-paper",
    "nus-demo",
    "nus-small",
    "nus-paper",
    "s20-demo",
    "s20-small",
    "s20-paper",
]


@dataclass(frozen=True)
class PairConfig:
    """One preset of `everlight paper two-camera`.

    Attributes:
      data: "rendered" scenes (table 1), "photographs" of one camera (table 2 without its second
        camera), "quasi-real" pairs (table 2), or a phone's "transforms" (tables 3 and 4).
      training: optimizer settings of the networks.
      measured: whether spectra, photographs and transforms are measured and lie below
        EVERLIGHT_DATA; otherwise they are rendered from the spectra of colour-science.
      scenes: number of rendered scenes.
      image_methods: trained methods that read the rendered photographs, in addition to gamuts.
    """

    data: Literal["rendered", "photographs", "quasi-real", "transforms"]
    training: TrainingSettings
    measured: bool = True
    scenes: int = 0
    image_methods: tuple[str, ...] = ("FFCC", "C5, small form")


# The rates 1e-2 and 2e-2 are equally good on validation pairs and scenes, and better than 3e-3.
PRESETS: dict[PairPreset, PairConfig] = {
    "rendered-demo": PairConfig(
        "rendered",
        TrainingSettings(6_000, 256, 1e-2, validate_every=60),
        measured=False,
        scenes=12_000,
        image_methods=("FFCC",),
    ),
    "rendered-small": PairConfig("rendered", TrainingSettings(20_000, 512, 1e-2), scenes=18_000),
    # An epoch has 11 batches; validation is every 100 epochs.
    "rendered-paper": PairConfig(
        "rendered",
        TrainingSettings(11_000_000, 1024, 1e-4, "constant", validate_every=1_100),
        scenes=18_000,
    ),
    "nus-demo": PairConfig(
        "photographs", TrainingSettings(4_000, 128, validate_every=50), measured=False
    ),
    "nus-small": PairConfig("photographs", TrainingSettings(4_000, 128, validate_every=50)),
    "nus-paper": PairConfig(
        "quasi-real", TrainingSettings(500_000, 1_024, 1e-3, "constant", validate_every=100)
    ),
    "s20-demo": PairConfig(
        "transforms", TrainingSettings(2_000, 128, validate_every=50), measured=False
    ),
    "s20-small": PairConfig("transforms", TrainingSettings(6_000, 128, validate_every=50)),
    "s20-paper": PairConfig(
        "transforms", TrainingSettings(500_000, 0, 1e-3, "constant", validate_every=100)
    ),
}

RENDERED = 162
"""Scenes that the preset demo renders by every camera."""
MIN_IMAGES = 45
"""Minimum number of images: two thirds, less the validation part, must determine 20 numbers."""

DATASET: dict[Preset, TrainingSettings] = {
    "demo": TrainingSettings(1_000, 128, validate_every=50),
    "small": TrainingSettings(4_000, 128, validate_every=50),
    "paper": TrainingSettings(20_000, 128, validate_every=50),
}
"""Training of networks on colour moments in `everlight illuminant dataset`."""

CALIBRATE: dict[Preset, TrainingSettings] = {
    "demo": TrainingSettings(3_000, 128, validate_every=50),
    "small": TrainingSettings(3_000, 128, validate_every=50),
    "paper": TrainingSettings(20_000, 128, validate_every=50),
}
"""Training of networks in `everlight illuminant calibrate` and `pairs`."""
SAMPLES = 4_096
"""Samples of a training with its re-illuminations, equal in every fold."""

RATES = (3e-3, 1e-2)
"""Learning rates for a phone's transforms; each fold's validation pairs select one.

With the paper's test-set selection the preset's own rate is used.
"""
RESTARTS = 2
"""Trainings of every network on rendered scenes; validation selects one."""


class Network(NamedTuple):
    """A network's input and number of hidden layers."""

    input_name: str
    depth: int


EQUAL_SIZE = "Net on moments and edge moments, 551 parameters"
"""Network of one camera of the size of the one on T and moments."""
RENDERED_NETWORKS: dict[Condition, dict[str, Network]] = {
    "exact": {
        "Net, 200 parameters": Network("T", 2),
        "Net, 470 parameters": Network("T", 5),
        "Net, 1460 parameters": Network("T", 16),
        "Net, 470 parameters, T with exposure": Network("T with exposure", 5),
        "Net, 470 parameters, T of sum-normalised": Network("T of sum-normalised", 5),
        "Net on moments, 470 parameters": Network("moments", 5),
        "Net on T and moments, 551 parameters": Network("T and moments", 5),
        EQUAL_SIZE: Network("moments and edge moments", 5),
    },
    "noisy": {
        "Net, 470 parameters": Network("T", 5),
        "Net, 470 parameters, T of sum-normalised": Network("T of sum-normalised", 5),
        "Net on moments, 470 parameters": Network("moments", 5),
        "Net on T and moments, 551 parameters": Network("T and moments", 5),
        EQUAL_SIZE: Network("moments and edge moments", 5),
        "Net on exposures, 470 parameters": Network("exposures", 5),
        "Net on exposures and moments, 551 parameters": Network("exposures and moments", 5),
        "Net on ambient sensor, 461 parameters": Network("ambient sensor", 5),
        "Net on ambient sensor and moments, 542 parameters": Network(
            "ambient sensor and moments", 5
        ),
    },
}
"""Networks of table 1, on exact responses and on noisy sensors."""
