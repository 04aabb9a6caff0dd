"""The sections of the paper's report: tables of ranks, long tail and splits."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from everlight.continual.engine.run_states import NOT_DIVERGED
from everlight.continual.methods.registry import METHODS
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
from everlight.scenarios.facts import split_statistics
from everlight.scenarios.facts_splits import semantic_split
from everlight_data.facts.splits.fact_images import PicturedFacts
from everlight_data.facts.splits.fact_splits import SPLITS, SplitFacts
from everlight_data.runs.finished_runs import matrix_name
from everlight_experiments.continual.benchmarks.benchmark import Benchmarks
from everlight_experiments.continual.benchmarks.run_data import SequenceId, TrainedRun
from everlight_experiments.continual.paper import Results
from everlight_experiments.continual.training.outcome import compute_metrics
from everlight_experiments.continual.training.runs import DIVERGED_AT
from everlight_experiments.facts.baselines import baseline_embeddings
from everlight_experiments.facts.benchmark import LEAST, SPO, TOP, group_tests
from everlight_experiments.facts.config import PaperConfig
from everlight_experiments.facts.published_tables import OTHER_DATA, PRINTED, SIMILARITY, SPO_TOP5
from everlight_experiments.report.cells import dash, percent, spread
from everlight_experiments.report.writer import PUBLISHED_GROUP, Column, Section, Table

SINGLE_LINKAGE = 1_000
"""Number of facts up to which the paper's linkage is computed too."""
Metrics = Mapping[str, np.ndarray]
Values = Mapping[str, Mapping[str, Metrics]]
"""Metrics by column and method or baseline."""


class MethodOnSplit(NamedTuple):
    """A method or baseline on a split, by their names."""

    method: str
    split: str

    def __str__(self) -> str:
        return f"{self.method}, {self.split}"


class FactsData(NamedTuple):
    """Data that the paper's sections need in addition to outcomes."""

    learned: Mapping[str, PicturedFacts]
    """Facts by benchmark of the paper."""
    baselines: Values
    """Metrics of the baselines, which are not trained."""


def baselines_of(data: PicturedFacts, benchmarks: Benchmarks, ids: Sequence[SequenceId]) -> Values:
    """Return the metrics of baselines that learn all facts at once.

    One knows only the boxes, where there are some; the other has no input.
    """
    divided, shown = data.split_facts, data.shown
    facts, joint = divided.label_space, METHODS["joint"]
    metrics: dict[str, dict[str, Metrics]] = {column: {} for column in benchmarks}
    for name, embeddings in baseline_embeddings(divided, [seq_id.seed for seq_id in ids]).items():
        for column, benchmark in benchmarks.items():
            runs = []
            for seq_id, points in zip(ids, jnp.asarray(embeddings), strict=True):
                sequence = benchmark.data.sequence(joint, seq_id)
                ranks = _rank_facts(
                    points, jnp.asarray(divided.test.fact), facts, sequence.class_task
                )
                arrays = {name: np.asarray(rank)[None] for name, rank in ranks._asdict().items()}
                arrays["found"] = np.asarray(nearest_facts(points[shown], facts, TOP))[None]
                arrays |= {"steps": np.zeros(1, int), DIVERGED_AT: np.array(NOT_DIVERGED)}
                runs.append(TrainedRun(arrays, sequence, seq_id, len(sequence.tasks.id)))
            metrics[column][name] = compute_metrics(benchmark.setting.metrics.all, runs)
    return metrics


_rank_facts = jax.jit(rank_facts)


def values_of(results: Results[PaperConfig, FactsData]) -> Values:
    """Return all metrics, those of baselines too."""
    baselines = results.experiment.data.baselines
    return {
        column: {name: runs.metrics for name, runs in by_name.items()} | dict(baselines[column])
        for column, by_name in results.outcomes.items()
    }


def fact_sections(results: Results[PaperConfig, FactsData]) -> list[Section]:
    """Return all sections but the findings."""
    values, learned = values_of(results), results.experiment.data.learned
    scales = {scale: pictured.split_facts for scale, pictured in learned.items()}
    text = (
        "Standard: among the facts of the test's own task; generalised: among those of all tasks. "
        "Layout only knows the boxes and no pixel, and learns all at once as joint does; no input "
        "gives every image the mean embedding of the training facts."
    )
    sections = []
    for scale, divided in scales.items():
        split_values = {split: values[f"{scale}, {split}"] for split in SPLITS}
        items = [_final_table(scale, split, divided, split_values[split]) for split in SPLITS]
        sections.append(Section(f"{scale}: Top-5 after the last task", [text], items))
        sections.append(_tail_section(scale, divided, split_values))
    tables = [_similarity_table(scales)]
    tables += [_statistics_table(scale, divided) for scale, divided in scales.items()]
    return [*sections, Section("The splits", split_notes(scales), tables)]


