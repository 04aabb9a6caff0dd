"""The sections of the paper's report: tables of ranks, tail and splits, and examples."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from everlight.continual.registry import METHODS
from everlight.metrics.fact_scores import (
    BACKWARD,
    DROP,
    FEW_SHOT,
    FORWARD,
    GENERALISED,
    OVER_TASKS,
    STANDARD,
)
from everlight.metrics.ranking import chance_hits, nearest_facts, rank_facts
from everlight.metrics.ranking_groups import SPO_CASES, embedding_similarity, spo_overlap
from everlight.plots import plot_answers
from everlight.scenarios.facts import split_statistics
from everlight_data.facts.divided import NO_INPUT, SPLITS, DividedFacts, division_notes
from everlight_data.facts.pictured import PicturedFacts
from everlight_data.facts.published_tables import OTHER_DATA, PRINTED, SIMILARITY, SPO_TOP5
from everlight_experiments.continual.benchmark import Benchmarks, Draw, Trained
from everlight_experiments.continual.outcome import BY_TASK, measured
from everlight_experiments.continual.paper import Results
from everlight_experiments.facts.benchmark import (
    BINS,
    BY_COUNT,
    EDGES,
    FOUND,
    LEAST,
    SPO,
    TOP,
    group_tests,
)
from everlight_experiments.report.cells import dash, percent, spread
from everlight_experiments.report.plots import new_canvas, save
from everlight_experiments.report.writer import PAPER, Column, Figure, Section, Table
from everlight_experiments.run_folder.many_runs import DIVERGED_AT, NOWHERE

TYPES = ("S", "SP", "SPO")
PICTURES = 8
"""Examples shown of each split."""
Baselines = Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]
"""Metrics of what is not trained, by split and name."""
Values = Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]
"""Metrics by column and method, baselines among them."""


class PartData(NamedTuple):
    """One of the paper's benchmarks, of two columns."""

    learned: PicturedFacts
    baselines: Baselines
    seeds: int


def baselines_of(
    learned: PicturedFacts, benchmarks: Benchmarks, draws: Sequence[Draw]
) -> Baselines:
    """Return the metrics of baselines that learn all facts at once.

    One knows only the boxes, where there are some; the other has no input.

    Args:
      learned: facts and examples.
      benchmarks: by split.
      draws: seeds.
    """
    divided, shown = learned.divided, learned.shown
    facts = divided.label_space
    found: dict[str, dict[str, Mapping[str, np.ndarray]]] = {split: {} for split in benchmarks}
    for name, every in divided.baseline_embeddings([draw.order for draw in draws]).items():
        for split, benchmark in benchmarks.items():
            runs = []
            for draw, each in zip(draws, jnp.asarray(every), strict=True):
                sequence = benchmark.sequence(METHODS["joint"], draw)
                ranks = _ranked(each, jnp.asarray(divided.test.fact), facts, sequence.class_task)
                arrays = {name: np.asarray(rank)[None] for name, rank in ranks._asdict().items()}
                arrays["found"] = np.asarray(nearest_facts(each[shown], facts, TOP))[None]
                arrays |= {"steps": np.zeros(1, int), DIVERGED_AT: np.array(NOWHERE)}
                tasks = sequence.tasks.id.shape[0]
                runs.append(Trained(arrays, sequence, draw, tasks))
            found[split][name] = measured(benchmark.metrics, runs)
    return found


_ranked = jax.jit(rank_facts)


def values_of(results: Results) -> Values:
    """Return all metrics, those of baselines too."""
    return {
        f"{part}, {split}": {
            name: outcome.metrics for name, outcome in results.of(f"{part}, {split}").items()
        }
        | dict(each.baselines[split])
        for part, each in results.experiment.data.items()
        for split in SPLITS
    }


