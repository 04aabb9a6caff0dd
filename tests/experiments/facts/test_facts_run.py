"""The run of lifelong fact learning, on a tiny plan of the procedural world, and its parts."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from everlight.continual import Protocol
from everlight.metrics.fact_scores import (
    BACKWARD,
    DROP,
    FEW_SHOT,
    GENERALISED,
    OVER_TASKS,
    STANDARD,
)
from everlight_data.errors import DataError
from everlight_data.facts.parts.split_files import read_images
from everlight_data.facts.splits.fact_images import FactSource
from everlight_data.facts.splits.fact_splits import (
    SPLITS,
    PerFact,
    Size,
    WordFile,
    load_source,
)
from everlight_data.facts.splits.published_splits import open_photographs, read_published
from everlight_experiments.cli import options_of
from everlight_experiments.continual.benchmarks.statements import Statement
from everlight_experiments.continual.paper import PaperOptions, findings_section
from everlight_experiments.facts.config import (
    PAPER_PRESETS,
    Network,
    PaperConfig,
    PaperScale,
    Scale,
)
from everlight_experiments.facts.paper import PAPER, findings, ordering_verdict
from everlight_experiments.facts.published_claims import ORDERINGS, Ordering, Quantity
from everlight_experiments.facts.published_tables import PRINTED
from everlight_experiments.run_folder.config_options import with_config
from tests.data_pipelines.facts.parts.split_files import write_split
from tests.experiments.command_runs import arrays_of

LAST = Protocol(epochs=1, batch_size=32, select="last")
MID = PaperScale(Scale(24, 2, (10, 5), LAST), ("MAS", "joint"), seeds=1, hyperparameters=1)
OF_EIGHT = replace(MID, scale=Scale(None, 8, (10, 5), LAST))
TINY = PaperConfig(
    FactSource("procedural", scenes=(200, 40)),
    Network(8, (2,), 2, 4),
    {"mid-scale": MID},
    chosen=(Statement("not chosen"),),
)
SIZE = Size(24, 2, PerFact(10, 5))


def options_with(folder, config=TINY, **data):
    """Return the command's options with a configuration and other data."""
    config = replace(config, data=replace(config.data, **data))
    return with_config(PaperOptions, config)(runs=folder)


def test_the_report_has_both_splits_and_refuses_units_of_another_configuration(tmp_path):
    report = PAPER.run(options_with(tmp_path))
    page = report.read_text()
    for expected in ("no photographs", "other data", "single linkage", "layout only"):
        assert expected in page
    assert "not run: ExpertGate" in page
    first = arrays_of(report)
    for split in ("random", "semantic"):
        for method in ("MAS", "joint"):
            name = f"mid-scale, {split}/{method}"
            drop = first[f"{name}/drop by task"]
            assert drop.shape == (1, 2, 2)
            assert np.all(drop >= 0)
            with np.load(report.parent / "units" / f"mid-scale-{split}-{method}-0.npz") as stored:
                size = first[f"{name}/hits"].shape[1]
                within = stored["generalised"][-1, :size] <= 5
            np.testing.assert_array_equal(first[f"{name}/hits"], [within])
            last = first[f"{name}/{GENERALISED}"][0, -1]
            np.testing.assert_allclose(last, within.mean(), rtol=1e-6)
    # All splits test on the same images, and what learns all at once knows no split.
    layout = [first[f"mid-scale, {s}/layout only/hits"] for s in ("random", "semantic")]
    np.testing.assert_array_equal(*layout)
    assert np.isfinite(first[f"mid-scale, random/MAS/{BACKWARD}"]).all()
    assert np.isnan(first[f"mid-scale, random/joint/{BACKWARD}"]).all()
    other = replace(TINY, network=replace(TINY.network, hidden=5))
    with pytest.raises(DataError, match=r"hidden"):
        PAPER.run(options_with(tmp_path, other))


