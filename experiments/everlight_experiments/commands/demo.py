"""The demo: both topics without data, in one report.

    everlight demo

Its continual part is `everlight run digits` with few methods, in that command's folder, where it
continues if it was stopped and `everlight run` adds methods. Its photograph is of scikit-learn.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from everlight_experiments.commands.option_defaults import run_options
from everlight_experiments.commands.options import RunOptions
from everlight_experiments.commands.run import TrainedReport, train_and_report
from everlight_experiments.illuminant.photographs.relit import (
    RelitPhotograph,
    relight_sample_photograph,
    relit_section,
)
from everlight_experiments.report.writer import Report, Section, write_report
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import FolderOptions, Seed

BENCHMARK, SETTING = "digits", "class-incremental"
SEEDS = 5
METHODS = {"naive": "finetuning", "ER": "replay", "DER++": "replay", "joint": "joint training"}
"""Methods of the demo, and what each is: from the lowest to the bound."""


@dataclass(frozen=True)
class DemoOptions(FolderOptions):
    """Run the demo of both topics: five tasks of continual learning, and a photograph's illuminant.

    Finetuning forgets the tasks before, replay of stored images does not, and joint training is the
    bound. A photograph is shown under a lamp and corrected by its estimated illuminant.
    """

    seed: Seed = 0
    """Random seed of data, initialization and training; the continual part counts up from it."""


def run_demo(options: DemoOptions) -> Path:
    """Run both parts; returns the report's path."""
    folder = RunFolder("demo", "", options)
    learning = _learning_options(options)
    trained, photograph = train_and_report(learning), relight_sample_photograph()
    section = relit_section(folder.path, photograph)
    report = _joined(learning, trained, photograph, section)
    print(*report.summary.sentences, sep="\n")
    return write_report(folder.path, "everlight: the demo", report)


def _learning_options(options: DemoOptions) -> RunOptions:
    shared = {"seed": options.seed, "tag": options.tag, "runs": options.runs}
    methods = tuple(name for name in METHODS if name != "naive")
    return run_options([BENCHMARK])(methods=methods, seeds=SEEDS, **shared)


def _joined(
    options: RunOptions, trained: TrainedReport, photograph: RelitPhotograph, section: Section
) -> Report:
    """Return the report of both parts, which opens with the curves of the continual part."""
    learned = trained.report
    opening = replace(
        learned.summary, sentences=(*_learning_in_words(options, trained), photograph.in_words)
    )
    sections = [
        replace(part, title=f"{topic}. {part.title}")
        for topic, parts in {
            "Illuminants": [section],
            "Continual learning": learned.sections,
        }.items()
        for part in parts
    ]
    return Report(learned.summary_rows, sections, opening)


def _learning_in_words(options: RunOptions, trained: TrainedReport) -> tuple[str, str]:
    """Return the question and every method's accuracy, from the lowest to the highest."""
    finals = {name: outcome.final.mean() for name, outcome in trained.outcomes[SETTING].items()}
    order = sorted(METHODS, key=lambda name: finals[name])
    accuracies = ", ".join(f"{METHODS[name]} ({name}) {finals[name]:.1%}" for name in order)
    stored = options.config.exemplars_per_class
    return (
        "How much does a network forget when it learns one task after the other, and what helps?",
        f"Accuracy on all ten digits after five tasks, mean of {options.seeds} seeds: "
        f"{accuracies}; replay stores {stored} images per class, and joint training, the bound, "
        "has all of them.",
    )