def fact_sections(results: Results) -> list[Section]:
    """Return all sections but the findings; pictures are written into the run's folder."""
    values, parts = values_of(results), results.experiment.data
    text = (
        "Standard: among the facts of the test's own task; generalised: among those of all tasks. "
        "Layout only knows the boxes and no pixel, and learns all at once as joint does; no input "
        "gives every image the mean embedding of the training facts."
    )
    found = []
    for part, each in parts.items():
        of_part = {split: values[f"{part}, {split}"] for split in SPLITS}
        divided = each.learned.divided
        items: list[Table | Figure] = [
            _final_table(f"{part}, {split}", divided, of_part[split]) for split in SPLITS
        ]
        items.append(_transfer_table(part, of_part))
        found.append(Section(f"{part}: Top-5 after the last task", [text], items))
        found.append(_tail_section(part, divided, of_part))
        items = [_examples(results.folder, part, split, each, of_part[split]) for split in SPLITS]
        found.append(Section(f"{part}: right and wrong examples", items=items))
    divided = {part: each.learned.divided for part, each in parts.items()}
    return [*found, _splits_section(divided)]


def _final_table(column: str, divided: DividedFacts, methods: Mapping) -> Table:
    tasks = divided.tasks
    columns = [Column("method")]
    for group in ("standard", "generalised"):
        columns += [Column(f"T{task + 1}", group) for task in range(tasks)]
        columns += [Column("tasks", group), Column("examples", group)]
    columns += [Column(which, "drop") for which in ("tasks", "examples")]
    columns += [Column(which, PAPER) for which in ("standard", "generalised", "drop")]
    rows = []
    for name, metrics in methods.items():
        row = [name]
        for metric in (STANDARD, GENERALISED, DROP):
            if metric != DROP:
                by_task = metrics[BY_TASK.format(metric)][:, -1].mean(axis=0)
                row += [f"{100 * value:.1f}" for value in by_task]
            row += [percent(metrics[key][:, -1]) for key in (OVER_TASKS.format(metric), metric)]
        standard, generalised, *_ = (*_printed(column, name), np.nan, np.nan)
        printed = (standard, generalised, standard - generalised)
        rows.append([*row, *(dash(f"{value:.1f}") for value in printed)])
    # The Top-5 of a random order of facts.
    by_chance = chance_hits(divided.fact_task[column.split(", ")[1]], divided.test.fact, TOP)
    drop = by_chance[0][-2:] - by_chance[1][-2:]
    chances = [f"{100 * value:.1f}" for value in (*by_chance[0], *by_chance[1], *drop)]
    rows.append(["chance", *chances, *["–"] * 3])
    caption = (
        f"{column}: percent, mean ± standard deviation over seeds; by task, mean over tasks and "
        f"over examples. The paper's: over examples, {OTHER_DATA}."
    )
    return Table(caption, columns, rows)


def _printed(column: str, method: str) -> tuple[float, ...]:
    return PRINTED.get(column, {}).get(method, ())


def _transfer_table(part: str, values: Values) -> Table:
    names = ("BWT", "FWT")
    columns = [Column("method")]
    columns += [Column(f"{name}, {split}") for split in SPLITS for name in names]
    columns += [Column(f"{name}, {split}", PAPER) for split in SPLITS for name in names]
    rows = []
    for method, metrics in values["random"].items():
        if np.isnan(metrics[BACKWARD]).all():
            continue
        row = [method]
        for split in SPLITS:
            row += [spread(values[split][method][name]) for name in (BACKWARD, FORWARD)]
        for split in SPLITS:
            printed = _printed(f"{part}, {split}", method)[3:] or (np.nan, np.nan)
            row += [dash(f"{value:.2f}") for value in printed]
        rows.append(row)
    caption = (
        "GEM's backward and forward transfer on the generalised Top-5, from the accuracies after "
        f"every task and before the first (table 10). The paper's: {OTHER_DATA}."
    )
    return Table(caption, columns, rows)


