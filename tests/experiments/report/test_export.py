"""Exported numbers: a line each, and where every one belongs."""

import csv
import json
import re

import numpy as np
import pytest

from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.runs.configs import write_config
from everlight_data.writing import save_sealed
from everlight_experiments.report.export import ExportOptions, as_tag, export
from tests.experiments.report.known_results import ARRAYS


@pytest.fixture
def run(tmp_path):
    save_sealed(tmp_path / "results.npz", **ARRAYS)
    write_config(tmp_path / "config.json", {"seed": 5}, {})
    return tmp_path


def test_a_line_has_method_setting_seed_tasks_metric_and_value(run):
    lines = []
    for path in (export(ExportOptions(run)), run / "provenance.csv"):
        with path.open(newline="") as stream:
            lines += csv.DictReader(stream)
    # Texts are left out; each of the two runs of two methods has four summaries.
    assert len(lines) == sum(array.size for array in ARRAYS.values()) - 1 + 2 * 2 * 4
    assert set(lines[0]) == {"method", "setting", "seed", "task", "tested on", "metric", "value"}

    def value(metric, seed="", task="", tested="", method="ER"):
        names = ("method", "metric", "seed", "task", "tested on")
        requested = dict(zip(names, (method, metric, seed, task, tested), strict=True))
        (result,) = [line for line in lines if requested.items() <= line.items()]
        assert result["setting"] == ("class-incremental" if method else "")
        return float(result["value"])

    assert value("accuracy", "6", "1") == 0.675
    assert value("accuracy by task", "5", "1", "0") == 0.5
    assert np.isnan(value("accuracy by task", "6", "0", "1"))
    assert value("accuracy by class[2]", "5", "1") == 0
    assert value("seconds", "6") == 2.5
    assert value("parameters") == 7
    assert value("final accuracy", "6") == 0.675
    assert value("average incremental accuracy", "5") == pytest.approx((0.9 + 0.65) / 2)
    # The first task's accuracy before the last time, minus the last; and the reverse.
    assert value("forgetting", "5") == pytest.approx(0.9 - 0.5)
    assert value("backward transfer", "6") == pytest.approx(0.6 - 0.7)
    assert value("final accuracy", "6", method="joint") == 0.8
    for metric in ("average incremental accuracy", "forgetting", "backward transfer"):
        assert np.isnan(value(metric, "5", method="joint")), metric
    # These values are not one per seed, although there are as many.
    assert value("tried[1]") == 0.2
    assert value("draws[0]", method="") == 11


def test_scores_of_what_is_not_trained_have_no_criteria(run):
    """Facts' baselines have scores and no steps."""
    baseline = {
        "class-incremental/layout only/accuracy": np.array([[0.25]]),
        "class-incremental/layout only/accuracy by task": np.array([[[0.25, 0.5]]]),
    }
    save_sealed(run / "results.npz", **ARRAYS | baseline)
    with export(ExportOptions(run)).open(newline="") as stream:
        lines = [line for line in csv.DictReader(stream) if "layout only" in line["metric"]]
    assert [float(line["value"]) for line in lines] == [0.25, 0.25, 0.5]


def test_confusions_are_no_accuracy_matrices(run):
    """Both are square, and with a diverged run of floats."""
    scores = "class-incremental/ER/accuracy by task", "class-incremental/joint/accuracy by task"
    confusion = {"class-incremental/ER/confusion of labels": np.full((2, 3, 3), 0.5)}
    for names in ({}, {"over_time": np.array(["accuracy", "accuracy by task"])}):
        save_sealed(run / "results.npz", **ARRAYS | confusion | names)
        matrices = json.loads(export(ExportOptions(run, "matrices")).read_text())
        assert tuple(matrices) == scores


@pytest.mark.parametrize("named", [True, False])
def test_joint_training_has_no_value_before_its_only_task(run, named):
    """Runs of earlier versions do not name the metrics over time."""
    masked = {"class-incremental/joint/masked": np.array([[0.5, 0.9], [0.5, 0.8]])}
    names = {"over_time": np.array(["accuracy", "accuracy by class", "accuracy by task", "masked"])}
    save_sealed(run / "results.npz", **ARRAYS | masked | (names if named else {}))
    with export(ExportOptions(run)).open(newline="") as stream:
        lines = [line for line in csv.DictReader(stream) if line["method"] == "joint"]
    for task, defined in (("0", False), ("1", True)):
        values = [float(line["value"]) for line in lines if line["task"] == task]
        steps = [
            line["value"] for line in lines if (line["metric"], line["task"]) == ("steps", task)
        ]
        assert steps == ["8" if defined else "0"] * 2
        # Accuracy and the masked one; a matrix's row over two tasks; the steps.
        assert len(values) == 2 * (2 + 2 + 1)
        assert np.isfinite(values).sum() == (len(values) if defined else 2)
    matrices = json.loads(export(ExportOptions(run, "matrices")).read_text())
    assert matrices["class-incremental/joint/accuracy by task"] == [
        [[None, None], [0.5, 0.8]],
        [[None, None], [0.6, 0.75]],
    ]
    assert matrices["class-incremental/ER/accuracy by task"][0] == [[0.9, 0.1], [0.5, 0.8]]
    rows = (run / "matrices" / "class-incremental_joint_accuracy_by_task.csv").read_text()
    assert rows.splitlines()[1:3] == ["0,0,nan,nan", "0,1,0.5,0.8"]


@pytest.mark.parametrize("form", ["matrices", "tensorboard"])
def test_a_link_is_not_followed_to_other_files(run, tmp_path, form):
    other = tmp_path / "other"
    other.mkdir()
    names = ("taxes.csv", "events.2020.txt")
    for name in names:
        (other / name).write_text("kept")
    (run / form).symlink_to(other)
    (run / "metrics.jsonl").write_text('{"seconds": 3}\n')
    with pytest.raises(DataError, match=f"{form} is a link to another folder"):
        export(ExportOptions(run, form))
    assert [(other / name).read_text() for name in names] == ["kept", "kept"]


def test_curves_of_methods_whose_names_differ_in_signs_have_two_tags():
    tags = [as_tag(f"class-incremental-{name}-0/loss") for name in METHODS]
    assert len(set(tags)) == len(METHODS)
    assert {"class-incremental-CWR-star-0/loss", "class-incremental-CWR-plus-0/loss"} < set(tags)
    # TensorBoard leaves these as they are.
    assert not [tag for tag in tags if re.search(r"[^-/\w.]", tag)]


def test_a_folder_without_results_is_named(tmp_path):
    with pytest.raises(DataError, match=r"results.npz does not exist"):
        export(ExportOptions(tmp_path))


def test_edited_runs_are_refused(run):
    config = run / "config.json"
    config.write_text(config.read_text().replace('"seed": 5', '"seed": 6'))
    with pytest.raises(DataError, match=r"config\.json is damaged .*checksum differs"):
        export(ExportOptions(run))
    save_sealed(run / "results.npz", **ARRAYS | {"class-incremental/ER/steps": np.ones(2, int)})
    for form in ("csv", "matrices"):
        with pytest.raises(DataError, match=r"results\.npz is damaged .*ER/steps has dtype int64"):
            export(ExportOptions(run, form))
