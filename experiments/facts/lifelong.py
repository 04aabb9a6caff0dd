"""The paper's experiments: lifelong fact learning on random and semantic splits (tables 2 to 17).

    python -m experiments facts lifelong --scale demo

With `--splits` it runs on the authors' files instead, their photographs streamed.

Scales:
  demo: the procedural world's facts, no data needed; 60 facts in four tasks, five strategies, one
    seed; three and a half minutes on two cores.
  cpu: VRD's annotations, rendered at 32x32; mid-scale with 186 facts in four tasks, eight
    strategies and three seeds, then large-scale with all facts in eight tasks and six strategies.
  paper: all examples of VRD at 64x64, a wider net, more epochs; meant for an accelerator.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from data_pipelines.errors import DataError, MissingDataError
from data_pipelines.facts.vrd import box_features
from data_pipelines.images.jpeg_store import JpegStore
from everlight.continual.base import TaskSequence
from everlight.continual.engine.flax_setup import StoredImages
from everlight.continual.engine.steps import Protocol
from everlight.metrics.ranking import Ranks, rank_facts
from experiments.common.report import write_report
from experiments.common.run_folder import RunFolder
from experiments.common.settings import Bytes, Count, RunSettings, Scale
from experiments.facts import CITATION
from experiments.facts.benchmarks import (
    SPLITS,
    Benchmark,
    DataSet,
    Size,
    Split,
    WordFile,
    load_images,
    load_source,
    make_benchmark,
)
from experiments.facts.layout import LAYOUT, NO_INPUT, layout_embeddings
from experiments.facts.methods import METHODS, SEQUENTIAL, nearest_facts
from experiments.facts.release import open_photographs, read_benchmark, split_folders, there_are
from experiments.facts.report import report_sections
from experiments.facts.scores import Groups, Outcome, Results, group_tests, score_ranks
from experiments.facts.training import BenchmarkPlan, Net, Trainer

TUNING_SEED = 1_000
"""Nets from here on choose strengths and are never reported."""
NAMED_WORDS = 20
"""Of those without a vector, in the report."""
Features = tuple[Float[np.ndarray, "n f"], Float[np.ndarray, "m f"]]
"""Of training and of test examples."""
PAPER_METHODS = ("ExpertGate", "finetune", "IMM mode", "SI", "MAS", "joint")


@dataclass(frozen=True)
class Plan:
    """What a scale changes."""

    data: DataSet
    net: Net
    benchmarks: Mapping[str, BenchmarkPlan]
    scenes: tuple[int, int] = (1500, 400)
    """Of the procedural world, for training and testing."""


def _select_last(epochs: int, batch_size: int) -> Protocol:
    # The last epoch: joint's task would be judged on the last task's validation alone.
    return Protocol(epochs=epochs, batch_size=batch_size, select="last")


PLANS: Mapping[Scale, Plan] = {
    "demo": Plan(
        data="procedural",
        net=Net(side=32, trunk=(16, 32), branch=32, hidden=128),
        benchmarks={
            "mid-scale": BenchmarkPlan(
                Size(60, 4, (60, 20)),
                ("ExpertGate", "finetune", "IMM mode", "MAS", "joint"),
                _select_last(6, 32),
                seeds=1,
                strengths_tried=2,
            )
        },
    ),
    "cpu": Plan(
        data="vrd",
        net=Net(side=32, trunk=(16, 32), branch=32, hidden=128),
        benchmarks={
            "mid-scale": BenchmarkPlan(
                Size(186, 4, (25, 10)), tuple(METHODS), _select_last(6, 32), seeds=3
            ),
            "large-scale": BenchmarkPlan(
                Size(None, 8, (20, 3)),
                PAPER_METHODS,
                _select_last(4, 32),
                seeds=3,
                strengths_tried=0,
            ),
        },
    ),
    "paper": Plan(
        data="vrd",
        net=Net(side=64, trunk=(64, 128, 256), branch=256, hidden=1024),
        benchmarks={
            "mid-scale": BenchmarkPlan(
                Size(186, 4, (150, 75)), tuple(METHODS), _select_last(30, 64), seeds=5
            ),
            "large-scale": BenchmarkPlan(
                Size(None, 8, (100_000, 100_000)), tuple(METHODS), _select_last(10, 64), seeds=3
            ),
        },
    ),
}


@dataclass(frozen=True)
class LifelongRun(RunSettings):
    """Lifelong fact learning: up to seven strategies and joint on random and semantic splits."""

    data: DataSet | None = None
    """None is the scale's: procedural or vrd."""
    photographs: Path | None = None
    """The folder of VRD's photographs, or of those that `splits` lists; None renders what VRD has
    annotated."""
    splits: Path | None = None
    """The authors' folder `splits`, in place of a data set; with --photographs and --words."""
    words: Path | None = None
    """A file of word vectors: word2vec's or GloVe's; None is the data set's own."""
    unknown_words: Literal["refuse", "zeros"] = "refuse"
    """What to do about words without a vector; the report counts them."""
    memory_limit: Bytes = 2_000_000_000
    """Bytes of decoded photographs that are held while those of `splits` are read."""
    seeds: Count | None = None
    """Runs of every method, each with its own initial net; None is the scale's."""