def split_notes(scales: Mapping[str, SplitFacts]) -> list[str]:
    """Return how facts were split, and the sizes that the paper's linkage would give."""
    order = "Tasks are learned in the order of their numbers."
    if any(divided.semantic is None for divided in scales.values()):
        return [f"Both splits are those of the files that were given. {order}"]
    notes = [
        "The semantic split is that of Ward's linkage on the embeddings; the random one is the "
        f"most balanced of a hundred. {order}"
    ]
    for scale, divided in scales.items():
        if len(divided.facts) <= SINGLE_LINKAGE:
            vectors = divided.words.vectors
            single = semantic_split(divided.pieces, vectors, divided.tasks, "single")
            sizes = ", ".join(f"{size:,}" for size in np.bincount(single.fact_task))
            notes.append(f"{scale}: the paper's single linkage would give tasks of {sizes} facts.")
    return notes


def _final_table(
    scale: str, split: str, divided: SplitFacts, methods: Mapping[str, Metrics]
) -> Table:
    """Return Top-5 by task and in the mean, its drop and its transfer, with the paper's."""
    transfer = (
        "Transfer: GEM's backward and forward transfer on the generalised Top-5, from the "
        "accuracies after every task and before the first (table 10)."
    )
    columns, column = [Column("method")], f"{scale}, {split}"
    for group in ("standard", "generalised"):
        columns += [Column(f"T{task + 1}", group) for task in range(divided.tasks)]
        columns += [Column("tasks", group), Column("examples", group)]
    columns += [Column(which, "drop") for which in ("tasks", "examples")]
    columns += [Column(which, "transfer", transfer) for which in ("BWT", "FWT")]
    columns += [
        Column(which, PUBLISHED_GROUP)
        for which in ("standard", "generalised", "drop", "BWT", "FWT")
    ]
    rows = []
    for name, metrics in {**methods, "chance": _chance(divided, split)}.items():
        row = [name]
        for metric in (STANDARD, GENERALISED, DROP):
            if metric != DROP:
                by_task = metrics[matrix_name(metric)][:, -1].mean(axis=0)
                row += [f"{100 * value:.1f}" for value in by_task]
            row += [percent(metrics[key][:, -1]) for key in (OVER_TASKS.format(metric), metric)]
        row += [dash(spread(metrics[key])) for key in (BACKWARD, FORWARD)]
        standard, generalised, _, *printed = _printed_cells(column, name)
        row += [dash(f"{value:.1f}") for value in (standard, generalised, standard - generalised)]
        rows.append([*row, *(dash(f"{value:.2f}") for value in printed)])
    caption = (
        f"{column}: percent, mean ± standard deviation over seeds; by task, mean over tasks and "
        f"over examples. The paper's: over examples, {OTHER_DATA}."
    )
    return Table(caption, columns, rows)


def _chance(divided: SplitFacts, split: str) -> Metrics:
    """Return the Top-5 of a random order of facts."""
    hits = chance_hits(divided.fact_task[split], divided.test.fact, TOP)
    shares = {STANDARD: hits[0], GENERALISED: hits[1], DROP: hits[0] - hits[1]}
    metrics = {BACKWARD: np.full(1, np.nan), FORWARD: np.full(1, np.nan)}
    for metric, (*by_task, over_tasks, over_examples) in shares.items():
        metrics[matrix_name(metric)] = np.array([[by_task]])
        metrics[OVER_TASKS.format(metric)] = np.array([[over_tasks]])
        metrics[metric] = np.array([[over_examples]])
    return metrics


def _printed_cells(column: str, method: str) -> tuple[float, ...]:
    """Return the paper's standard, generalised and few-shot Top-5, BWT and FWT; NaN for none."""
    row = PRINTED.get(column, {}).get(method, ())
    return (*row, *[np.nan] * (5 - len(row)))


