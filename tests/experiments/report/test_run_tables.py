"""Tables of a finished run equal its results, with pandas and without."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from everlight.metrics import student_interval
from everlight_data.errors import DataError
from everlight_data.runs.configs import write_config
from everlight_data.runs.descriptions import save_described
from everlight_data.writing import save_sealed
from everlight_experiments import load_run
from everlight_experiments.report.export import ExportOptions, export
from everlight_experiments.report.run_documents import escape
from everlight_experiments.report.run_tables import column_of_unit
from tests.experiments.report.known_results import ARRAYS as EXPORTED

COST = {"parameters": 7, "parameter_copies": 1, "memory_bytes": 8, "sample_bytes": 2}
COST |= {"batch_size": 4, "operations": 1.5}
USAGE = {
    "seconds": np.array([1.5, np.nan]),
    "stored_samples": np.array([[0, 3], [0, 4]]),
    "samples": np.array([[9, 8], [9, 8]]),
    "diverged_at": np.array([[-1, -1], [1, 0]]),
    "flat": np.array(False),
    "worst class": np.array([0.25, 0.5]),
    # This metric has as many entries as there are tasks, but is not over time.
    "continual evaluation": np.array([[0.1, 0.2], [0.3, 0.4]]),
}
METHODS = "class-incremental/ER", "class-incremental/joint"
ARRAYS = {
    **EXPORTED,
    "over_time": np.array(["accuracy", "accuracy by class", "accuracy by task"]),
    **{f"{of}/{name}": np.asarray(x) for of in METHODS for name, x in {**COST, **USAGE}.items()},
}
PREDICTED = np.array([[0, -1, 2], [0, 1, 1]], np.int16)


@pytest.fixture(params=["pandas", "arrays"])
def library(request, monkeypatch):
    """Return the name of what tables are; without pandas they are record arrays."""
    if request.param == "pandas":
        pytest.importorskip("pandas", reason='pip install "everlight[pandas]"')
    else:
        monkeypatch.setitem(sys.modules, "pandas", None)
    return request.param


@pytest.fixture
def run(tmp_path):
    save_sealed(tmp_path / "results.npz", **ARRAYS)
    write_config(tmp_path / "config.json", {"seed": 5}, {})
    (tmp_path / "units").mkdir()
    # A later call without the method EWC left its file behind.
    for method, seed in (("ER", 5), ("ER", 6), ("ER", 1005), ("EWC", 5), ("joint", 5)):
        losses = np.full((2, 3), seed / 8) * (method != "joint" or [[0], [1]])
        save_unit(tmp_path, "class-incremental", method, seed, losses)
    # The only task of this joint training stands for the last one.
    save_unit(tmp_path, "class-incremental", "joint", 6, np.full((1, 3), 0.5), PREDICTED[:1])
    return tmp_path


def save_unit(folder, column, method, seed, losses, predicted=PREDICTED):
    """Save the file of a training run."""
    name = f"{column}-{method}-{seed}"
    fingerprint = {"method": method, "order": seed}
    arrays = {"losses": losses, "predicted": predicted}
    save_described(folder / "units" / f"{name}.npz", name, fingerprint, **arrays)


def rows_with(table, **equal):
    """Return the rows with these values."""
    keep = np.ones(len(table), bool)
    for name, value in equal.items():
        keep &= np.asarray(table[name] == value)
    return table[keep]


def test_tables_are_of_the_library(library, run):
    kind = {"pandas": "DataFrame", "arrays": "recarray"}[library]
    results = load_run(run)
    tables = (results.scores, results.curves, results.matrices, results.costs, results.intervals)
    for table in (*tables, results.losses(), results.predictions()):
        assert type(table).__name__ == kind
        names = list(table.columns) if library == "pandas" else table.dtype.names
        assert {"setting", "method"} < set(names)


def test_data_frames_have_the_columns_of_record_arrays(run, monkeypatch):
    """This stand-in shows what pandas is given, and nothing about pandas."""
    results = load_run(run)

    def tables():
        attributes = ("scores", "curves", "matrices", "costs", "intervals")
        return [getattr(results, name) for name in attributes] + [results.losses()]

    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    frames = tables()
    monkeypatch.setitem(sys.modules, "pandas", None)
    for frame, array in zip(frames, tables(), strict=True):
        assert tuple(frame) == array.dtype.names
        for name, column in frame.items():
            np.testing.assert_array_equal(column, array[name])


def test_every_number_is_that_of_the_results(library, run):
    """Rows come in any order; a row's seed and tasks say where its number stands."""
    results = load_run(run)
    tables = {"accuracy": results.curves, "accuracy by task": results.matrices}
    for method in ("ER", "joint"):
        for metric, table in tables.items():
            rows = rows_with(table, method=method, metric=metric)
            expected = ARRAYS[f"class-incremental/{method}/{metric}"].copy()
            if method == "joint":
                # Its only task is the last one.
                expected[:, 0] = np.nan
            axes = ("seed", "task", "tested_on")[: expected.ndim]
            rebuilt = np.full(expected.shape, -1.0)
            places = [np.asarray(rows[axis]) for axis in axes]
            rebuilt[(places[0] - 5, *places[1:])] = np.asarray(rows["value"])
            np.testing.assert_array_equal(rebuilt, expected)
            assert len(rows) == expected.size
        np.testing.assert_array_equal(results.matrix(method), expected)
    assert set(results.curves["metric"]) == {"accuracy"}
    worst = rows_with(results.scores, method="ER", metric="worst class")
    assert list(worst["value"]) == [0.25, 0.5]
    assert list(worst["seed"]) == [5, 6]