def run_lifelong(settings: LifelongRun, plans: Mapping[Scale, Plan] = PLANS) -> Path:
    """Runs it all; returns the report's path."""
    plan = plans[settings.scale]
    plan = dataclasses.replace(plan, data=settings.data or plan.data)
    if settings.photographs and not settings.splits and plan.data != "vrd":
        raise DataError(f"--photographs: {plan.data} has none; give --data vrd or --splits")
    source = _open_splits(settings, plan) if settings.splits else _open_data(settings, plan)
    folder = RunFolder("facts", "lifelong", settings, shared=True)
    results: dict[str, Results] = {}
    for name, wanted in source.plans.items():
        wanted = dataclasses.replace(wanted, seeds=settings.seeds or wanted.seeds)
        benchmark, images = source.make(wanted.size)
        trainer = Trainer(folder, name, wanted, plan.net, benchmark, images)
        results[name] = _run_benchmark(trainer, wanted, settings.seed, _strengths(results))
    folder.save_results(**_arrays(results))
    seeds = ", ".join(f"{name}: {each.seeds}" for name, each in results.items())
    summary = [
        ("Paper", CITATION),
        (
            "Data",
            "; ".join(
                [f"{name}: {_sizes(each)}" for name, each in results.items()]
                + [f"{name}: left out, there is no such split" for name in source.left_out]
            ),
        ),
        ("Pixels", f"{plan.net.side}×{plan.net.side}, {source.pixels}"),
        ("Word vectors", _words(results)),
        ("Seeds", f"initial nets and batches; {seeds}; the splits are the same for all"),
        (
            "Selection rule",
            "last epoch; strengths: greatest generalised Top-5 on a tenth of the training scenes, "
            "held out, of a net that is not reported",
        ),
        (
            "Training",
            f"joint embedding, channels {plan.net.trunk} and {plan.net.branch}, "
            f"{plan.net.hidden} hidden units a branch; Adam at {plan.net.rate:g}, anew at every "
            "task; ExpertGate's gate sees normalised images as means of 8×8 blocks, no pretrained "
            "net",
        ),
        ("Duration", folder.duration()),
    ]
    title = f"Lifelong fact learning: {source.name} ({settings.scale})"
    sections = report_sections(folder.path, results)
    return write_report(folder.path, title, summary, sections)


class Source(NamedTuple):
    """Where benchmarks are from."""

    name: str
    """For the report's title."""
    pixels: str
    """What the images are, for the report."""
    plans: Mapping[str, BenchmarkPlan]
    left_out: tuple[str, ...]
    """Benchmarks that it cannot make."""
    make: Callable[[Size], tuple[Benchmark, StoredImages | JpegStore]]
    """A benchmark with its images, all on the device or read as they are asked for."""


def _open_data(settings: LifelongRun, plan: Plan) -> Source:
    data = load_source(plan.data, plan.scenes, settings.seed)
    words = WordFile(settings.words, settings.unknown_words)

    def make(size: Size) -> tuple[Benchmark, StoredImages]:
        benchmark = make_benchmark(data, plan.data, size, settings.seed, words)
        return benchmark, load_images(benchmark, plan.net.side, settings.photographs)

    if settings.photographs is not None:
        kind, pixels = "photographs", "squares around annotated boxes, cut out of the photographs"
    else:
        kind = "rendered images"
        pixels = (
            "rendered from the annotated boxes, no photographs: a category is an outline, a "
            "texture and a palette, so no number here is one of natural images"
        )
    return Source(f"{data.facts.name}, {kind}", pixels, plan.benchmarks, (), make)


def _open_splits(settings: LifelongRun, plan: Plan) -> Source:
    """The authors' files.

    Raises:
      DataError: a data set was asked for too.
      MissingDataError: no photographs were given, or the first benchmark's split is missing, on
        which strengths are chosen.
    """
    if settings.data is not None:
        raise DataError(f"--data {settings.data} and --splits; give one of them")
    if settings.photographs is None:
        raise MissingDataError("--splits needs --photographs, the folder of what it lists")
    plans = {
        name: each
        for name, each in plan.benchmarks.items()
        if there_are(settings.splits, each.size.tasks)
    }
    first, wanted = next(iter(plan.benchmarks.items()))
    if first not in plans:
        needed = " and ".join(map(str, split_folders(settings.splits, wanted.size.tasks).values()))
        raise MissingDataError(f"{needed}: {first} needs both, and its strengths serve the rest")
    words = WordFile(settings.words, settings.unknown_words)

    def make(size: Size) -> tuple[Benchmark, JpegStore]:
        benchmark = read_benchmark(settings.splits, size, words)
        side, limit = plan.net.side, settings.memory_limit
        return benchmark, open_photographs(benchmark, settings.photographs, side, limit)

    left_out = tuple(name for name in plan.benchmarks if name not in plans)
    return Source(
        f"the splits in {settings.splits.name}, photographs",
        "centres of the photographs",
        plans,
        left_out,
        make,
    )


