"""The paper's experiments: lifelong fact learning on random and semantic splits (tables 2 to 17).

    everlight facts lifelong --preset demo

With `--splits` it runs on the authors' files instead, their photographs streamed.

Presets:
  demo: the procedural world's facts, no data needed; 60 facts in four tasks, five strategies, one
    seed; three and a half minutes on two cores.
  small: VRD's annotations, rendered at 32x32; mid-scale with 186 facts in four tasks, eight
    strategies and three seeds, then large-scale with all facts in eight tasks and six strategies;
    SI and MAS with the hyperparameters that their papers recommend too; an hour on two busy cores.
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
from jaxtyping import Float, Int

from everlight.continual.base import TaskSequence
from everlight.continual.engine.flax_setup import StoredImages
from everlight.metrics.ranking import Facts, Ranks, rank_facts
from everlight_data.errors import DataError, MissingDataError
from everlight_data.facts.vrd import box_features
from everlight_data.images.jpeg_store import JpegStore
from everlight_experiments.common.plan_settings import PlannedRun, changed_plan, plan_in_force
from everlight_experiments.common.report import write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Bytes, Preset
from everlight_experiments.continual.benchmark import Draw
from everlight_experiments.continual.plan import Seeds
from everlight_experiments.continual.report import report_sections
from everlight_experiments.continual.run import arrays_of
from everlight_experiments.continual.runner import Outcome as Learning
from everlight_experiments.continual.runner import Runner
from everlight_experiments.facts import CITATION
from everlight_experiments.facts.benchmarks import (
    SPLITS,
    DataSet,
    FactSet,
    Size,
    Split,
    WordFile,
    load_images,
    load_source,
    make_benchmark,
)
from everlight_experiments.facts.layout import LAYOUT, NO_INPUT, layout_embeddings
from everlight_experiments.facts.record import (
    METHODS_HERE,
    PLANS,
    SEQUENTIAL,
    BenchmarkPlan,
    Plan,
    initial_ranking,
    nearest_facts,
    net_name,
    pictures,
    record,
    shown_samples,
    sizes,
)
from everlight_experiments.facts.release import (
    open_photographs,
    read_benchmark,
    split_folders,
    there_are,
)
from everlight_experiments.facts.report import paper_sections
from everlight_experiments.facts.scores import (
    Groups,
    Learnt,
    Outcome,
    Outcomes,
    Results,
    group_tests,
    score_ranks,
)

NAMED_WORDS = 20
"""Of those without a vector, in the report."""
Features = tuple[Float[np.ndarray, "n f"], Float[np.ndarray, "m f"]]
"""Of training and of test examples."""


@dataclass(frozen=True)
class LifelongRun(PlannedRun):
    """Train strategies on lifelong fact learning with random and semantic splits."""

    data: DataSet | None = None
    """Data set to learn: procedural or vrd; None is the preset's."""
    photographs: Path | None = None
    """Folder of VRD's photographs, or of those listed by --splits; None renders VRD's
    annotations."""
    splits: Path | None = None
    """The authors' folder `splits` instead of a data set, with --photographs and --words."""
    words: Path | None = None
    """File of word vectors in the format of word2vec or GloVe; None is the data set's own."""
    unknown_words: Literal["refuse", "zeros"] = "refuse"
    """Action for words without a vector; the report counts them."""
    memory_limit: Bytes = 2_000_000_000
    """Bytes of decoded photographs held in memory while those of --splits are read."""
    seeds: Seeds | None = None
    """Number of evaluation seeds, each with its own initialization; None is the preset's."""


