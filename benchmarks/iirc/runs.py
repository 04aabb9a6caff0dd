"""Finished runs of both sides in a folder; what is missing is trained."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.iirc import everlight_side, steps
from benchmarks.iirc.cases import Case
from benchmarks.iirc.equations import EQUATIONS
from benchmarks.iirc.inputs import Workload, labelled_samples, read_inputs, write_inputs
from everlight_data.errors import DataError

SIDE = Path(__file__).with_name("authors_side.py")
VARIABLE = "EVERLIGHT_IIRC"
"""Environment variable with the Python of an environment that has torch and Pillow."""
AUTHORS_SCORES = "authors.jsonl"
EVERLIGHT_SCORES = {False: "everlight.jsonl", True: "everlight-authors-equations.jsonl"}
"""File of everlight's runs, by whether they have the authors' equations."""


class Authors(NamedTuple):
    """The authors' code and a Python that runs it."""

    python: str
    checkout: Path

    def start(self, folder: Path, request: dict, answer: str) -> subprocess.Popen:
        """Start runs in a process; every finished one is a line of `answer` in the folder."""
        path = folder / f"request-{answer}"
        path.write_text(json.dumps(request), "utf-8")
        command = [self.python, SIDE, self.checkout.resolve(), folder, path, folder / answer]
        # The checkout has packages with the names of some of this project.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment | {"OMP_NUM_THREADS": "1"},
        )

    def wait(self, process: subprocess.Popen) -> None:
        """Wait for a process.

        Raises:
          DataError: it failed; the message has the last line of its errors.
        """
        _, errors = process.communicate()
        if process.returncode:
            last = errors.strip().splitlines()[-1:] or ["no message"]
            raise DataError(
                f"{self.python} could not run {self.checkout} ({last[0]}); give a checkout of "
                f"chandar-lab/IIRC, and in {VARIABLE} the Python of an environment with torch and "
                "Pillow"
            )

    def run(self, folder: Path, request: dict, answer: str) -> dict:
        """Run a request and return its last line."""
        (folder / answer).unlink(missing_ok=True)
        self.wait(self.start(folder, request, answer))
        return _lines(folder / answer)[-1]


def authors_python() -> str | None:
    """Return the Python of an environment with torch; None if there is none."""
    if VARIABLE in os.environ:
        return os.environ[VARIABLE]
    packages = find_spec("torch"), find_spec("PIL")
    return None if None in packages else sys.executable


def same_material(authors: Authors, workload: Workload, folder: Path) -> tuple[bool, int]:
    """Return True if both sides have equal labelled samples and layers, and the parameters."""
    write_inputs(workload, folder)
    data = read_inputs(folder)
    request = {"layers": workload.layers, "classes": data.classes}
    description = authors.run(
        folder, {"augment": True, "runs": [], "describe": request}, "same.jsonl"
    )
    # JSON turns tuples into lists.
    samples = json.loads(json.dumps(labelled_samples(data))) == description["samples"]
    local = everlight_side.parameter_shapes(data, workload, folder)
    official = [tuple(shape) for shape in description["shapes"]]
    layers = sorted(map(sorted, local)) == sorted(map(sorted, official))
    return samples and layers, sum(int(np.prod(shape)) for shape in official)


def train_both(
    authors: Authors,
    workload: Workload,
    folder: Path,
    cases: Sequence[Case],
    seeds: int,
    equations: bool,
) -> None:
    """Train what is missing on both sides, each in a process of its own.

    Args:
      authors: the authors' code.
      workload: data and training.
      folder: folder of the data and of the finished runs.
      cases: methods.
      seeds: number of runs per method.
      equations: use the authors' equations in everlight, for methods of `EQUATIONS`.
    """
    write_inputs(workload, folder)
    data = read_inputs(folder)
    done = scores_in(folder / AUTHORS_SCORES)
    runs = [
        {"method": case.name, "seed": seed, "options": case.options(workload, seed)}
        for seed in range(seeds)
        for case in cases
        if (case.name, seed) not in done
    ]
    request = {"augment": workload.augment, "runs": runs}
    process = authors.start(folder, request, AUTHORS_SCORES) if runs else None
    answer = folder / EVERLIGHT_SCORES[equations]
    done = scores_in(answer)
    for case in cases:
        left = [seed for seed in range(seeds) if (case.name, seed) not in done]
        if not left:
            continue
        replaced = equations and case.name in EQUATIONS
        with EQUATIONS[case.name]() if replaced else nullcontext():
            curves = everlight_side.train_seeds(data, workload, folder, case, left)
            for seed, curve in zip(left, curves, strict=True):
                row = {"method": case.name, "seed": seed, "scores": curve.scores.tolist()}
                row |= {"by_task": curve.by_task.tolist(), "seconds": curve.seconds}
                with answer.open("a", encoding="utf-8") as file:
                    print(json.dumps(row), file=file)
    if process is not None:
        authors.wait(process)


def compare_steps(
    authors: Authors, folder: Path, case: Case, equation: bool = False
) -> list[steps.Apart]:
    """Compare a method step by step; the authors' run gets everlight's choices.

    Args:
      authors: the authors' code.
      folder: folder of the files that both sides read and write.
      case: method.
      equation: use the authors' equation in everlight, for methods of `EQUATIONS`.
    """
    workload = steps.workload_of(case)
    write_inputs(workload, folder)
    with EQUATIONS[case.name]() if equation else nullcontext():
        local = steps.trace(read_inputs(folder), workload, folder, case)
    np.savez(folder / "weights.npz", **local.start)
    choices = {"orders": local.orders, "exemplars": local.exemplars}
    run = {"method": case.name, "options": case.options(workload, 0)}
    request = {"augment": workload.augment, "steps": choices, "runs": [run]}
    answer = authors.run(folder, request, "steps.jsonl")
    with np.load(folder / "after.npz") as stored:
        arrays = dict(stored)
    official: list[steps.Weights] = [{} for _ in range(workload.tasks)]
    for name, value in arrays.items():
        task, _, parameter = name.partition("/")
        official[int(task)][parameter] = value
    return steps.compare(local, official, answer["chosen"])


def scores_in(path: Path) -> dict[tuple[str, int], list[float]]:
    """Return the finished runs of a file: method and seed, and the scores after every task."""
    return {(row["method"], row["seed"]): row["scores"] for row in _lines(path)}


def _lines(path: Path) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