def _words(results: Mapping[str, Results]) -> str:
    words = [each.benchmark.words for each in results.values()]
    unknown = sorted({word for each in words for word in each.unknown})
    if not unknown:
        return words[0].source
    named = ", ".join(unknown[:NAMED_WORDS]) + (", ..." if len(unknown) > NAMED_WORDS else "")
    return f"{words[0].source}; {len(unknown)} words without one count as zeros: {named}"


def _strengths(results: Mapping[str, Results]) -> Mapping[tuple[Split, str], float]:
    """Those chosen on the benchmark before."""
    return next(reversed(results.values())).strengths if results else {}


def _run_benchmark(
    trainer: Trainer, plan: BenchmarkPlan, seed: int, before: Mapping[tuple[Split, str], float]
) -> Results:
    benchmark, seeds = trainer.benchmark, [seed + number for number in range(plan.seeds)]
    groups = group_tests(benchmark)
    outcomes: dict[Split, dict[str, Outcome]] = {}
    grids, strengths = {}, {}
    for split in SPLITS:
        kept = {}
        for name in plan.methods:
            grid = trainer.try_strengths(name, split, TUNING_SEED + seed)
            default = before.get((split, name), 0.0)
            strength = max(
                grid, key=lambda value: np.nan_to_num(grid[value], nan=-1), default=default
            )
            if METHODS[name].strengths:
                grids[split, name], strengths[split, name] = grid, strength
            kept[name] = trainer.train(name, split, strength, seeds)
        initial = [trainer.initial_ranks(split, each) for each in seeds]
        outcomes[split] = {
            name: _stack(
                [
                    _score(
                        one, start if name in SEQUENTIAL else None, trainer.sequence(split), groups
                    )
                    for one, start in zip(runs, initial, strict=True)
                ]
            )
            for name, runs in kept.items()
        }
        for name, features in _baselines(benchmark).items():
            outcomes[split][name] = _stack(
                [_score_layout(trainer, split, features, each, groups) for each in seeds]
            )
    shown = trainer.shown, trainer.pictures()
    return Results(benchmark, plan.seeds, outcomes, grids, strengths, groups, *shown)


def _score(
    kept: Mapping[str, np.ndarray], initial: Ranks | None, sequence: TaskSequence, groups: Groups
) -> Outcome:
    """What learns all at once has its last row alone."""
    rows = slice(None) if initial is not None else slice(-1, None)
    ranks = Ranks(kept["standard"][rows], kept["generalised"][rows])
    return score_ranks(ranks, kept["found"][-1], initial, sequence, groups)


def _baselines(benchmark: Benchmark) -> dict[str, Features]:
    """Layout only where boxes are known."""
    parts = benchmark.train, benchmark.test
    nothing = tuple(np.zeros((len(part.fact), 0), np.float32) for part in parts)
    if any(part.samples is None for part in parts):
        return {NO_INPUT: nothing}
    return {LAYOUT: tuple(box_features(part.samples) for part in parts), NO_INPUT: nothing}


def _score_layout(
    trainer: Trainer, split: Split, features: Features, seed: int, groups: Groups
) -> Outcome:
    benchmark = trainer.benchmark
    embedded = jnp.asarray(
        layout_embeddings(
            features, benchmark.pieces[benchmark.train.fact], benchmark.words.vectors, seed
        )
    )
    ranks = _ranked(
        embedded,
        jnp.asarray(benchmark.test.fact),
        trainer.facts,
        jnp.asarray(benchmark.fact_task[split]),
    )
    found = nearest_facts(embedded[trainer.shown], trainer.facts)
    ranks = Ranks(*(rank[None] for rank in ranks))
    return score_ranks(ranks, np.asarray(found), None, trainer.sequence(split), groups)


_ranked = jax.jit(rank_facts)


def _stack(runs: list[Outcome]) -> Outcome:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *runs)


def _arrays(results: Mapping[str, Results]) -> dict[str, np.ndarray]:
    """All scores by name."""
    found = {}
    for name, each in results.items():
        for split, methods in each.outcomes.items():
            for method, outcome in methods.items():
                for path, leaf in jax.tree_util.tree_leaves_with_path(outcome):
                    field = "/".join(key.name for key in path)
                    found[f"{name}/{split}/{method}/{field}"] = leaf
    return found


def _sizes(result: Results) -> str:
    benchmark = result.benchmark
    tasks = int(benchmark.fact_task["random"].max()) + 1
    return (
        f"{len(benchmark.facts):,} facts in {tasks} tasks, {len(benchmark.train.fact):,} training "
        f"and {len(benchmark.test.fact):,} test examples"
    )