@pytest.mark.parametrize("preset", PAPER_PRESETS)
def test_every_preset_has_options(preset):
    result = PAPER.options(["--preset", preset])(preset=preset)
    assert result.config == PAPER_PRESETS[preset]
    arguments = ["--mid-scale.replay-batch-size", "64", "--hidden", "7"]
    changed = options_of("paper facts", arguments).config
    assert changed.scales["mid-scale"].scale.replay_batch_size == 64
    assert changed.network.hidden == 7


@pytest.fixture
def release(tmp_path):
    """Write the authors' files: both splits in two tasks, photographs, vectors of all words."""
    facts = load_source("procedural", 30, 10, 0).facts
    for split, task in (("random", 0), ("semantic", 1)):
        # A split has every other fact, or the first half.
        numbers = np.arange(len(facts.facts))
        tasks = numbers % 2 if task == 0 else (numbers >= len(numbers) // 2).astype(int)
        write_split(tmp_path / "splits" / f"2tasks_{split}", facts, tasks)
    rng = np.random.default_rng(0)
    for link in {*facts.train.images, *facts.test.images}:
        noise = rng.integers(0, 256, (24, 30, 3), np.uint8)
        Image.fromarray(noise).save((tmp_path / link).with_suffix(".png"))
    words = {word for fact in facts.facts for piece in fact if piece for word in piece.split()}
    lines = [f"{word} {' '.join(map(str, rng.normal(size=4)))}" for word in sorted(words)]
    (tmp_path / "vectors.txt").write_text("\n".join(lines))
    return tmp_path


def of_release(folder, config=TINY, **changes):
    paths = {"photographs": folder, "splits": folder / "splits", "words": folder / "vectors.txt"}
    return options_with(folder / "runs", config, **(paths | changes))


@pytest.mark.slow
def test_the_authors_files_are_run_with_photographs_streamed(release):
    finetuned = replace(MID, methods=("finetune",))
    config = replace(TINY, scales={"mid-scale": finetuned, "large-scale": OF_EIGHT})
    report = PAPER.run(of_release(release, config))
    page = report.read_text()
    for expected in (
        "centres of the photographs",
        "large-scale: left out",
        "vectors.txt",
        "no input",
    ):
        assert expected in page
    assert "layout only" not in page
    source = load_source("procedural", 30, 10, 0).facts
    divided = read_published(release / "splits", SIZE, WordFile(release / "vectors.txt"))
    assert divided.facts == source.facts
    assert divided.fact_task["semantic"].tolist() == sorted(divided.fact_task["semantic"])
    # All kept examples of each fact are tested, and the places are those of the files.
    with np.load(report.parent / "results.npz") as results:
        hits = results["mid-scale, random/finetune/hits"]
        assert hits.shape == (1, len(divided.test.fact))
        assert np.isfinite(results[f"mid-scale, semantic/finetune/{BACKWARD}"]).all()
    store = open_photographs(divided, release, 8, 10**7)
    last = len(divided.train.fact) + len(divided.test.fact) - 1
    shown = read_images(release, [divided.test.links[-1]], 8)
    # The store's crop is a little tighter than the central square.
    assert np.corrcoef(store.read(np.array([last])).ravel(), shown.ravel())[0, 1] > 0.3


def test_options_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(DataError, match="--seeds 0; give 1 to 1,000"):
        options_with(tmp_path, replace(TINY, seeds=0))
    with pytest.raises(DataError, match="procedural has none; give --data vrd"):
        PAPER.run(options_with(tmp_path, photographs=Path("photos")))
    unknown = replace(TINY, scales={"mid-scale": replace(MID, methods=("MAZ",))})
    with pytest.raises(DataError, match="no method 'MAZ'; did you mean 'MAS'"):
        PAPER.run(options_with(tmp_path, unknown))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"words": None}, "needs --words"), ({"photographs": None}, "needs --photographs")],
)
def test_missing_options_of_the_authors_files_are_named(release, changes, message):
    with pytest.raises(DataError, match=message):
        PAPER.run(of_release(release, **changes))


