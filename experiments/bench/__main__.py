"""`python -m experiments.bench`: ratios for BUILD_NOTES.md, in about eight minutes on two cores."""

import os

# OpenMP's idle threads would spin after each of PyTorch's turns and slow the next contestant; set
# before anything loads OpenMP.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import dataclasses
import importlib.metadata
import json
from dataclasses import dataclass, field
from pathlib import Path

import jax

from experiments.bench.iirc_metrics import MetricSpeed, metric_speed
from experiments.bench.net_training import NO_TORCH, TrainingSpeed, has_torch, training_speed
from experiments.bench.task_sequences import (
    CheckpointCost,
    SequenceSizes,
    SequenceSpeed,
    checkpoint_cost,
    sequence_speeds,
)
from experiments.bench.timing import copy_bandwidth, matmul_flops
from experiments.bench.transform_fits import FitError, FitSpeed, fit_error, fit_speed


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    fits: tuple[tuple[int, int], ...] = ((19_500, 24), (2_000, 1536))
    """Pairs of fits and pixels: an augmented set's charts, and thumbnails."""
    fit_rounds: int = 9
    conditions: tuple[float, ...] = (3, 3e2, 3e4)
    images: int = 200
    pixels: int = 1536
    depths: tuple[int, ...] = (2, 5, 16)
    models: int = 48
    batch_size: int = 256
    block: int = 100
    training_rounds: int = 5
    window: float = 1.0
    sequences: SequenceSizes = field(default_factory=SequenceSizes)
    metric_samples: int = 10_000
    metric_tasks: int = 22
    metric_rounds: int = 9
    copy_megabytes: int = 256
    matmul_size: int = 2048


