"""The paper's experiments: lifelong fact learning on random and semantic splits (tables 2 to 17).

    python -m experiments facts lifelong --scale demo

Scales:
  demo: the procedural world's facts, no data needed; 60 facts in four tasks, five strategies, one
    seed; two minutes on two cores.
  cpu: VRD's annotations, rendered at 32x32; mid-scale with 186 facts in four tasks, eight
    strategies and three seeds, then large-scale with all facts in eight tasks and six strategies.
  paper: all examples of VRD at 64x64, a wider net, more epochs; meant for an accelerator.
"""

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.continual.base import TaskSequence
from everlight.continual.steps import Protocol
from everlight.metrics.ranking import Ranks, rank_facts
from experiments.common.report import write_report
from experiments.common.run_folder import RunFolder, RunSettings, Scale
from experiments.facts.benchmarks import (
    SPLITS,
    Benchmark,
    DataSet,
    Size,
    Split,
    layout_features,
    load_source,
    make_benchmark,
)
from experiments.facts.layout import layout_embeddings
from experiments.facts.methods import METHODS, SEQUENTIAL, nearest_facts
from experiments.facts.report import report_sections
from experiments.facts.scores import Groups, Outcome, Results, group_tests, score_ranks
from experiments.facts.training import BenchmarkPlan, Net, Trainer

TUNING_SEED = 1_000
"""Nets from here on choose strengths and are never reported."""
LAYOUT, NO_INPUT = "layout only", "no input"
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
    """Lifelong fact learning: seven strategies and joint on random and semantic splits."""

    data: DataSet | None = None
    """None is the scale's: procedural or vrd."""
    photographs: Path | None = None
    """The folder of VRD's photographs; None renders what is annotated."""
    seeds: int | None = None
    """Runs of every method, each with its own initial net; None is the scale's."""


def run_lifelong(settings: LifelongRun, plans: Mapping[Scale, Plan] = PLANS) -> Path:
    """Runs it all; returns the report's path."""
    folder = RunFolder("facts", "lifelong", settings)
    started = time.monotonic()
    plan = plans[settings.scale]
    plan = dataclasses.replace(plan, data=settings.data or plan.data)
    source = load_source(plan.data, plan.scenes, settings.seed)
    results: dict[str, Results] = {}
    for name, wanted in plan.benchmarks.items():
        wanted = dataclasses.replace(wanted, seeds=settings.seeds or wanted.seeds)
        benchmark = make_benchmark(source, plan.data, wanted.size, settings.seed)
        trainer = Trainer(folder, name, wanted, plan.net, benchmark, settings.photographs)
        results[name] = _run_benchmark(trainer, wanted, settings.seed, _strengths(results))
    folder.save_results(**_arrays(results))
    pixels = "photographs" if settings.photographs else "rendered images"
    seeds = ", ".join(f"{name}: {each.seeds}" for name, each in results.items())
    summary = [
        ("Data", "; ".join(f"{name}: {_sizes(each)}" for name, each in results.items())),
        ("Pixels", _pixels(settings, plan)),
        ("Word vectors", next(iter(results.values())).benchmark.words.source),
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
        ("Duration", f"{time.monotonic() - started:.0f} s on {jax.devices()[0].device_kind}"),
    ]
    title = f"Lifelong fact learning: {source.facts.name}, {pixels} ({settings.scale})"
    sections = report_sections(folder.path, results)
    return write_report(folder.path, title, summary, sections)


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
            kept[name] = [trainer.train(name, split, strength, each) for each in seeds]
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
    pictures = np.asarray(trainer.images.images[len(benchmark.train.fact) + trainer.shown])
    return Results(
        benchmark, plan.seeds, outcomes, grids, strengths, groups, trainer.shown, pictures
    )


def _score(
    kept: Mapping[str, np.ndarray], initial: Ranks | None, sequence: TaskSequence, groups: Groups
) -> Outcome:
    """What learns all at once has its last row alone."""
    rows = slice(None) if initial is not None else slice(-1, None)
    ranks = Ranks(kept["standard"][rows], kept["generalised"][rows])
    return score_ranks(ranks, kept["found"][-1], initial, sequence, groups)


def _baselines(benchmark: Benchmark) -> dict[str, Features]:
    features = layout_features(benchmark)
    return {LAYOUT: features, NO_INPUT: tuple(part[:, :0] for part in features)}


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


def _pixels(settings: LifelongRun, plan: Plan) -> str:
    size = f"{plan.net.side}×{plan.net.side}"
    if settings.photographs is not None:
        return f"{size}, squares around the annotated boxes, cut out of the photographs"
    return (
        f"{size}, rendered from the annotated boxes, no photographs: a category is an outline, a "
        "texture and a palette, so no number here is one of natural images"
    )


def _sizes(result: Results) -> str:
    benchmark = result.benchmark
    tasks = int(benchmark.fact_task["random"].max()) + 1
    return (
        f"{len(benchmark.facts):,} facts in {tasks} tasks, {len(benchmark.train.fact):,} training "
        f"and {len(benchmark.test.fact):,} test examples"
    )
