"""Runs of the authors' code (chandar-lab/IIRC, `experiments/main.py`) with a Python that has torch.

`python authors_side.py AUTHORS FOLDER REQUEST ANSWER`: AUTHORS is a checkout of their repository,
FOLDER holds the archive and the metadata, REQUEST is a JSON file of runs. ANSWER receives a line of
JSON for every finished run. Nothing of the checkout is changed. These parts are replaced in memory:

- torchvision, of which the code needs a few transforms, and `lmdb`, which it does not use here;
- ml_logger, whose log book becomes a list;
- the option `verbose` of `ReduceLROnPlateau`, which newer versions of torch refuse;
- the memory statistics of CUDA, which are 0.

torch and Pillow are the only packages that must be installed.
"""

import json
import runpy
import sys
import tempfile
import time
import types
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import given_steps
import numpy as np
import torch
from PIL import Image, ImageOps

MESSAGE = "incremental_metrics"
SCORE = "modified_jaccard"


class Compose:
    """Apply transforms one after another."""

    def __init__(self, transforms: list[Callable]):
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        """Return the changed image."""
        for transform in self.transforms:
            image = transform(image)
        return image


class ToTensor:
    """Return an image as a float tensor [c, h, w] from 0 to 1."""

    def __call__(self, image: Image.Image) -> torch.Tensor:
        """Return the changed image."""
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)


class Normalize:
    """Subtract the mean of each channel and divide by its deviation."""

    def __init__(self, mean: tuple, std: tuple):
        self.mean, self.std = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        """Return the changed image."""
        return (image - self.mean) / self.std


class RandomCrop:
    """Pad an image with zeros on all sides and take a window at random."""

    augment = True

    def __init__(self, size: int, padding: int):
        self.size, self.padding = size, padding

    def __call__(self, image: Image.Image) -> Image.Image:
        """Return the changed image."""
        if not self.augment:
            return image
        padded = ImageOps.expand(image, border=self.padding, fill=0)
        top, left = (int(torch.randint(0, 2 * self.padding + 1, (1,))) for _ in range(2))
        return padded.crop((left, top, left + self.size, top + self.size))


class RandomHorizontalFlip:
    """Mirror an image with probability one half."""

    def __call__(self, image: Image.Image) -> Image.Image:
        """Return the changed image."""
        if RandomCrop.augment and float(torch.rand(1)) < 0.5:
            return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return image


class LogBook:
    """Log of a run, kept as a list of rows."""

    rows: ClassVar[list[dict]] = []

    def __init__(self, config: Any = None):
        LogBook.rows = []

    def write_config(self, config: dict) -> None:
        """Ignore the configuration."""

    def write_metadata(self, metadata: dict) -> None:
        """Ignore the metadata."""

    def write_metric(self, row: dict) -> None:
        """Store a row of metrics."""
        LogBook.rows.append(dict(row))


def install_stand_ins() -> None:
    """Put the replaced modules and functions in place."""
    transforms = _module("torchvision.transforms")
    for transform in (Compose, ToTensor, Normalize, RandomCrop, RandomHorizontalFlip):
        setattr(transforms, transform.__name__, transform)
    vision = _module("torchvision")
    vision.transforms, vision.models = transforms, _module("torchvision.models")
    logbook = _module("ml_logger.logbook")
    logbook.make_config, logbook.LogBook = lambda **options: None, LogBook
    _module("ml_logger").logbook = logbook
    _module("lmdb")
    torch.cuda.max_memory_allocated = torch.cuda.memory_allocated = lambda *device: 0
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau

    class Plateau(scheduler):
        def __init__(self, *arguments: Any, verbose: bool = False, **options: Any):
            super().__init__(*arguments, **options)

    torch.optim.lr_scheduler.ReduceLROnPlateau = Plateau


def _module(name: str) -> types.ModuleType:
    sys.modules[name] = types.ModuleType(name)
    return sys.modules[name]


def run_command(authors: Path, folder: Path, options: list[str]) -> dict:
    """Run the authors' command once and return its log, network and seconds."""
    main = authors / "experiments" / "main.py"
    arguments = sys.argv
    with tempfile.TemporaryDirectory() as logs:
        paths = ["--dataset_path", str(folder), "--logging_path_root", logs]
        sys.argv = [str(main), *options, *paths, "--num_workers", "0"]
        begin = time.perf_counter()
        try:
            runpy.run_path(str(main), run_name="__main__")
        finally:
            sys.argv = arguments
    seconds = time.perf_counter() - begin
    # Rows of post-task validation have the same message.
    rows = [row for row in LogBook.rows if f"average_test_{SCORE}" in row]
    return {
        "scores": [row[f"average_test_{SCORE}"] for row in rows],
        "by_task": [
            [row[f"task_{task}_test_{SCORE}"] for task in range(number + 1)]
            for number, row in enumerate(rows)
        ],
        "seconds": seconds,
        "epochs": [
            {key: value for key, value in row.items() if isinstance(value, (int, float))}
            for row in LogBook.rows
            if row["message"] != MESSAGE
        ],
    }


def describe(folder: Path, layers: int, classes: int) -> dict:
    """Return the samples of every split and task, and the shapes of the network's parameters."""
    from iirc.datasets_loader import get_lifelong_datasets
    from lifelong_methods.models.resnetcifar import ResNetCIFAR

    sets, tasks, _ = get_lifelong_datasets("iirc_cifar100", str(folder))
    samples = {}
    for split in ("train", "intask_valid", "test"):
        samples[split] = []
        for task in range(len(tasks)):
            sets[split].choose_task(task)
            rows = [sets[split].get_item(index) for index in range(len(sets[split]))]
            samples[split].append(
                sorted(
                    [zlib.crc32(image.tobytes()), sorted(name for name in names if name != "None")]
                    for image, *names in rows
                )
            )
    net = ResNetCIFAR(num_classes=classes, num_layers=layers, relu_last_hidden=False)
    return {"samples": samples, "shapes": [list(parameter.shape) for parameter in net.parameters()]}


def main() -> None:
    """Answer a request."""
    authors, folder, request, answer = map(Path, sys.argv[1:])
    job = json.loads(request.read_text("utf-8"))
    torch.set_num_threads(1)
    install_stand_ins()
    sys.path[:0] = [str(authors / "experiments"), str(authors)]
    import iirc.datasets_loader

    iirc.datasets_loader.metadata_root = str(folder / "metadata")
    RandomCrop.augment = job["augment"]
    with answer.open("a", encoding="utf-8") as file:
        if "describe" in job:
            print(json.dumps(describe(folder, **job["describe"])), file=file, flush=True)
        for run in job["runs"]:
            steps = None
            if "steps" in job:
                # One run per process, since the choices are patched in.
                steps = given_steps.Steps(answer.parent, job["steps"])
                steps.install()
            outcome = run_command(authors, folder, run["options"])
            if steps is not None:
                steps.save(answer.parent)
                outcome["chosen"] = steps.chosen
            print(json.dumps(run | outcome), file=file, flush=True)
    versions = {"torch": torch.__version__, "Python": sys.version.split()[0]}
    print(json.dumps(versions))


if __name__ == "__main__":
    main()
