"""The demo: one run of each paper that needs no data, in one report.

    everlight demo

Its parts are the runs `two_camera radiometric` and `cl_metrics icifar` at preset demo, each in its
own folder, where it continues if it was stopped.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from everlight_data.errors import DataError
from everlight_experiments.cl_metrics.icifar import ICifarRun, icifar_sections
from everlight_experiments.common.report import Section, write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Preset, RunSettings
from everlight_experiments.two_camera.radiometric import RadiometricRun, radiometric_sections


@dataclass(frozen=True)
class TourRun(RunSettings):
    """Run the demo of both topics: illuminant estimation and five tasks of continual learning."""

    preset: Preset = "demo"
    """Size of both parts, which can only be demo here."""


def run_tour(settings: TourRun) -> Path:
    """Runs both parts; returns the report's path.

    Raises:
      DataError: another preset than demo.
    """
    if settings.preset != "demo":
        raise DataError(f"the tour has the preset demo only, not {settings.preset}; run its parts")
    folder = RunFolder("everlight", "tour", settings)
    shared = {"seed": settings.seed, "tag": settings.tag, "runs": settings.runs}
    two_camera = RadiometricRun(**shared)
    continual = ICifarRun(**shared)
    facts, first, body = radiometric_sections(
        RunFolder("two_camera", "radiometric", two_camera), two_camera
    )
    learnt, also, sections = icifar_sections(
        RunFolder("cl_metrics", "icifar", continual, shared=True), continual
    )
    came_out = Section("Result", [], [also.figure, also.table])
    parts = {
        "Two cameras": (facts, body),
        "Continual learning": (learnt, [came_out, *sections]),
    }
    summary = [
        (f"{part}: {name.lower()}", value)
        for part, (facts, _) in parts.items()
        for name, value in facts
    ]
    every = [
        replace(section, title=f"{part}. {section.title}")
        for part, (_, body) in parts.items()
        for section in body
    ]
    said = (
        "Which methods are best on the demo data of both topics?",
        f"Illuminants: {_first_part(first.sentences[1])}",
        f"Continual learning: {also.sentences[1]}",
    )
    below = (*first.sentences[1:], *first.below, *also.sentences[2:], *also.below)
    both = replace(first, sentences=said, below=below)
    return write_report(folder.path, "everlight: a tour", summary, every, both)


def _first_part(sentence: str) -> str:
    """Return a sentence up to its first semicolon: the best of the first condition alone."""
    return sentence.partition(";")[0].rstrip(".") + "."