def bench(sizes: Sizes, folder: Path) -> str:
    """Measures, writes bench.json into `folder` and returns the results as Markdown."""
    load_before = os.getloadavg()[0]
    bandwidth, flops = copy_bandwidth(sizes.copy_megabytes), matmul_flops(sizes.matmul_size)
    fits = [fit_speed(*size, sizes.fit_rounds, bandwidth, flops) for size in sizes.fits]
    errors = [fit_error(c, sizes.images, sizes.pixels) for c in sizes.conditions]
    trainings = [
        training_speed(
            depth,
            sizes.models,
            sizes.batch_size,
            sizes.block,
            sizes.training_rounds,
            sizes.window,
            flops,
        )
        for depth in sizes.depths
    ]
    sequences = sequence_speeds(sizes.sequences)
    checkpoint = checkpoint_cost(sizes.sequences)
    metrics = metric_speed(sizes.metric_tasks, sizes.metric_samples, sizes.metric_rounds, bandwidth)
    packages = ("jax", "numpy", "flax", "optax", *(("torch",) if has_torch() else ()))
    results = {
        "sizes": dataclasses.asdict(sizes),
        "machine": {
            "device": jax.devices()[0].device_kind,
            "cores": os.cpu_count(),
            "load_before": load_before,
            "load_after": os.getloadavg()[0],
            "bandwidth_bytes_per_s": bandwidth,
            "matmul_flops_per_s": flops,
            "packages": {name: importlib.metadata.version(name) for name in packages},
        },
        "fits": [fit._asdict() for fit in fits],
        # JSON has no infinity; it stands for a method that failed.
        "errors": [
            {k: None if v == float("inf") else v for k, v in error._asdict().items()}
            for error in errors
        ],
        "training": [training._asdict() for training in trainings],
        "sequences": [speed._asdict() for speed in sequences],
        "checkpoint": checkpoint._asdict(),
        "metrics": metrics._asdict(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(results, indent=2))
    colour = _colour_markdown(results["machine"], fits, errors, trainings)
    continual = _sequence_markdown(sizes.sequences, sequences, checkpoint)
    return f"{colour}\n\n{continual}\n\n{_metric_markdown(metrics)}"


def _colour_markdown(
    machine: dict, fits: list[FitSpeed], errors: list[FitError], trainings: list[TrainingSpeed]
) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    parts = [
        f"`python -m experiments.bench` on {machine['cores']} cores ({machine['device']}; "
        f"{versions}), load {machine['load_before']:.1f} before and {machine['load_after']:.1f} "
        f"after. Contestants take turns; medians. The machine copies "
        f"{machine['bandwidth_bytes_per_s'] / 1e9:.0f} GB/s (read and written) and multiplies "
        f"matrices at {machine['matmul_flops_per_s'] / 1e9:.0f} GFLOP/s.",
        _table(
            "fits | everlight | NumPy float32 | ratio | NumPy float64 | ratio | memory floor "
            "| arithmetic floor",
            [
                f"{f.fits:,} of {f.pixels:,} pixels | {_ms(f.everlight_s)} "
                f"| {_ms(f.numpy_float32_s)} | {f.ratio_float32:.1f} | {_ms(f.numpy_float64_s)} "
                f"| {f.ratio_float64:.1f} | {_ms(f.memory_floor_s)} | {_ms(f.arithmetic_floor_s)}"
                for f in fits
            ],
        ),
        "Median relative error of T against float64, from float32 pixels (NumPy's lstsq computes "
        "in float64 whatever it is given; the others in float32):",
        _table(
            "condition number | everlight | Householder QR | normal equations | NumPy lstsq",
            [
                " | ".join([f"{e.condition:,.0f}", *(_error(value) for value in e[1:])])
                for e in errors
            ],
        ),
        "Training, model-steps per second:",
        _table(
            "parameters | everlight | PyTorch, one thread | PyTorch, all cores "
            "| ratio to the better | arithmetic bound",
            [
                f"{t.parameters:,} ({t.models} nets, batch {t.batch_size}) | {t.everlight:,.0f} "
                f"| {_rate(t.torch_one_thread)} | {_rate(t.torch_all_cores)} "
                f"| {'–' if t.ratio is None else f'{t.ratio:.1f}'} | {t.arithmetic_bound:,.0f}"
                for t in trainings
            ],
        ),
        *([] if has_torch() else [NO_TORCH]),
    ]
    return "\n\n".join(parts)


def _sequence_markdown(
    sizes: SequenceSizes, speeds: list[SequenceSpeed], checkpoint: CheckpointCost
) -> str:
    return "\n\n".join(
        [
            f"Task sequences: {sizes.tasks} tasks of {sizes.classes // sizes.tasks} classes, "
            f"{sizes.train_per_class} training and {sizes.test_per_class} test images a class, "
            f"{sizes.side}×{sizes.side}, {sizes.epochs} epochs, the four-convolution net "
            f"{sizes.channels}, {sizes.hidden}; seconds a task, validation and evaluation with it:",
            _table(
                "strategy | compiled | driven | PyTorch | driven / compiled | PyTorch / compiled "
                "| evaluation's share | at the paper's sizes",
                [
                    f"{s.strategy} | {s.compiled_s:.2f} | {s.driven_s:.2f} "
                    f"| {'–' if s.torch_s is None else f'{s.torch_s:.2f}'} "
                    f"| {s.driven_over_compiled:.2f} "
                    f"| {'–' if s.torch_over_compiled is None else f'{s.torch_over_compiled:.2f}'} "
                    f"| {100 * s.evaluation_share:.1f}% | {100 * s.paper_share:.1f}%"
                    for s in speeds
                ],
            ),
            f"A checkpoint of EWC's last state: {checkpoint.parameters:,} parameters, "
            f"{checkpoint.state_bytes / 1e6:.1f} MB of arrays, {checkpoint.stored_bytes / 1e6:.1f} "
            f"MB on disk; written in {checkpoint.save_s:.2f} s, read in {checkpoint.restore_s:.2f} "
            "s.",
        ]
    )


def _metric_markdown(speed: MetricSpeed) -> str:
    rival = (
        ""
        if speed.torch_s is None
        else f"; one PyTorch call for every pair of tasks {_ms(speed.torch_s)}, {speed.ratio:.1f} "
        "times as long"
    )
    return (
        f"All of IIRC's R matrix, {speed.tasks} tasks over {speed.samples:,} × {speed.classes} "
        f"predictions: {_ms(speed.everlight_s)}{rival}; reading it once takes "
        f"{_ms(speed.memory_floor_s)}."
    )


def _table(header: str, rows: list[str]) -> str:
    rule = " | ".join(["---"] * (header.count("|") + 1))
    return "\n".join(f"| {line} |" for line in (header, rule, *rows))


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _error(value: float) -> str:
    return "fails" if value == float("inf") else f"{value:.1e}"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


if __name__ == "__main__":
    print(bench(Sizes(), Path("runs/bench")))
