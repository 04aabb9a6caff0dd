"""What this report has beside the common one: the paper's tables, the tail, examples, splits."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from everlight_experiments.common.cells import percent, spread
from everlight_experiments.common.report import PAPER, Column, Figure, Section, Table
from everlight_experiments.facts.benchmarks import SPLITS, TOP, FactSet, Split
from everlight_experiments.facts.findings import findings_table
from everlight_experiments.facts.layout import NO_INPUT
from everlight_experiments.facts.paper_tables import OTHER_DATA, TOP5, TRANSFER
from everlight_experiments.facts.plots import Answers, plot_answers
from everlight_experiments.facts.report_splits import splits_sections
from everlight_experiments.facts.report_tail import tail_section
from everlight_experiments.facts.scores import Outcomes, Results, last, sequential

PICTURES = 8
"""Of examples, for each split."""


def paper_sections(path: Path, results: Mapping[str, Results]) -> list[Section]:
    """All sections; pictures are written into the run's folder."""
    outcomes = {name: each.outcomes for name, each in results.items()}
    found = [
        Section(
            "What the paper observes, one by one",
            [
                "Top-5 over examples in percent, gains relative to the semantic split, BWT as a "
                "difference of shares; counted is in how many of our seeds a claim holds."
            ],
            [findings_table(outcomes)],
        ),
    ]
    for name, each in results.items():
        tables = [_top5(name, split, each) for split in SPLITS]
        found.append(Section(f"{name}: Top-5 after the last task", _WORDS, tables))
        items = [_transfer(name, each.outcomes)]
        found.append(Section(f"{name}: transfer and forgetting", items=items))
        found.append(tail_section(path, name, each))
    for name, each in results.items():
        items = [_examples(path, name, split, each) for split in SPLITS]
        found.append(Section(f"{name}: right and wrong", items=items))
    return [*found, *splits_sections(path, results)]


_WORDS = [
    "Standard: among the facts of the test's own task; generalised: among those of all tasks. "
    "Layout only knows the boxes and no pixel, and learns all at once as joint does; no input "
    "gives every image the mean embedding of the training facts."
]


def _top5(name: str, split: Split, result: Results) -> Table:
    methods = result.outcomes[split]
    paper = TOP5.get((name, split), {})
    tasks = next(iter(methods.values())).standard.by_task.shape[-1]
    columns = [Column("method")]
    for group in ("standard", "generalised"):
        columns += [Column(f"T{task + 1}", group) for task in range(tasks)]
        columns += [Column("tasks", group), Column("examples", group)]
    columns += [Column(which, "drop") for which in ("tasks", "examples")]
    columns += [Column(which, PAPER) for which in ("standard", "generalised", "drop")]
    rows = []
    for method, outcome in methods.items():
        row = [method]
        for means in (outcome.standard, outcome.generalised):
            row += [f"{100 * value:.1f}" for value in last(means.by_task).mean(axis=0)]
            row += [percent(last(means.over_tasks)), percent(last(means.over_examples))]
        row += [percent(last(outcome.drop.over_tasks)), percent(last(outcome.drop.over_examples))]
        there = paper.get(method)
        row += (
            ["–"] * 3
            if there is None
            else [
                f"{value:.1f}"
                for value in (
                    there.standard_examples,
                    there.generalised_examples,
                    there.standard_examples - there.generalised_examples,
                )
            ]
        )
        rows.append(row)
    rows.append(["chance", *_chances(result.benchmark, split), *["–"] * 3])
    caption = (
        f"{split.capitalize()} split, percent, mean ± standard deviation over seeds; by task, mean "
        f"over tasks and over examples. The paper's: over examples, {OTHER_DATA}."
    )
    return Table(caption, columns, rows)


def _chances(benchmark: FactSet, split: Split) -> list[str]:
    """Top-5 of a random order of facts: by task and both means, standard, generalised, drop."""
    fact_task = benchmark.fact_task[split]
    facts, examples = np.bincount(fact_task), np.bincount(fact_task[benchmark.test.fact])
    standard = np.minimum(TOP / facts, 1)
    whole = min(TOP / len(fact_task), 1.0)
    means = [standard.mean(), np.average(standard, weights=examples)]
    values = [*standard, *means, *[whole] * (len(facts) + 2), *(mean - whole for mean in means)]
    return [f"{100 * value:.1f}" for value in values]


def _transfer(name: str, outcomes: Outcomes) -> Table:
    paper = name == "large-scale"
    columns = [Column("method")]
    columns += [Column(f"{of}, {split}") for split in SPLITS for of in ("BWT", "FWT")]
    if paper:
        columns += [Column(f"{of}, {split}", PAPER) for split in SPLITS for of in ("BWT", "FWT")]
    rows = []
    for method in sequential(outcomes["random"]):
        row = [method]
        for split in SPLITS:
            outcome = outcomes[split][method]
            row += [spread(outcome.backward), spread(outcome.forward)]
        if paper:
            for split in SPLITS:
                there = TRANSFER[split].get(method)
                row += ["–"] * 2 if there is None else [f"{value:.2f}" for value in there]
        rows.append(row)
    caption = (
        "GEM's backward and forward transfer on the generalised Top-5, from the matrices below "
        "and those before the first task (table 10)."
        + (f" The paper's: {OTHER_DATA}." if paper else "")
    )
    return Table(caption, columns, rows)


def _examples(path: Path, name: str, split: Split, result: Results) -> Figure:
    benchmark = result.benchmark
    # Without input every picture has the same answer.
    methods = {name: each for name, each in result.outcomes[split].items() if name != NO_INPUT}
    label = benchmark.test.fact[result.shown]
    right = {
        method: np.any(outcome.found[0] == label[:, None], axis=1)
        for method, outcome in methods.items()
    }
    # Where methods differ most; among equals from head to tail, as they are listed.
    differ = np.stack(list(right.values())).mean(axis=0)
    chosen = np.sort(np.argsort(np.abs(differ - 0.5), kind="stable")[:PICTURES])

    def words(fact: int) -> str:
        return ", ".join(piece for piece in benchmark.facts[fact] if piece)

    answers = [
        Answers(
            image,
            words(label[place]),
            {
                method: (words(outcome.found[0, place, 0]), bool(right[method][place]))
                for method, outcome in methods.items()
            },
        )
        for place, image in zip(chosen, result.pictures[chosen], strict=True)
    ]
    caption = (
        f"{split.capitalize()} split, first seed, after the last task: the nearest of all facts; "
        "green where the true one is among the nearest five. Of the kept test examples those on "
        "which methods differ most, so no fair sample."
    )
    return Figure(caption, plot_answers(path / f"examples_{name}_{split}.png", answers))
