"""The command line: `everlight <paper> <run> [options]`."""

import dataclasses
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import tyro

from everlight_data.errors import DataError
from everlight_data.files import one_line
from everlight_experiments.cl_metrics.icifar import ICifarRun, run_icifar
from everlight_experiments.common.export import ExportSettings, export
from everlight_experiments.common.index import ReportsSettings, write_index
from everlight_experiments.common.interruption import (
    begin_stopping,
    end_by_signal,
    signal_received,
    stopping_on_signals,
)
from everlight_experiments.common.plan_settings import PlannedRun, take_plan_options
from everlight_experiments.common.processes import join_processes
from everlight_experiments.common.renamed import refuse_old_names
from everlight_experiments.common.run_folder import remove_empty_folders
from everlight_experiments.common.settings import nearest_names
from everlight_experiments.continual.compare import CompareRun, run_compare
from everlight_experiments.continual.digits import DigitsRun, run_digits
from everlight_experiments.continual.grid import GridRun, run_grid
from everlight_experiments.continual.methods_help import list_methods
from everlight_experiments.continual.plan import StrategiesRun
from everlight_experiments.continual.run import run_continual
from everlight_experiments.continual.table import ContinualRun
from everlight_experiments.continual.tune import TuneRun, run_tune
from everlight_experiments.core50.batches import BatchesRun, run_batches
from everlight_experiments.core50.static import StaticRun, run_static
from everlight_experiments.data import ListSettings, PrepareSettings, list_data, prepare
from everlight_experiments.facts.lifelong import LifelongRun, run_lifelong
from everlight_experiments.iirc.iirc import IIRCRun, run_iirc
from everlight_experiments.plan import PlanSettings, run_plan
from everlight_experiments.tour import TourRun, run_tour
from everlight_experiments.two_camera.calibrate import CalibrateRun, run_calibrate
from everlight_experiments.two_camera.dataset import DatasetRun, run_dataset
from everlight_experiments.two_camera.estimate import EstimateSettings, estimate
from everlight_experiments.two_camera.nus import NusRun, run_nus
from everlight_experiments.two_camera.radiometric import RadiometricRun, run_radiometric
from everlight_experiments.two_camera.s20 import S20Run, run_s20
from everlight_experiments.two_camera.unseen import UnseenRun, run_unseen

# Paper and run, its settings, and what runs it: a new run is one row.
RUNS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "demo": (TourRun, run_tour),
    "cost": (PlanSettings, run_plan),
    "two_camera radiometric": (RadiometricRun, run_radiometric),
    "two_camera nus": (NusRun, run_nus),
    "two_camera dataset": (DatasetRun, run_dataset),
    "two_camera s20": (S20Run, run_s20),
    "two_camera unseen": (UnseenRun, run_unseen),
    "two_camera calibrate": (CalibrateRun, run_calibrate),
    "two_camera estimate": (EstimateSettings, estimate),
    "continual run": (ContinualRun, run_continual),
    "continual grid": (GridRun, run_grid),
    "continual tune": (TuneRun, run_tune),
    "compare": (CompareRun, run_compare),
    "continual digits": (DigitsRun, run_digits),
    "cl_metrics icifar": (ICifarRun, run_icifar),
    "iirc benchmark": (IIRCRun, run_iirc),
    "core50 batches": (BatchesRun, run_batches),
    "core50 static": (StaticRun, run_static),
    "facts lifelong": (LifelongRun, run_lifelong),
    "data list": (ListSettings, list_data),
    "data prepare": (PrepareSettings, prepare),
    "reports": (ReportsSettings, write_index),
    "export": (ExportSettings, export),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command and runs it; an error about its input ends it with one line.

    A signal to stop ends the process as that signal does, after a checkpoint.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        # Names of files may hold bytes that are no text.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with stopping_on_signals():
        try:
            _run(arguments)
            sys.stdout.flush()
        except BaseException as error:
            _end(error)
            raise


def _end(error: BaseException) -> None:
    """Ends the process where the error is one of the input, the system or a signal's."""
    number = signal_received()
    begin_stopping()
    remove_empty_folders()
    if number is not None:
        print(
            f"stopped by {signal.Signals(number).name}; a run's same command goes on after what is "
            "finished, at the newest checkpoint",
            file=sys.stderr,
        )
        end_by_signal(number)
    if isinstance(error, DataError):
        sys.exit(f"error: {' '.join(str(error).split())}")
    if isinstance(error, MemoryError):
        sys.exit(
            "error: there is not enough memory for these settings; give smaller ones. What is "
            "finished is kept."
        )
    if isinstance(error, jax.errors.JaxRuntimeError) and jax.process_count() > 1:
        print(
            f"error: {one_line(error)}. One of the processes that were joined may be gone; start "
            "the same command on all of them again, which goes on at the newest checkpoint.",
            file=sys.stderr,
            flush=True,
        )
        # What is left would wait for the others.
        os._exit(1)
    if isinstance(error, OSError):
        _give_up_output()
        what = one_line(error.strerror or error)
        sys.exit(
            f"error: {error.filename or 'the output'}: {what}. What is finished is kept; the same "
            "command goes on once this is mended."
        )


def _run(arguments: Sequence[str]) -> None:
    if arguments[:1] in (["--help"], ["-h"]):
        print(_overview(""))
        return
    if len(arguments) == 2 and arguments[1] in ("--help", "-h"):
        of_paper = arguments[0].replace("-", "_")
        if any(name.startswith(f"{of_paper} ") for name in RUNS):
            print(_overview("", of_paper))
            return
    words = 1 if arguments and arguments[0] in RUNS else 2
    name = " ".join(arguments[:words]).replace("-", "_")
    if name not in RUNS:
        sys.exit(_overview(" ".join(arguments[:words])))
    settings_type, command = RUNS[name]
    prog = f"everlight {name}"
    refuse_old_names(arguments[words:], settings_type)
    given, plan = take_plan_options(arguments[words:])
    if plan and not issubclass(settings_type, PlannedRun):
        raise DataError(f"--plan.{next(iter(plan))}: {name} has no plan; --help lists its options")
    settings = tyro.cli(
        settings_type, args=given, prog=prog, description=_description(settings_type), config=()
    )
    join_processes(getattr(settings, "distributed", None))
    command(dataclasses.replace(settings, plan=settings.plan | plan) if plan else settings)


def _description(settings_type: type) -> str:
    """Return the head of a command's help; where any method may run, with all methods."""
    head = settings_type.__doc__ or ""
    takes_any = issubclass(settings_type, StrategiesRun | GridRun | TuneRun)
    return f"{head}\n\n{list_methods()}" if takes_any else head


def _give_up_output() -> None:
    """Where it cannot be written to, so that Python does not try again as it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _overview(asked: str, of_paper: str = "") -> str:
    """All runs, or a paper's, with a line each."""
    near = nearest_names(asked, list(RUNS))
    meant = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    refusal = f"There is no run {asked!a}.{meant}\n\n" if asked else ""
    shown = [name for name in RUNS if not of_paper or name.startswith(f"{of_paper} ")]
    width = max(map(len, shown))
    rows = [
        f"  {name:<{width}}  {(RUNS[name][0].__doc__ or '').strip().splitlines()[0]}"
        for name in shown
    ]
    return (
        f"{refusal}usage: everlight {of_paper or 'GROUP'} COMMAND [options]\n\n"
        + "\n".join(rows)
        + "\n\nEach run leaves a folder with report.html under runs/. Add --help for its options.\n"
        "EVERLIGHT_DATA names the folder of real data sets; see docs/guide/data.md."
    )