def _tail_section(scale: str, divided: SplitFacts, values: Values) -> Section:
    """Return the accuracies on rare facts: few-shot and SPO generalization."""
    groups, paragraphs, items = group_tests(divided), [], []
    if groups.few.any():
        names = [*(f"T{1 + task}" for task in range(divided.tasks)), "mean over tasks"]
        by_task = _means(values, matrix_name(FEW_SHOT))
        means = _means(values, OVER_TASKS.format(FEW_SHOT))
        rows = {}
        for name, values_by_task in by_task.items():
            printed = _printed_cells(f"{scale}, {name.split}", name.method)[2]
            rows[str(name)] = [*values_by_task, *means[name], printed]
        caption = (
            f"Generalised Top-5 on the {groups.few.sum():,} test examples of facts with at most "
            "five training examples (tables 11 and 12), percent; – for a task without such "
            f"examples. The paper's: {OTHER_DATA}."
        )
        items.append(_percent_table(caption, [*names, "paper's mean"], rows))
    else:
        paragraphs.append("No test example is of a fact with five training examples or fewer.")
    if groups.spo.any():
        counts = groups.spo.sum(axis=2).ravel()
        cases = [f"{', '.join(case)}, ≥ {least}" for least in LEAST for case in SPO_CASES]
        rows = {str(name): row for name, row in _means(values, SPO).items()}
        if scale == "large-scale":
            for name in SPO_TOP5[LEAST[0]]:
                rows[f"paper: {name}"] = [x for least in LEAST for x in SPO_TOP5[least][name]]
        caption = (
            "Generalised Top-5 on triples of at most five training examples, all of whose named "
            "parts have more (tables 14 to 17), percent, mean over seeds; in brackets the number "
            f"of test examples. The paper's: {OTHER_DATA}, its split not named."
        )
        names = [f"{case} ({count:,})" for case, count in zip(cases, counts, strict=True)]
        items.append(_percent_table(caption, names, rows))
    return Section(f"{scale}: the long tail", paragraphs, items)


def _means(values: Values, metric: str) -> dict[MethodOnSplit, list[float]]:
    """Return a metric's means over seeds in percent."""
    return {
        MethodOnSplit(method, split): np.ravel(100 * metrics[metric].mean(axis=0)).tolist()
        for split, methods in values.items()
        for method, metrics in methods.items()
    }


def _percent_table(
    caption: str, names: Sequence[str], rows: Mapping[str, Sequence[float]]
) -> Table:
    cells = [[name, *(dash(f"{value:.1f}") for value in row)] for name, row in rows.items()]
    return Table(caption, [Column("method"), *map(Column, names)], cells)


def _similarity_table(scales: Mapping[str, SplitFacts]) -> Table:
    rows = []
    for scale, divided in scales.items():
        for split in SPLITS:
            fact_task, tasks = divided.fact_task[split], divided.tasks
            cosines = embedding_similarity(divided.label_space, jnp.asarray(fact_task), tasks)
            matrices = np.asarray(cosines), spo_overlap(divided.pieces, fact_task, tasks)
            apart, column = ~np.eye(tasks, dtype=bool), f"{scale}, {split}"
            means = [matrix.mean() for matrix in matrices]
            means += [matrix[apart].mean() for matrix in matrices]
            printed = map(str, SIMILARITY.get(column, ("–", "–")))
            rows.append([column, *(f"{mean:.2f}" for mean in means), *printed])
    columns = [Column("benchmark")]
    for group in ("mean of the whole matrix", "mean of different tasks", PUBLISHED_GROUP):
        columns += [Column(which, group) for which in ("word vectors", "S, P, O overlap")]
    caption = (
        "Similarity of tasks: cosines of their mean embeddings, and the geometric mean over S, P "
        "and O of the fraction of pieces that two tasks share (table 9, section 7). The paper's: "
        f"{OTHER_DATA}, means of whole matrices; the entries that it prints for the random "
        "mid-scale overlap have the mean 0.38, not 0.84."
    )
    return Table(caption, columns, rows)


def _statistics_table(scale: str, divided: SplitFacts) -> Table:
    rows = []
    for split in SPLITS:
        train, test = (
            split_statistics(divided.pieces, divided.fact_task[split], examples)
            for examples in (divided.train_examples, divided.test_examples)
        )
        counts = np.concatenate([train.facts, train.examples, test.examples], axis=1)
        for task, row in enumerate(counts, 1):
            rows.append([f"{split}, T{task}", *(f"{value:,}" for value in row)])
    rows.append(["all", *(f"{value:,}" for value in counts.sum(axis=0))])
    columns = [Column("task")]
    for group in ("facts", "training examples", "test examples"):
        columns += [Column(kind, group) for kind in ("S", "SP", "SPO")]
    caption = f"{scale} (table 2): by type, ⟨S,*,*⟩, ⟨S,P,*⟩ and ⟨S,P,O⟩."
    return Table(caption, columns, rows, frozenset({len(rows) - 1}))
