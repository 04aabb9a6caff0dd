"""The command line: `python -m experiments <paper> <run> [options]`."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from data_pipelines.errors import DataError
from experiments.cl_metrics.icifar import ICifarRun, run_icifar
from experiments.core50.batches import BatchesRun, run_batches
from experiments.core50.prepare import PrepareSettings, prepare
from experiments.core50.static import StaticRun, run_static
from experiments.facts.lifelong import LifelongRun, run_lifelong
from experiments.iirc.iirc import IIRCRun, run_iirc
from experiments.tour import TourRun, run_tour
from experiments.two_camera.estimate import EstimateSettings, estimate
from experiments.two_camera.nus import NusRun, run_nus
from experiments.two_camera.radiometric import RadiometricRun, run_radiometric
from experiments.two_camera.s20 import S20Run, run_s20

# Paper and run, its settings, and what runs it: a new run is one row.
RUNS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "everlight tour": (TourRun, run_tour),
    "two_camera radiometric": (RadiometricRun, run_radiometric),
    "two_camera nus": (NusRun, run_nus),
    "two_camera s20": (S20Run, run_s20),
    "two_camera estimate": (EstimateSettings, estimate),
    "cl_metrics icifar": (ICifarRun, run_icifar),
    "iirc benchmark": (IIRCRun, run_iirc),
    "core50 prepare": (PrepareSettings, prepare),
    "core50 batches": (BatchesRun, run_batches),
    "core50 static": (StaticRun, run_static),
    "facts lifelong": (LifelongRun, run_lifelong),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command and runs it; an error about its input ends it with one line."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    name = " ".join(arguments[:2]).replace("-", "_")
    if name not in RUNS:
        sys.exit(_overview(arguments))
    settings_type, command = RUNS[name]
    settings = tyro.cli(
        settings_type, args=arguments[2:], prog=f"python -m experiments {name}", config=()
    )
    try:
        command(settings)
    except DataError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(
            "stopped; the same command goes on after what is finished, at the newest checkpoint"
        )


def _overview(arguments: Sequence[str]) -> str:
    asked = " ".join(arguments[:2])
    refusal = "" if not asked or asked in ("--help", "-h") else f"There is no run '{asked}'.\n\n"
    width = max(map(len, RUNS))
    rows = [
        f"  {name:<{width}}  {(settings.__doc__ or '').strip().splitlines()[0]}"
        for name, (settings, _) in RUNS.items()
    ]
    return (
        f"{refusal}usage: python -m experiments PAPER RUN [options]\n\n"
        + "\n".join(rows)
        + "\n\nEach run leaves a folder with report.html under runs/. Its options: add --help.\n"
        "EVERLIGHT_DATA names the folder of real data sets; README.md says which and from where."
    )