def test_scores_have_one_number_per_run_and_intervals_are_over_seeds(library, run):
    results = load_run(run)
    final = rows_with(results.scores, method="ER", metric="final accuracy")
    np.testing.assert_array_equal(final["value"], [0.65, 0.675])
    (forgetting, _) = rows_with(results.scores, method="ER", metric="forgetting")["value"]
    assert forgetting == pytest.approx(0.9 - 0.5)
    row = rows_with(results.intervals, method="ER", metric="final accuracy")
    mean, half = student_interval(np.array([0.65, 0.675]))
    for name, value in (("seeds", 2), ("mean", mean), ("low", mean - half), ("high", mean + half)):
        assert np.asarray(row[name]).tolist() == [pytest.approx(value)], name
    assert np.asarray(row["deviation"]) == pytest.approx(np.std([0.65, 0.675], ddof=1))
    assert len(results.intervals) == 2 * 4


def test_costs_are_a_row_per_run(library, run):
    costs = rows_with(load_run(run).costs, method="ER")
    for name, value in COST.items():
        assert list(costs[name]) == [value] * 2
    assert list(costs["steps"]) == [8, 8]
    assert list(costs["stored_samples"]) == [3, 4]
    assert list(costs["diverged"]) == [False, True]
    np.testing.assert_array_equal(costs["seconds"], [1.5, np.nan])


def test_losses_and_predictions_are_read_of_evaluation_seeds_alone(library, run):
    results = load_run(run)
    losses = results.losses()
    assert sorted(set(losses["seed"])) == [5, 6]
    (loss,) = rows_with(losses, method="ER", seed=6, task=1, epoch=2)["loss"]
    assert loss == 6 / 8
    predictions = rows_with(results.predictions(), method="ER", seed=5)
    assert len(predictions) == PREDICTED.size
    assert list(rows_with(predictions, task=0)["predicted"]) == [0, -1, 2]


def test_joint_training_has_losses_and_predictions_of_the_last_task_alone(library, run):
    losses = rows_with(load_run(run).losses(), method="joint")
    assert set(losses["task"]) == {1}
    assert list(rows_with(losses, seed=5)["loss"]) == [5 / 8] * 3
    assert list(rows_with(losses, seed=6)["loss"]) == [0.5] * 3
    predictions = rows_with(load_run(run).predictions(), method="joint")
    assert list(rows_with(predictions, seed=5)["predicted"]) == list(PREDICTED[1])
    assert set(rows_with(predictions, seed=6)["task"]) == {1}


def test_runs_that_a_later_call_left_out_are_not_read(library, run):
    assert set(load_run(run).losses()["method"]) == {"ER", "joint"}


def test_a_loss_has_the_setting_of_its_scores(library, run):
    """Two scales of a paper have the same settings and methods."""
    scales = {f"{scale}, random": number for number, scale in enumerate(("small", "large"))}
    renamed = {
        name.replace("class-incremental", column): array
        for column in scales
        for name, array in ARRAYS.items()
    }
    save_sealed(run / "results.npz", **renamed)
    for column, number in scales.items():
        save_unit(run, column.replace(", ", "-"), "ER", 5, np.full((2, 3), number))
    losses = load_run(run).losses()
    for column, number in scales.items():
        assert set(rows_with(losses, setting=column)["loss"]) == {number}


@pytest.mark.parametrize(
    ("unit", "column"),
    [
        ("small-random-ER-0", "small, random"),
        ("buffer of 200-class-incremental-ER-0", "buffer of 200"),
        ("10-exemplars-class-incremental-ER-0", "10 exemplars"),
        ("class-incremental-ER-0", "class-incremental"),
        ("online-ER-0", ""),
    ],
)
def test_the_name_of_a_training_run_begins_with_its_column(unit, column):
    columns = ("small, random", "buffer of 200", "buffer of 2", "10 exemplars", "class-incremental")
    assert column_of_unit(unit, columns) == column