def test_faults_of_the_authors_files_are_named(release):
    words = WordFile(release / "vectors.txt")
    result = read_published(release / "splits", SIZE, words)
    first = (release / result.test.links[0]).with_suffix(".png")
    first.unlink()
    with pytest.raises(DataError, match=f"1 of .* images .*{result.test.links[0]}"):
        open_photographs(result, release, 8, 10**7)
    table = release / "splits" / "2tasks_semantic" / "B1_facts.csv"
    lines = table.read_text().splitlines()
    name = lines[1].split(",")[2]
    table.write_text("\n".join([lines[0], lines[1].replace(name, "unicorn"), *lines[2:]]))
    with pytest.raises(DataError, match="differ in 2 facts"):
        read_published(release / "splits", SIZE, words)
    (release / "splits" / "2tasks_random").rename(release / "elsewhere")
    with pytest.raises(DataError, match=r"2tasks_random.*mid-scale needs both"):
        PAPER.run(of_release(release))


def test_the_papers_own_tables_bear_out_what_is_stated_about_its_claims():
    """Claims that hold according to the paper do so in its numbers, and no others."""
    names = (STANDARD, GENERALISED, OVER_TASKS.format(FEW_SHOT), BACKWARD)
    values = {
        column: {
            method: {
                name: np.array([value if name == BACKWARD else value / 100])
                for name, value in zip(names, (*row, *[np.nan] * 4), strict=False)
            }
            for method, row in rows.items()
        }
        for column, rows in PRINTED.items()
    }
    for methods in values.values():
        for item in methods.values():
            item[DROP] = item[STANDARD] - item[GENERALISED]
    del values["large-scale, random"]["joint"]
    checked = findings(values)
    assert len(checked) == len(ORDERINGS)
    for ordering, finding in zip(ORDERINGS, checked, strict=True):
        assert ordering.in_paper in finding.claim
        if ordering.in_paper in ("not given", "no joint"):
            assert finding.verdict.numbers.startswith("not run: ")
            continue
        holds = ordering.in_paper.startswith("holds")
        assert finding.verdict.holds.tolist() == [holds], finding.claim


def test_a_method_that_ran_at_the_first_scale_alone_is_missing_at_the_second():
    scores = defaultdict(lambda: np.ones(1))
    columns = [f"{part}, {split}" for part in ("mid-scale", "large-scale") for split in SPLITS]
    values = {column: {"ExpertGate": scores, "joint": scores} for column in columns}

    def row():
        (table,) = findings_section(findings(values), "").items
        claim = "large-scale: random: joint's drop"
        return next(cells[1:] for cells in table.rows if cells[0].startswith(claim))

    assert row()[0] == "0 of 1"
    del values["large-scale, random"]["joint"]
    assert row() == ["–", "not run: joint"]


@pytest.mark.parametrize(
    ("rule", "numbers"),
    [
        ("all", "MAS (random) 40.00; MAS (semantic) 30.00"),
        ("each", "MAS (random) 40.00, MAS (semantic) 30.00"),
        ("mean", "40.00 against 30.00"),
    ],
)
def test_scales_with_other_numbers_of_seeds_are_compared_in_those_of_both(rule, numbers):
    """The claim holds in the first of two seeds that both have."""
    mid, large = Quantity("mid-scale", "random", "MAS"), Quantity("large-scale", "semantic", "MAS")
    values = {
        mid.column: {"MAS": {GENERALISED: np.array([0.6, 0.2, 0.9])}},
        large.column: {"MAS": {GENERALISED: np.array([0.3, 0.3])}},
    }
    verdict = ordering_verdict(Ordering("", (mid,), (large,), rule, ""), values)
    assert verdict.holds.tolist() == [True, False]
    assert verdict.numbers == numbers
