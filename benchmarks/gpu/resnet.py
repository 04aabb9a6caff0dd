"""A training step of IIRC's ResNet-32 on noise: of one to many seeds, and loops in PyTorch.

Two tasks of 50 classes, two epochs, batches of 128 images of 32×32, crops and flips on the device,
SGD with momentum, binary cross-entropy; the data lie on the device on both sides.
"""

import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.cases import Setting, Unavailable
from benchmarks.speed.sequences import Training, noise_images
from benchmarks.speed.timing import HAS_TORCH
from everlight.continual import Protocol, Runs, drive_runs, runs_mesh
from everlight.models import ReducedResNet
from everlight.scenarios import class_incremental, equal_tasks

CLASSES, TASKS, EPOCHS, BATCH = 100, 2, 2, 128
PER_CLASS, SIDE, BLOCKS = 250, 32, 5
LEAST = 4, 8, 1
"""Images per class, side and blocks per stage of the least size."""
Train = Callable[[int], tuple[int, float]]


def everlight(setting: Setting, dtype: str, seeds: int) -> Iterator[dict]:
    """Yield the time of a step of all seeds, vmapped on one device."""
    jax.config.update("jax_enable_compilation_cache", False)
    training, seeds = training_of(setting, dtype), min(seeds, 2) if setting.small else seeds
    rows = jax.tree.map(lambda leaf: jnp.stack([leaf] * seeds), training.sequence)

    def train(number: int) -> tuple[int, float]:
        keys = jax.random.split(jax.random.key(number), seeds)
        runs = Runs(training.build, training.protocol, training.stored, rows, keys)
        *_, last = drive_runs(runs, mesh=runs_mesh(jax.devices()[:1]))
        return int(last.result.usage.steps[0, -1]), float(np.mean(last.result.losses[:, -1, -1]))

    images = seeds * EPOCHS * images_of(setting)
    stats = jax.devices()[0].memory_stats
    yield from timed(train, images, lambda: (stats() or {}).get("peak_bytes_in_use"))


def torch_loop(setting: Setting, mode: str) -> Iterator[dict]:
    """Yield the time of a step of one seed in PyTorch.

    Args:
      setting: sizes; the least ones may run on a CPU.
      mode: "plain" is one call per batch, "graphs" one CUDA graph by `torch.compile`; both in
        bfloat16 with channels last.
    """
    if not HAS_TORCH:
        raise Unavailable("PyTorch is not installed")
    import torch

    if not (setting.small or torch.cuda.is_available()):
        raise Unavailable("PyTorch has no CUDA here")
    from benchmarks.gpu.torch_resnet import train_epochs

    device = "cuda" if torch.cuda.is_available() else "cpu"
    training = training_of(setting, "bfloat16")
    train = train_epochs(training, device, graphs=mode == "graphs" and device == "cuda")
    peak = torch.cuda.max_memory_allocated if device == "cuda" else lambda: None
    yield from timed(train, EPOCHS * images_of(setting), peak)


def timed(train: Train, images: int, peak: Callable[[], int | None]) -> Iterator[dict]:
    """Yield the times of training, first with compilation, then the lesser of two calls.

    Args:
      train: function of a seed's number that returns the number of steps and the last loss.
      images: images that all seeds learn from in all steps.
      peak: function that returns the greatest number of bytes on the device so far, if known.
    """
    first, (steps, loss) = _seconds(train, 0)
    yield {"first call s": first, "loss": loss}
    warm = min(_seconds(train, number)[0] for number in (1, 2))
    bytes_at_peak = peak()
    yield {
        "ms per step": 1e3 * warm / steps,
        "images/s, all seeds": images / warm,
        "compilation s": first - warm,
        "peak GB": None if bytes_at_peak is None else bytes_at_peak / 1e9,
        "loss": loss,
        "steps": steps,
    }


def training_of(setting: Setting, dtype: str) -> Training:
    """Return the network, the images and the tasks."""
    per_class, side, blocks = LEAST if setting.small else (PER_CLASS, SIDE, BLOCKS)
    train, test = (np.repeat(np.arange(CLASSES), count) for count in (per_class, per_class // 4))
    tasks = equal_tasks(range(CLASSES), TASKS)
    sequence = class_incremental(train, test, tasks, CLASSES, 0.0)
    protocol = Protocol(epochs=EPOCHS, batch_size=BATCH, select="last")
    stored = noise_images(len(train) + len(test), side)
    return Training(
        "naive", ReducedResNet(CLASSES, blocks, dtype=dtype), stored, sequence, protocol
    )


def images_of(setting: Setting) -> int:
    """Return the number of training images of all tasks."""
    return CLASSES * (LEAST[0] if setting.small else PER_CLASS)


def _seconds(train: Train, number: int) -> tuple[float, tuple[int, float]]:
    begin = time.perf_counter()
    result = train(number)
    return time.perf_counter() - begin, result
