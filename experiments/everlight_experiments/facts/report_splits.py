"""The report's sections on the benchmarks themselves: sizes, similarity, tail, tree and map."""

from collections.abc import Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from everlight.metrics.ranking import Facts, embed_facts
from everlight.metrics.ranking_groups import embedding_similarity, spo_overlap
from everlight.scenarios.facts import split_statistics
from everlight.scenarios.facts_splits import semantic_split
from everlight_experiments.common.report import PAPER, Column, Figure, Section, Table
from everlight_experiments.facts.benchmarks import SPLITS, FactSet, Split
from everlight_experiments.facts.paper_tables import OTHER_DATA, SIMILARITY
from everlight_experiments.facts.plots import (
    plot_components,
    plot_dendrograms,
    plot_matrices,
    plot_tail,
)
from everlight_experiments.facts.scores import Results

TYPES = ("S", "SP", "SPO")
SINGLE_LINKAGE = 1_000
"""Facts up to which the paper's linkage is tried beside ours: it takes its time."""


def splits_sections(path: Path, results: Mapping[str, Results]) -> list[Section]:
    """Sections on all benchmarks; pictures are written into the run's folder."""
    benchmarks = {name: each.benchmark for name, each in results.items()}
    similar = Section(
        "How similar the tasks are",
        [
            "Cosines of the tasks' mean embeddings, and the geometric mean over S, P and O of the "
            "share of pieces that two tasks have in common (table 9, section 7)."
        ],
        [_similarity_table(benchmarks), *_similarities(path, benchmarks)],
    )
    tables = [
        _statistics(name, split, each) for name, each in benchmarks.items() for split in SPLITS
    ]
    pictures = [_tail(path, benchmarks), *_dendrograms(path, benchmarks), *_maps(path, benchmarks)]
    return [similar, Section("The splits", _linkage(benchmarks), [*tables, *pictures])]


def task_similarities(
    benchmark: FactSet, split: Split
) -> tuple[Float[np.ndarray, "t t"], Float[np.ndarray, "t t"]]:
    """By word vectors and by overlap of pieces."""
    fact_task = benchmark.fact_task[split]
    tasks = int(fact_task.max()) + 1
    cosines = embedding_similarity(_facts(benchmark), jnp.asarray(fact_task), tasks)
    return np.asarray(cosines), spo_overlap(benchmark.pieces, fact_task, tasks)


def _facts(benchmark: FactSet) -> Facts:
    return Facts(jnp.asarray(benchmark.pieces), jnp.asarray(benchmark.words.vectors))


def _similarity_table(benchmarks: Mapping[str, FactSet]) -> Table:
    rows = []
    for name, benchmark in benchmarks.items():
        for split in SPLITS:
            matrices = task_similarities(benchmark, split)
            apart = ~np.eye(len(matrices[0]), dtype=bool)
            paper = SIMILARITY.get((name, split), ("–", "–"))
            rows.append(
                [
                    f"{name}, {split}",
                    *(f"{matrix.mean():.2f}" for matrix in matrices),
                    *(f"{matrix[apart].mean():.2f}" for matrix in matrices),
                    *(str(value) for value in paper),
                ]
            )
    columns = [Column("benchmark")]
    for group in ("mean of the whole matrix", "mean of different tasks", PAPER):
        columns += [Column(which, group) for which in ("word vectors", "S, P, O overlap")]
    caption = (
        f"The paper's: {OTHER_DATA}, means of whole matrices; the entries that it prints for the "
        "random mid-scale overlap have the mean 0.38, not 0.84."
    )
    return Table(caption, columns, rows)


def _similarities(path: Path, benchmarks: Mapping[str, FactSet]) -> list[Figure]:
    figures = []
    for name, benchmark in benchmarks.items():
        both = {split: task_similarities(benchmark, split) for split in SPLITS}
        matrices = {
            f"{split}, {kind}": both[split][place]
            for place, kind in enumerate(("word vectors", "overlap"))
            for split in SPLITS
        }
        picture = plot_matrices(
            path / f"similarity_{name}.png", matrices, ("task", "task", "similarity")
        )
        figures.append(Figure(f"{name}: similarity of tasks.", picture))
    return figures


def _statistics(name: str, split: Split, benchmark: FactSet) -> Table:
    counts = [
        split_statistics(benchmark.pieces, benchmark.fact_task[split], examples)
        for examples in (benchmark.train_examples, benchmark.test_examples)
    ]
    parts = (counts[0].facts, counts[0].examples, counts[1].examples)
    rows = [
        [str(task + 1), *(f"{value:,}" for part in parts for value in part[task])]
        for task in range(len(parts[0]))
    ]
    rows.append(["all", *(f"{value:,}" for part in parts for value in part.sum(axis=0))])
    columns = [Column("task")]
    for group in ("facts", "training examples", "test examples"):
        columns += [Column(kind, group) for kind in TYPES]
    caption = f"{name}, {split} split (table 2): by type, ⟨S,*,*⟩, ⟨S,P,*⟩ and ⟨S,P,O⟩."
    return Table(caption, columns, rows, frozenset({len(rows) - 1}))


def _linkage(benchmarks: Mapping[str, FactSet]) -> list[str]:
    """What the semantic split is, and what the paper's linkage would give."""
    order = "Tasks are learned in the order of their numbers."
    if any(benchmark.semantic is None for benchmark in benchmarks.values()):
        return [f"Both splits are those of the files that were given. {order}"]
    texts = [
        "The semantic split is that of Ward's linkage on the embeddings; the random one is the "
        f"most balanced of a hundred. {order}"
    ]
    for name, benchmark in benchmarks.items():
        if len(benchmark.facts) > SINGLE_LINKAGE:
            continue
        tasks = int(benchmark.fact_task["semantic"].max()) + 1
        single = semantic_split(benchmark.pieces, benchmark.words.vectors, tasks, "single")
        sizes = ", ".join(f"{size:,}" for size in np.bincount(single.fact_task))
        texts.append(f"{name}: the paper's single linkage would give tasks of {sizes} facts.")
    return texts


def _tail(path: Path, benchmarks: Mapping[str, FactSet]) -> Figure:
    panels = {
        name: {
            kind: each.all_counts[np.sum(each.pieces >= 0, axis=1) == size]
            for size, kind in enumerate(TYPES, 1)
        }
        for name, each in benchmarks.items()
    }
    caption = (
        "Facts by their training examples in the data set, before the benchmark takes some of "
        "each; facts of test examples alone are left out."
    )
    return Figure(caption, plot_tail(path / "long_tail.png", panels))


def _dendrograms(path: Path, benchmarks: Mapping[str, FactSet]) -> list[Figure]:
    trees = {
        name: (each.semantic, each.facts)
        for name, each in benchmarks.items()
        if each.semantic is not None
    }
    if not trees:
        return []
    caption = (
        "The last merges of the semantic splits and the cut into tasks (figures 3 and 13); colours "
        "are tasks, in no order."
    )
    return [Figure(caption, plot_dendrograms(path / "dendrograms.png", trees))]


def _maps(path: Path, benchmarks: Mapping[str, FactSet]) -> list[Figure]:
    figures = []
    for name, each in benchmarks.items():
        embeddings = np.asarray(embed_facts(_facts(each))).reshape(len(each.facts), -1)
        panels: dict[str, Int[np.ndarray, "f"]] = {split: each.fact_task[split] for split in SPLITS}
        picture = plot_components(path / f"facts_{name}.png", embeddings, panels)
        caption = f"{name}: the facts' embeddings on their first two principal components."
        figures.append(Figure(caption, picture))
    return figures