def test_what_a_run_does_not_have_is_named(run):
    results = load_run(run)
    for words, line in (
        ({"method": "EWC"}, "EWC"),
        ({"method": "ER", "setting": "online"}, "online"),
        ({"method": "ER", "metric": "loss"}, "loss"),
    ):
        with pytest.raises(DataError, match=line):
            results.matrix(**words)
    for path in (run / "units").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=r"kept no predicted classes$"):
        results.predictions()
    write_config(run / "config.json", {"seed": 5, "config": {"metrics": []}}, {})
    with pytest.raises(DataError, match=r"kept no predicted classes.*--metrics confusion"):
        load_run(run).predictions()
    save_sealed(run / "results.npz", errors=np.zeros((2, 3)))
    with pytest.raises(DataError, match=r"lacks draws, measure\. Name the folder of a finished"):
        load_run(run)


def test_a_run_of_a_users_benchmark_has_no_configuration(run):
    write_config(run / "config.json", {"seed": 7, "config": None}, {})
    results = load_run(run)
    assert sorted(set(results.scores["seed"])) == [7, 8]
    for path in (run / "units").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=r"kept no predicted classes$"):
        results.predictions()


def test_a_table_for_latex_has_every_method_with_its_interval(run):
    text = export(ExportOptions(run, "latex")).read_text()
    assert text.count(r"\begin{tabular}{lccc}") == text.count(r"\end{tabular}") == 1
    rows = [line.removesuffix(r" \\").split(" & ") for line in text.splitlines() if " & " in line]
    assert rows[0] == ["method", "final accuracy", r"95\% interval", "forgetting"]
    assert rows[1][:2] == ["ER", r"0.663 $\pm$ 0.018"]
    low, high = map(float, re.findall(r"[\d.]+", rows[1][2]))
    mean, half = student_interval(np.array([0.65, 0.675]))
    np.testing.assert_allclose([low, high], [mean - half, mean + half], atol=5e-4)
    assert rows[2][3] == "--"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a_b & 5%", r"a\_b \& 5\%"),
        ("[0, 1]", "{[0, 1]}"),
        ("a\nb\\", r"a b\textbackslash{}"),
        ("*a", "{*a}"),
        ('<a|b> "c', r"\textless{}a\textbar{}b\textgreater{} ''c"),
    ],
)
def test_names_are_shown_as_they_are_in_latex(text, shown):
    assert escape(text) == shown


def test_figures_are_pdf_files_that_an_export_replaces(run):
    (run / "figures").mkdir()
    (run / "figures" / "old.pdf").write_text("")
    folder = export(ExportOptions(run, "pdf"))
    assert {path.name for path in folder.iterdir()} == {
        "accuracy_over_time.pdf",
        "accuracy_matrices_class-incremental.pdf",
    }
    for path in folder.iterdir():
        content = path.read_bytes()
        assert content.startswith(b"%PDF-")
        assert b"/Type3" not in content


def test_figures_name_the_curves_that_they_leave_out_and_keep_the_baseline(run, capsys):
    column = "class-incremental"
    numbers = {
        name.removeprefix(f"{column}/ER/"): x for name, x in ARRAYS.items() if "/ER/" in name
    }
    methods = {"naive": 0.1, "lowest": 0.2, **{f"method {n}": 0.3 + n / 20 for n in range(7)}}
    arrays = {name: x for name, x in ARRAYS.items() if column not in name}
    for method, final in methods.items():
        arrays |= {f"{column}/{method}/{name}": x for name, x in numbers.items()}
        arrays[f"{column}/{method}/accuracy"] = np.full((2, 2), final)
    save_sealed(run / "results.npz", **arrays)
    export(ExportOptions(run, "pdf"))
    assert f"accuracy_over_time.pdf: {column} without lowest\n" in capsys.readouterr().out


def test_settings_with_equal_names_of_files_have_a_figure_each(run):
    arrays = {
        name.replace("class-incremental", setting): array
        for setting in ("a b", "a_b")
        for name, array in ARRAYS.items()
    }
    save_sealed(run / "results.npz", **arrays)
    folder = export(ExportOptions(run, "pdf"))
    names = {"accuracy_matrices_00_a_b.pdf", "accuracy_matrices_01_a_b.pdf"}
    assert names < {path.name for path in folder.iterdir()}


def test_no_cell_of_the_csv_is_a_text_or_a_mean_with_its_deviation(run):
    rows = export(ExportOptions(run)).read_text().splitlines()[1:]
    values = [float(line.rpartition(",")[2]) for line in rows]
    assert len(values) > 50
    assert not any("flat" in line or "tried" in line or "draws" in line for line in rows)
    provenance = (run / "provenance.csv").read_text()
    assert "ER,class-incremental,,,,flat,0\n" in provenance.replace("\r", "")