def _tail_section(part: str, divided: DividedFacts, values: Values) -> Section:
    """Return the accuracies on rare facts: from tail to head, few-shot, SPO generalisation."""
    groups = group_tests(divided)
    inside = [
        np.sum((groups.counts >= low) & (groups.counts < high)) for low, high in pairwise(EDGES)
    ]
    bins = [f"{name} ({count:,} tests)" for name, count in zip(BINS, inside, strict=True)]
    items = [
        _named_table(
            f"{metric.capitalize()} by the number of training examples of a fact, from tail to "
            "head (figure 4), percent, mean over seeds.",
            bins,
            _rows(values, BY_COUNT.format(metric)),
        )
        for metric in (GENERALISED, STANDARD)
    ]
    paragraphs = []
    if groups.few.any():
        names = [
            *(f"T{1 + task}" for task in range(divided.tasks)),
            "mean over tasks",
            "paper's mean",
        ]
        by_task = _rows(values, BY_TASK.format(FEW_SHOT))
        means = dict(_rows(values, OVER_TASKS.format(FEW_SHOT)))
        rows = [
            (name, [*cells, *means[name], *(_printed(f"{part}, {split}", method)[2:3] or [np.nan])])
            for name, cells in by_task
            for method, split in [name.rsplit(", ", 1)]
        ]
        caption = (
            f"Generalised Top-5 on the {groups.few.sum():,} test examples of facts with at most "
            "five training examples (tables 11 and 12), percent; – for a task without such "
            f"examples. The paper's: {OTHER_DATA}."
        )
        items.append(_named_table(caption, names, rows))
    else:
        paragraphs.append("No test example is of a fact with five training examples or fewer.")
    if groups.spo.any():
        counts = groups.spo.sum(axis=2).ravel()
        cases = [f"{', '.join(case)}, ≥ {least}" for least in LEAST for case in SPO_CASES]
        rows = _rows(values, SPO)
        if part == "large-scale":
            rows += [
                (f"paper: {name}", [x for least in LEAST for x in SPO_TOP5[least][name]])
                for name in SPO_TOP5[LEAST[0]]
            ]
        caption = (
            "Generalised Top-5 on triples of at most five training examples, all of whose named "
            "parts have more (tables 14 to 17), percent, mean over seeds; in brackets the number "
            f"of test examples. The paper's: {OTHER_DATA}, its split not named."
        )
        names = [f"{case} ({count:,})" for case, count in zip(cases, counts, strict=True)]
        items.append(_named_table(caption, names, rows))
    return Section(f"{part}: the long tail", paragraphs, items)


def _rows(values: Values, metric: str) -> list[tuple[str, list[float]]]:
    """Return a metric's means over seeds in percent, by method and split."""
    return [
        (f"{method}, {split}", np.ravel(100 * metrics[metric].mean(axis=0)).tolist())
        for split, methods in values.items()
        for method, metrics in methods.items()
    ]


def _named_table(
    caption: str, names: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]]
) -> Table:
    cells = [[name, *(dash(f"{value:.1f}") for value in values)] for name, values in rows]
    return Table(caption, [Column("method"), *map(Column, names)], cells)


def _examples(path: Path, part: str, split: str, data: PartData, methods: Mapping) -> Figure:
    learned = data.learned
    label, pictures = learned.divided.test.fact[learned.shown], learned.pictures
    # Without input every picture has the same answer.
    found = {
        name: metrics[FOUND][0].astype(int)
        for name, metrics in methods.items()
        if name != NO_INPUT and np.isfinite(metrics[FOUND][0]).all()
    }
    right = {name: np.any(facts == label[:, None], axis=1) for name, facts in found.items()}
    # Where methods differ most; among equals from head to tail, as they are listed.
    differ = np.stack(list(right.values())).mean(axis=0)
    chosen = np.sort(np.argsort(np.abs(differ - 0.5), kind="stable")[:PICTURES])

    def words(fact: int) -> str:
        return ",\n".join(piece for piece in learned.divided.facts[fact] if piece)

    canvas, (axis,) = new_canvas(1, 1.5 * (len(found) + 2), 0.75 * (len(chosen) + 0.6))
    answers = {name: [words(facts[at, 0]) for at in chosen] for name, facts in found.items()}
    shown = {name: of_all[chosen] for name, of_all in right.items()}
    plot_answers(pictures[chosen], [words(label[at]) for at in chosen], answers, shown, axis)
    caption = (
        f"{split.capitalize()} split, first seed, after the last task: the nearest of all facts; "
        "green where the true one is among the nearest five. Of the kept test examples those on "
        "which methods differ most, so no fair sample."
    )
    return Figure(caption, save(canvas, path / f"examples_{part}_{split}.png"))


