"""The demo: one run of each topic that needs no data, in one report.

    everlight demo

Its parts are `paper two-camera` and `paper cl-metrics` at their demo presets, each in its own
folder, where it continues if it was stopped.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from everlight_experiments.cl_metrics.paper import PAPER
from everlight_experiments.continual.paper import PaperOptions, paper_report, train_paper
from everlight_experiments.illuminant.config import PRESETS
from everlight_experiments.illuminant.core.report import best_in_words, experiment_report
from everlight_experiments.illuminant.two_camera.command import compare_two_cameras
from everlight_experiments.illuminant.two_camera.options import TwoCameraOptions
from everlight_experiments.report.writer import Report, Section, write_report
from everlight_experiments.run_folder.config_options import with_config
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import FolderOptions, Seed


@dataclass(frozen=True)
class DemoOptions(FolderOptions):
    """Run the demo of both topics: illuminant estimation and five tasks of continual learning."""

    seed: Seed = 0
    """Random seed of data, initialization and training."""


def run_demo(options: DemoOptions) -> Path:
    """Run both parts; returns the report's path."""
    folder = RunFolder("demo", "", options)
    shared = {"seed": options.seed, "tag": options.tag, "runs": options.runs}
    two_camera = TwoCameraOptions(**shared)
    two_camera_folder = RunFolder("two-camera", "", two_camera)
    experiment = compare_two_cameras(two_camera_folder, two_camera, PRESETS[two_camera.preset])
    illuminants = experiment_report(two_camera_folder, experiment)
    first = illuminants.summary
    continual = with_config(PaperOptions, PAPER.presets["demo"])(**shared)
    own_folder = RunFolder("paper", PAPER.name, continual, shared=True)
    learned = paper_report(PAPER, own_folder, train_paper(PAPER, own_folder, continual))
    also = learned.summary
    parts = {
        "Two cameras": (illuminants.summary_rows, illuminants.sections),
        "Continual learning": (
            learned.summary_rows,
            [Section("Result", [], [also.figure, also.table]), *learned.sections],
        ),
    }
    summary_rows = [
        (f"{part}: {name.lower()}", value)
        for part, (rows, _) in parts.items()
        for name, value in rows
    ]
    all_sections = [
        replace(section, title=f"{part}. {section.title}")
        for part, (_, body) in parts.items()
        for section in body
    ]
    sentences = (
        "Which methods are best on the demo data of both topics?",
        f"Illuminants: {best_in_words(experiment, experiment.conditions[:1])}",
        f"Continual learning: {also.sentences[1]}",
    )
    below = (*first.sentences[1:], *first.below, *also.sentences[2:], *also.below)
    joined = replace(first, sentences=sentences, below=below)
    return write_report(
        folder.path, "everlight: the demo", Report(summary_rows, all_sections, joined)
    )
