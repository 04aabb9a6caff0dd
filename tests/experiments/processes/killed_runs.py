"""The experiments' runs, killed at random moments: `FOLDER NAME KILLS [NAME KILLS ...]`.

Every attempt is a process forked from this one, in which all is imported already and nothing of JAX
has begun. A run that is finished is compared with one that was left alone, bit for bit, and it
restarts until the requested number of kills is reached.
"""

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest

from everlight.continual import Protocol
from everlight.illuminant.illuminant_training import TrainingSettings
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.commands.benchmark_registry import default_config
from everlight_experiments.commands.data import PrepareOptions, prepare
from everlight_experiments.commands.options import RunOptions
from everlight_experiments.commands.run import run_benchmark
from everlight_experiments.core50 import start
from everlight_experiments.core50_static.paper import PAPER as STATIC_PAPER
from everlight_experiments.illuminant.config import PRESETS
from everlight_experiments.illuminant.two_camera.command import run_two_camera
from everlight_experiments.illuminant.two_camera.options import TwoCameraOptions
from everlight_experiments.run_folder.config_options import with_config
from tests.experiments.checkpoint_intervals import due_every
from tests.experiments.core50.colored_frames import STATIC, colored_frames, other_objects, requested
from tests.experiments.illuminant.short_rows import set_settings

SHORT = TrainingSettings(40, batch_size=16, validate_every=2)


def two_camera(preset: str, runs: Path, **options: int) -> None:
    """Run a preset with few steps."""
    PRESETS[preset] = replace(PRESETS[preset], training=SHORT)
    run_two_camera(TwoCameraOptions(preset, runs=runs, **options))


def rendered(runs: Path) -> None:
    two_camera("rendered-demo", runs, scenes=60)


def nus(runs: Path) -> None:
    names = "SIIE", "C5, small form", "CCMNet, small form", "FC4-style", "DMCC"
    with pytest.MonkeyPatch.context() as patch:
        set_settings(patch, names, steps=2)
        two_camera("nus-demo", runs, seeds=1)


def core50_static(runs: Path) -> None:
    """Run CORe50's static test with a colour per object instead of the procedural world."""
    start.load_procedural_core50 = lambda frames, world: colored_frames(frames)
    start.load_procedural = other_objects
    STATIC_PAPER.run(requested(runs, STATIC))


def digits(runs: Path, **requested: Any) -> None:
    """Run methods on the digits."""
    result = default_config("digits", "demo")
    config = replace(result, protocol=Protocol(epochs=2, batch_size=64, select="last"), tasks=(2,))
    run_benchmark(
        with_config(RunOptions, config)(
            benchmark="digits", runs=runs, validation_seeds=1, published=False, **requested
        )
    )


def several_seeds(runs: Path) -> None:
    digits(runs, methods=("nearest mean",), seeds=3)


def selecting(runs: Path) -> None:
    settings = ("task-incremental", "class-incremental")
    digits(runs, methods=("streaming LDA",), seeds=2, setting=settings)


def core50_release(runs: Path) -> None:
    """Prepare 600 frames, in two blocks."""
    source = runs.parent / "release"
    for frame in range(600):
        session, number, place = frame // 300 + 1, 1, frame % 300
        path = source / f"s{session}" / "o1" / f"C_{session:02}_{number:02}_{place:03}.png"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(imagecodecs.png_encode(np.full((128, 128, 3), frame % 251, np.uint8)))
    os.environ["EVERLIGHT_DATA"] = str(runs)
    prepare(PrepareOptions("core50", source, partial=True))


RUNS: dict[str, tuple[Callable[[Path], None], int]] = {
    "paper two-camera, rendered": (rendered, 1),
    "paper two-camera, nus": (nus, 1),
    "paper core50-static": (core50_static, 1),
    "run, two processes": (several_seeds, 2),
    "run, selecting": (selecting, 1),
    "data prepare core50": (core50_release, 1),
}
"""Runs by name, and the number of processes that share them."""


def begin(run: Callable[[Path], None], runs: Path, number: int) -> int:
    """Start a child that calls `run`; write its messages to a file beside the folder."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        with (runs.parent / f"{runs.name}-{number}.txt").open("a") as message:
            os.dup2(message.fileno(), 1)
            os.dup2(message.fileno(), 2)
        run(runs)
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def attempt(run: Callable[[Path], None], runs: Path, moments: list[float]) -> int:
    """Call `run` in one process per moment and kill each at its moment; return how many were.

    Raises:
      RuntimeError: one ended by itself, but not well.
    """
    began = time.monotonic()
    children = {begin(run, runs, number): end for number, end in enumerate(moments)}
    killed = 0
    while children:
        for child, end in list(children.items()):
            if time.monotonic() - began > end:
                os.kill(child, signal.SIGKILL)
            ended, status = os.waitpid(child, os.WNOHANG)
            if not ended:
                continue
            del children[child]
            code = os.waitstatus_to_exitcode(status)
            killed += code == -signal.SIGKILL
            if code not in (0, -signal.SIGKILL):
                raise RuntimeError(f"{runs} ended with {code}")
        time.sleep(0.01)
    return killed


def outcome(runs: Path) -> dict[str, bytes]:
    """Return all numbers of the results except seconds."""
    (results,) = runs.rglob("results.npz") or [None]
    with np.load(results) as arrays:
        return {name: array.tobytes() for name, array in arrays.items() if "seconds" not in name}


def prepared(runs: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in runs.rglob("images_128.*")}


def campaign(folder: Path, name: str, kills: int) -> tuple[int, int]:
    """Kill a run `kills` times; compare finished ones; return the numbers of kills and of those.

    Raises:
      RuntimeError: a child ended badly, or a finished run's numbers are others.
    """
    run, processes = RUNS[name]
    read = prepared if name.startswith("data") else outcome
    generator = random.Random(name)
    began = time.monotonic()
    attempt(run, folder / "whole", [float("inf")] * processes)
    # Half of it at least is compilation, which later ones need not wait for.
    lasts = (time.monotonic() - began) / 2
    full = read(folder / "whole")
    killed = finished = 0
    while killed < kills:
        runs = folder / f"killed{finished}"
        before = -1
        while before < killed:
            before = killed
            moments = [float("inf")] * processes
            if killed < kills:
                moments[0] = generator.uniform(0, lasts)
                # The last of several dies a little later, or lives on.
                later = generator.choice([float("inf"), generator.uniform(0, lasts / 4)])
                if processes > 1:
                    moments[-1] = moments[0] + later
            killed += attempt(run, runs, moments)
        if read(runs) != full:
            raise RuntimeError(f"{name}: {runs} differs from {folder / 'whole'}")
        left_over = [path for path in runs.rglob("*") if ".unfinished" in path.name]
        if left_over:
            raise RuntimeError(f"{name}: {left_over} is left")
        shutil.rmtree(runs)
        finished += 1
    return killed, finished


def main() -> None:
    folder, *requested = sys.argv[1:]
    # So short are the runs that by the clock none would leave any.
    Checkpoints.due = due_every(1)
    for place, (name, kills) in enumerate(zip(requested[::2], requested[1::2], strict=True)):
        began = time.monotonic()
        run_folder = Path(folder) / str(place)
        run_folder.mkdir(parents=True)
        killed, finished = campaign(run_folder, name, int(kills))
        seconds = time.monotonic() - began
        print(
            f"{name}: {killed} kills, {finished} finished with the same bits, {seconds:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