def _splits_section(parts: Mapping[str, DividedFacts]) -> Section:
    """Return the similarity and sizes of tasks, and the facts by their training examples."""
    tables = [_similarity_table(parts)]
    for part, divided in parts.items():
        tables += [_statistics_table(part, split, divided) for split in SPLITS]
        tables.append(_counts_table(part, divided))
    return Section("The splits", division_notes(parts), tables)


def _similarity_table(parts: Mapping[str, DividedFacts]) -> Table:
    rows = []
    for part, divided in parts.items():
        for split in SPLITS:
            fact_task, tasks = divided.fact_task[split], divided.tasks
            cosines = embedding_similarity(divided.label_space, jnp.asarray(fact_task), tasks)
            matrices = np.asarray(cosines), spo_overlap(divided.pieces, fact_task, tasks)
            apart, column = ~np.eye(tasks, dtype=bool), f"{part}, {split}"
            means = [matrix.mean() for matrix in matrices]
            means += [matrix[apart].mean() for matrix in matrices]
            printed = map(str, SIMILARITY.get(column, ("–", "–")))
            rows.append([column, *(f"{mean:.2f}" for mean in means), *printed])
    columns = [Column("benchmark")]
    for group in ("mean of the whole matrix", "mean of different tasks", PAPER):
        columns += [Column(which, group) for which in ("word vectors", "S, P, O overlap")]
    caption = (
        "Similarity of tasks: cosines of their mean embeddings, and the geometric mean over S, P "
        "and O of the fraction of pieces that two tasks share (table 9, section 7). The paper's: "
        f"{OTHER_DATA}, means of whole matrices; the entries that it prints for the random "
        "mid-scale overlap have the mean 0.38, not 0.84."
    )
    return Table(caption, columns, rows)


def _statistics_table(part: str, split: str, divided: DividedFacts) -> Table:
    counts = [
        split_statistics(divided.pieces, divided.fact_task[split], examples)
        for examples in (divided.train_examples, divided.test_examples)
    ]
    kinds = (counts[0].facts, counts[0].examples, counts[1].examples)
    rows = [
        [str(task + 1), *(f"{value:,}" for kind in kinds for value in kind[task])]
        for task in range(len(kinds[0]))
    ]
    rows.append(["all", *(f"{value:,}" for kind in kinds for value in kind.sum(axis=0))])
    columns = [Column("task")]
    for group in ("facts", "training examples", "test examples"):
        columns += [Column(kind, group) for kind in TYPES]
    caption = f"{part}, {split} split (table 2): by type, ⟨S,*,*⟩, ⟨S,P,*⟩ and ⟨S,P,O⟩."
    return Table(caption, columns, rows, frozenset({len(rows) - 1}))


def _counts_table(part: str, divided: DividedFacts) -> Table:
    sizes = np.sum(divided.pieces >= 0, axis=1)
    rows = [
        [kind, *map(str, np.histogram(divided.all_counts[sizes == size], EDGES)[0])]
        for size, kind in enumerate(TYPES, 1)
    ]
    caption = (
        f"{part}: facts by their number of training examples in the data set, before the "
        "benchmark takes some of each."
    )
    return Table(caption, [Column("type"), *map(Column, BINS)], rows)
