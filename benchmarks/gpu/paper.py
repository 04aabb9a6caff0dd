"""A paper's run by the command `everlight`, which a later call continues at its checkpoint."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.gpu.cases import Setting
from everlight_data.errors import DataError
from everlight_data.images.cifar100 import load_cifar100
from everlight_data.runs.finished_runs import ResultKey, read_results

ROOT = Path(__file__).parents[2]
LEAST = "run digits --methods naive --seeds 1 --epochs 1"
PAPER = (
    "paper iirc --preset paper --configurations 1 --methods ER-balanced --ablation --dtype bfloat16"
)
PROCEDURAL = "run procedural --preset paper --net resnet:5 --methods ER --seeds 8 --dtype bfloat16"
"""Images that are rendered, where CIFAR-100's files are missing."""


def iirc(setting: Setting) -> Iterator[dict]:
    """Yield the seconds of the run and its score after every task, the mean over seeds."""
    words = LEAST if setting.small else (PAPER if _has_cifar100() else PROCEDURAL)
    before, begin = setting.folder.exists(), time.perf_counter()
    yield {"command": f"everlight {words}", "continued": before}
    command = [sys.executable, "-m", "everlight_experiments", *words.split()]
    # The report's path is printed; results have lines of their own.
    subprocess.run(
        [*command, "--runs", str(setting.folder)], cwd=ROOT, check=True, stdout=sys.stderr
    )
    yield {
        "command": f"everlight {words}",
        "continued": before,
        "run s": time.perf_counter() - begin,
        "scores": _scores(setting.folder),
    }


def _scores(runs: Path) -> dict[str, list[float]]:
    """Return the means over seeds after every task, by setting, method and metric."""
    scores = {}
    for path in runs.glob("*/results.npz"):
        arrays = read_results(path, "Run the case again.")
        measure = str(arrays["measure"])
        for name, values in arrays.items():
            if ResultKey.parse(name).metric == measure and np.ndim(values) == 2:
                scores[name] = np.nanmean(values, axis=0).tolist()
    return scores


def _has_cifar100() -> bool:
    try:
        load_cifar100()
    except DataError:
        return False
    return True