def run_lifelong(settings: LifelongRun, plans: Mapping[Preset, Plan] = PLANS) -> Path:
    """Runs it all; returns the report's path."""
    plan = changed_plan(plans[settings.preset], settings.plan)
    plan = dataclasses.replace(plan, data=settings.data or plan.data)
    if settings.photographs and not settings.splits and plan.data != "vrd":
        raise DataError(f"--photographs: {plan.data} has none; give --data vrd or --splits")
    source = _open_splits(settings, plan) if settings.splits else _open_data(settings, plan)
    folder = RunFolder("facts", "lifelong", settings, shared=True)
    folder.tell_plan(plan_in_force(plan))
    results: dict[str, Results] = {}
    every, used = {}, {}
    for name, wanted in source.plans.items():
        wanted = dataclasses.replace(wanted, seeds=settings.seeds or wanted.seeds)
        fact_set, images = source.make(wanted.size)
        benchmark = record(name, wanted, plan.net, fact_set, images, plan.chosen)
        runner = Runner(folder, benchmark, settings.seed, part=name)
        shown = shown_samples(fact_set), pictures(fact_set, images)
        learnt, groups = _train(runner, wanted), group_tests(fact_set)
        outcomes = _scored(runner, wanted, fact_set, groups, learnt, shown[0])
        results[name] = Results(fact_set, wanted.seeds, learnt, outcomes, groups, *shown)
        every |= {f"{name}, {split}": by_name for split, by_name in learnt.items()}
        used |= dict.fromkeys(wanted.methods)
    folder.save_results(**_arrays(results))
    seeds = ", ".join(f"{name}: {each.seeds}" for name, each in results.items())
    summary = [
        ("Paper", CITATION),
        (
            "Data",
            "; ".join(
                [f"{name}: {sizes(each.benchmark)}" for name, each in results.items()]
                + [f"{name}: left out, there is no such split" for name in source.left_out]
            ),
        ),
        ("Pixels", f"{plan.net.side}×{plan.net.side}, {source.pixels}"),
        ("Word vectors", _words(results)),
        ("Seeds", f"initialization and batches; {seeds}; all seeds share the splits"),
        (
            "Selection rule",
            "The network after the last epoch is evaluated. Each hyper-parameter has the value "
            "with the highest generalised Top-5 on a held-out tenth of the training scenes, with a "
            "validation seed.",
        ),
        ("Selection of network and training", plan.chosen),
        (
            "Training",
            net_name(plan.net),
        ),
        ("Duration", folder.duration()),
    ]
    title = f"Lifelong fact learning: {source.name} ({settings.preset})"
    # Of several benchmarks the last record stands for all: they differ in their facts alone.
    benchmark = benchmark._replace(note=summary[1][1], scenarios=())
    rows = [METHODS_HERE[name] for name in used]
    first, sections = report_sections(folder.path, benchmark, every, rows)
    own = paper_sections(folder.path, results)
    return write_report(folder.path, title, summary, [*own, *sections], first)


class Source(NamedTuple):
    """Where benchmarks are from."""

    name: str
    """For the report's title."""
    pixels: str
    """What the images are, for the report."""
    plans: Mapping[str, BenchmarkPlan]
    left_out: tuple[str, ...]
    """Benchmarks that it cannot make."""
    make: Callable[[Size], tuple[FactSet, StoredImages | JpegStore]]
    """A benchmark with its images, all on the device or read as they are asked for."""


def _open_data(settings: LifelongRun, plan: Plan) -> Source:
    data = load_source(plan.data, plan.scenes, settings.seed)
    words = WordFile(settings.words, settings.unknown_words)

    def make(size: Size) -> tuple[FactSet, StoredImages]:
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
      MissingDataError: no photographs were given, or no benchmark has both splits there.
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
    if not plans:
        name, wanted = next(iter(plan.benchmarks.items()))
        needed = " and ".join(map(str, split_folders(settings.splits, wanted.size.tasks).values()))
        raise MissingDataError(f"{needed}: {name} needs both, and the others' are missing too")
    words = WordFile(settings.words, settings.unknown_words)

    def make(size: Size) -> tuple[FactSet, JpegStore]:
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


def _train(runner: Runner, plan: BenchmarkPlan) -> Learnt:
    """Every method on both splits."""
    learnt: dict[Split, dict[str, Learning]] = {split: {} for split in SPLITS}
    for name in plan.methods:
        method = runner.benchmark.row(METHODS_HERE[name])
        for split in SPLITS:
            row = method._replace(
                hyperparameters=_middle(method.hyperparameters, plan.hyperparameters_tried)
            )
            learnt[split][name] = runner.outcome(split, row, plan.seeds)
    return learnt


