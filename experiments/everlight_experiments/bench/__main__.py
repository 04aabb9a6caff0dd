"""`python -m everlight_experiments.bench`: ratios for docs/performance.md, in about nine minutes.

`--race` measures IIRC's race against the authors' code instead, in about ten, `--many-runs` many
runs at once, `--agreement digits` how far strategies agree with Avalanche's.
"""

import os

# OpenMP's idle threads would spin after each of PyTorch's turns and slow the next contestant; set
# before anything loads OpenMP.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import dataclasses
import importlib.metadata
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax
import tyro

from everlight_data.errors import DataError
from everlight_experiments.bench.agreement import (
    MEAN_PLAN,
    SEEDS,
    STEP_PLAN,
    Agreement,
    Compared,
    Paired,
    compare,
)
from everlight_experiments.bench.agreement_material import TASKS
from everlight_experiments.bench.agreement_runs import VARIABLE, avalanche_python
from everlight_experiments.bench.fact_ranking import RankingSizes, RankingSpeed, ranking_speed
from everlight_experiments.bench.herding import HerdingSpeed, herding_speed
from everlight_experiments.bench.iirc_metrics import MetricSpeed, metric_speed
from everlight_experiments.bench.iirc_training import (
    AUTHORS_S,
    AUTHORS_TRAINING_S,
    RaceSpeed,
    ReplaySpeed,
    TrainingSizes,
    race_speed,
    replay_speed,
)
from everlight_experiments.bench.many_runs import ManyRunsSizes, ManyRunsSpeed, many_runs_speed
from everlight_experiments.bench.net_training import (
    NO_TORCH,
    TrainingSpeed,
    has_torch,
    training_speed,
)
from everlight_experiments.bench.task_sequences import (
    CheckpointCost,
    SequenceSizes,
    SequenceSpeed,
    checkpoint_cost,
    sequence_speeds,
)
from everlight_experiments.bench.timing import copy_bandwidth, matmul_flops
from everlight_experiments.bench.transform_fits import FitError, FitSpeed, fit_error, fit_speed


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
    iirc: TrainingSizes = field(default_factory=TrainingSizes)
    herding: tuple[int, int, int, int] = (115, 500, 64, 20)
    """Classes, samples of each, features, exemplars of each."""
    herding_rounds: int = 3
    ranking: RankingSizes = field(default_factory=RankingSizes)
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
    replay = replay_speed(sizes.iirc)
    herding = herding_speed(*sizes.herding, sizes.herding_rounds)
    ranking = ranking_speed(sizes.ranking)
    results = {
        "sizes": dataclasses.asdict(sizes),
        "machine": _machine(load_before)
        | {"bandwidth_bytes_per_s": bandwidth, "matmul_flops_per_s": flops},
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
        "replay": replay._asdict(),
        "herding": herding._asdict(),
        "ranking": ranking._asdict(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(results, indent=2))
    colour = _colour_markdown(results["machine"], fits, errors, trainings)
    continual = _sequence_markdown(sizes.sequences, sequences, checkpoint)
    hierarchical = _iirc_markdown(metrics, replay, herding)
    facts = _ranking_markdown(sizes.ranking, ranking)
    return f"{colour}\n\n{continual}\n\n{hierarchical}\n\n{facts}"


def run_race(sizes: TrainingSizes, folder: Path) -> str:
    """Runs IIRC's race, writes race.json into `folder` and returns the result as Markdown."""
    load_before = os.getloadavg()[0]
    speed = race_speed(sizes)
    machine = _machine(load_before)
    results = {"sizes": sizes._asdict(), "machine": machine, "race": speed._asdict()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "race.json").write_text(json.dumps(results, indent=2))
    return _race_markdown(sizes, machine, speed)


def run_many(sizes: ManyRunsSizes, folder: Path) -> str:
    """Times many runs, writes many_runs.json into `folder` and returns the result as Markdown."""
    load_before = os.getloadavg()[0]
    speed = many_runs_speed(sizes)
    machine = _machine(load_before)
    folder.mkdir(parents=True, exist_ok=True)
    results = {"sizes": sizes._asdict(), "machine": machine, "speed": speed._asdict()}
    (folder / "many_runs.json").write_text(json.dumps(results, indent=2))
    return _many_markdown(sizes, machine, speed)


def run_agreement(
    compared: Compared, folder: Path, cases: Sequence[str] = (), seeds: int = SEEDS
) -> str:
    """Compares with Avalanche, writes agreement-*.json into `folder` and returns it as Markdown.

    Args:
      compared: what is learnt.
      folder: of the results.
      cases: names of methods; none is all.
      seeds: of the means.

    Raises:
      DataError: there is no Avalanche.
    """
    python = avalanche_python()
    if python is None:
        raise DataError(
            f'no avalanche-lib here; install ".[bench]", or name in {VARIABLE} the Python of an '
            "environment with avalanche-lib and quadprog"
        )
    load_before = os.getloadavg()[0]
    found = compare(python, compared, cases, seeds)
    machine = _machine(load_before)
    folder.mkdir(parents=True, exist_ok=True)
    steps = [row._asdict() for row in found.steps]
    means = [
        row._asdict() | {"told": row.told._asdict(), "not_told": row.not_told._asdict()}
        for row in found.means
    ]
    results = found._asdict() | {"steps": steps, "means": means, "machine": machine}
    (folder / f"agreement-{compared}.json").write_text(json.dumps(results, indent=2))
    return _agreement_markdown(found, machine)


def _machine(load_before: float) -> dict:
    packages = ("jax", "numpy", "flax", "optax", *(("torch",) if has_torch() else ()))
    return {
        "device": jax.devices()[0].device_kind,
        "cores": os.cpu_count(),
        "load_before": load_before,
        "load_after": os.getloadavg()[0],
        "packages": {name: importlib.metadata.version(name) for name in packages},
    }


def _colour_markdown(
    machine: dict, fits: list[FitSpeed], errors: list[FitError], trainings: list[TrainingSpeed]
) -> str:
    parts = [
        f"`python -m everlight_experiments.bench` {_where(machine)}. Contestants take turns; medians. The "
        f"machine copies "
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


def _iirc_markdown(metrics: MetricSpeed, replay: ReplaySpeed, herding: HerdingSpeed) -> str:
    rival = (
        ""
        if replay.torch_s is None
        else f"; PyTorch {replay.torch_s:.2f} s, {replay.ratio:.2f} times as long"
    )
    return "\n\n".join(
        [
            _metric_markdown(metrics),
            f"One epoch of ER on IIRC, {replay.images:,} images of which {replay.exemplars:,} are "
            f"exemplars, {replay.steps} steps: {replay.everlight_s:.2f} s{rival}.",
            f"Herding {herding.exemplars} of {herding.samples} samples by {herding.features} "
            f"features for {herding.classes} classes: {_ms(herding.everlight_s)}; a NumPy loop "
            f"{_ms(herding.numpy_s)}, {herding.ratio:.2g} times as long, with the same choices in "
            f"{herding.same_classes} classes.",
        ]
    )


def _agreement_markdown(found: Agreement, machine: dict) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    return "\n\n".join(
        [
            f"`python -m everlight_experiments.bench --agreement {found.compared}` {_where(machine)}; there "
            f"{versions}; {found.seconds:,.0f} s.",
            f"Greatest difference of any weight after {TASKS} tasks of {STEP_PLAN.epochs} epochs, "
            "from the same weights, batches and replayed samples: as both are shipped, with "
            "settings that mean the same, and with Avalanche's equation put into everlight's "
            "strategy. The effect is how far Avalanche's weights are from its plain finetuning's:",
            _table(
                "method | as shipped | equation put in | effect | what differs in Avalanche",
                [
                    f"{row.name} | {row.as_shipped:.1e} | {row.equated:.1e} "
                    f"| {'–' if row.effect is None else f'{row.effect:.2f}'} | {row.differs or '–'}"
                    for row in found.steps
                ],
            ),
            f"Final accuracy, {MEAN_PLAN.epochs} epochs a task: everlight, everlight with "
            "Avalanche's equations, Avalanche; how far the first two are above the third, seed by "
            "seed, with the standard error, bold beyond two of these; seconds of a run, of "
            "everlight once it is compiled:",
            _table(
                "method | told: ours | equations | Avalanche | ours above | equations above "
                "| not told: ours | equations | Avalanche | ours above | equations above "
                "| s | Avalanche's s",
                [
                    f"{row.name} | {_paired(row.told)} | {_paired(row.not_told)} "
                    f"| {row.our_seconds:.2f} | {row.their_seconds:.1f}"
                    for row in found.means
                ],
            ),
        ]
    )


def _paired(pair: Paired) -> str:
    def above(value: float, error: float) -> str:
        said = f"{value:+.3f} ± {error:.3f}"
        return said if abs(value) <= 2 * error else f"**{said}**"

    return (
        f"{pair.ours:.3f} | {pair.equated:.3f} | {pair.theirs:.3f} "
        f"| {above(pair.above, pair.error)} | {above(pair.equated_above, pair.equated_error)}"
    )


def _ranking_markdown(sizes: RankingSizes, speed: RankingSpeed) -> str:
    images, facts = sizes.part
    return (
        f"Ranking {sizes.images:,} images among {sizes.facts:,} facts of {sizes.words:,} words: "
        f"{speed.everlight_s:.1f} s, {speed.everlight_bytes / 1e6:.0f} MB beside the arguments; "
        f"the full matrix alone would take {speed.matrix_bytes / 1e9:.1f} GB. {images:,} images "
        f"among {facts:,} facts: {_ms(speed.part_everlight_s)} and "
        f"{speed.part_everlight_bytes / 1e6:.0f} MB; NumPy's full matrix "
        f"{_ms(speed.part_numpy_s)}, {speed.ratio:.1f} times as long, and "
        f"{speed.part_numpy_bytes / 1e6:.0f} MB, with {speed.same_ranks:.2%} of the ranks the same."
    )


def _race_markdown(sizes: TrainingSizes, machine: dict, speed: RaceSpeed) -> str:
    return "\n\n".join(
        [
            f"`python -m everlight_experiments.bench --race` {_where(machine)}. ER with 20 exemplars a "
            f"class, a reduced ResNet of {6 * sizes.blocks + 2} layers, {speed.tasks} tasks, "
            f"{speed.classes} classes, one epoch a task in batches of {sizes.batch_size}, "
            f"{speed.train_images:,} images trained on and {speed.test_images:,} tested on after "
            f"every task, {sizes.side}×{sizes.side}. The authors' code, not run here, took "
            f"{AUTHORS_S:.0f} s on two such cores, {AUTHORS_TRAINING_S:.0f} s of them training: "
            f"{AUTHORS_S / speed.driven_s:.2f} times as long in all.",
            _table(
                "driven with checkpoints | compilation | training | evaluation and scores "
                "| in-task validation | checkpoints | one compiled program | its compilation",
                [" | ".join(f"{seconds:.1f} s" for seconds in speed[4:])],
            ),
        ]
    )


def _many_markdown(sizes: ManyRunsSizes, machine: dict, speed: ManyRunsSpeed) -> str:
    tasks = sizes.sequence
    same = "the same bits" if speed.same_bits else "other bits"
    return "\n\n".join(
        [
            f"`python -m everlight_experiments.bench --many-runs` {_where(machine)}. {sizes.runs} runs of "
            f"{sizes.strategy}, {tasks.tasks} tasks of {tasks.classes // tasks.tasks} classes, "
            f"{tasks.train_per_class} training images a class, {tasks.side}×{tasks.side}, "
            f"{tasks.epochs} epochs, with {same} whatever the number of devices:",
            _table(
                "devices | seconds | speed-up | first call, with compilation",
                [
                    f"{n} | {seconds:.1f} | {speed.ratio[n]:.2f} | {speed.first_s[n]:.1f}"
                    for n, seconds in speed.together_s.items()
                ],
            ),
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


def _where(machine: dict) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"on {machine['cores']} cores ({machine['device']}; {versions}), load "
        f"{machine['load_before']:.1f} before and {machine['load_after']:.1f} after"
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


def main(
    race: bool = False,
    many_runs: bool = False,
    agreement: Compared | None = None,
    cases: tuple[str, ...] = (),
) -> None:
    """Measures and prints; leaves JSON in runs/bench.

    Args:
      race: IIRC's race against the authors' code instead of all else.
      many_runs: many runs at once, on one device to eight, instead of all else.
      agreement: strategies beside avalanche-lib's on digits or on ten classes of Tiny-ImageNet,
        instead of all else.
      cases: of that, names of methods; none is all.
    """
    folder = Path("runs/bench")
    if agreement is not None:
        print(run_agreement(agreement, folder, cases))
    elif many_runs:
        sizes = ManyRunsSizes()
        jax.config.update("jax_num_cpu_devices", max(sizes.devices))
        print(run_many(sizes, folder))
    elif race:
        print(run_race(TrainingSizes(), folder))
    else:
        print(bench(Sizes(), folder))


if __name__ == "__main__":
    tyro.cli(main)
