"""Options of a run for tests of its folder, and what config.json holds of them."""

import json
from dataclasses import dataclass

from everlight_experiments.run_folder.options import ExperimentOptions


@dataclass(frozen=True)
class Settings(ExperimentOptions):
    seeds: tuple[int, ...] = (0, 1)
    rate: float = 0.1


def config_of(folder):
    return json.loads((folder.path / "config.json").read_text())