def _scored(
    runner: Runner,
    plan: BenchmarkPlan,
    fact_set: FactSet,
    groups: Groups,
    learnt: Learnt,
    shown: Int[np.ndarray, "s"],
) -> Outcomes:
    """What the paper asks of them, and of what sees no pixel."""
    benchmark = runner.benchmark
    draws = [Draw("reported", runner.seed, number) for number in range(plan.seeds)]
    initial = initial_ranking(benchmark, METHODS_HERE[plan.methods[0]])
    outcomes: dict[Split, dict[str, Outcome]] = {}
    for split in SPLITS:
        kept = {
            name: runner.train(split, METHODS_HERE[name], each.choice.hyperparameter, plan.seeds)
            for name, each in learnt[split].items()
        }
        sequence = benchmark.sequence(split, METHODS_HERE["finetune"], draws[0])
        starts = [initial(split, draw) for draw in draws]
        outcomes[split] = {
            name: _stack(
                [
                    _score(one, start if name in SEQUENTIAL else None, sequence, groups)
                    for one, start in zip(runs, starts, strict=True)
                ]
            )
            for name, runs in kept.items()
        }
        facts = benchmark.shared(split, METHODS_HERE["finetune"]).facts
        for name, features in _baselines(fact_set).items():
            outcomes[split][name] = _stack(
                [
                    _score_layout(fact_set, facts, sequence, features, draw.order, groups, shown)
                    for draw in draws
                ]
            )
    return outcomes


def _middle(hyperparameters: tuple[float, ...], count: int) -> tuple[float, ...]:
    """So many of them around the middle."""
    first = max(0, len(hyperparameters) // 2 - count // 2)
    return hyperparameters[first : first + count]


def _score(
    kept: Mapping[str, np.ndarray], initial: Ranks | None, sequence: TaskSequence, groups: Groups
) -> Outcome:
    """What learns all at once has its last row alone."""
    rows = slice(None) if initial is not None else slice(-1, None)
    ranks = Ranks(kept["standard"][rows], kept["generalised"][rows])
    return score_ranks(ranks, kept["found"][-1], initial, sequence, groups)


def _baselines(benchmark: FactSet) -> dict[str, Features]:
    """Layout only where boxes are known."""
    parts = benchmark.train, benchmark.test
    nothing = tuple(np.zeros((len(part.fact), 0), np.float32) for part in parts)
    if any(part.samples is None for part in parts):
        return {NO_INPUT: nothing}
    return {LAYOUT: tuple(box_features(part.samples) for part in parts), NO_INPUT: nothing}


def _score_layout(
    fact_set: FactSet,
    facts: Facts,
    sequence: TaskSequence,
    features: Features,
    seed: int,
    groups: Groups,
    shown: Int[np.ndarray, "s"],
) -> Outcome:
    vectors, pieces = fact_set.words.vectors, fact_set.pieces[fact_set.train.fact]
    embedded = jnp.asarray(layout_embeddings(features, pieces, vectors, seed))
    ranks = _ranked(embedded, jnp.asarray(fact_set.test.fact), facts, sequence.class_task)
    found = np.asarray(nearest_facts(embedded[shown], facts))
    ranks = Ranks(*(rank[None] for rank in ranks))
    return score_ranks(ranks, found, None, sequence, groups)


_ranked = jax.jit(rank_facts)


def _stack(runs: list[Outcome]) -> Outcome:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *runs)


def _arrays(results: Mapping[str, Results]) -> dict[str, np.ndarray]:
    """All scores by name."""
    found = {}
    for name, each in results.items():
        found |= {f"{name}/{key}": value for key, value in arrays_of(each.learnt).items()}
        for split, methods in each.outcomes.items():
            for method, outcome in methods.items():
                for path, leaf in jax.tree_util.tree_leaves_with_path(outcome):
                    field = "/".join(key.name for key in path)
                    found[f"{name}/{split}/{method}/{field}"] = leaf
    return found
