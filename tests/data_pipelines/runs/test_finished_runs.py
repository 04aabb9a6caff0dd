"""Results of finished runs: final scores by setting and method, options by name."""

import numpy as np
import pytest

from everlight_data.errors import DataError, MissingDataError
from everlight_data.runs.configs import write_config
from everlight_data.runs.finished_runs import (
    ResultKey,
    list_numbers,
    name_other_options,
    read_finished_run,
)
from everlight_data.writing import read_sealed, save_sealed


def finished(folder, rate):
    folder.mkdir()
    save_sealed(
        folder / "results.npz",
        draws=np.arange(2),
        data=np.arange(4),
        measure=np.array("accuracy"),
        **{"online/ER/accuracy": np.array([[0.1, 0.2], [0.3, 0.4]])},
        **{"online/ER/steps": np.ones((2, 2), int)},
    )
    settings = {"seed": 0, "config": {"learning_rate": rate, "protocol": {"epochs": 2}}}
    write_config(folder / "config.json", settings, {})
    return folder


def test_finals_and_options_are_read_by_name(tmp_path):
    first, second = (read_finished_run(finished(tmp_path / str(rate), rate)) for rate in (0.1, 0.5))
    np.testing.assert_array_equal(first.finals["online"]["ER"], [0.2, 0.4])
    assert (first.name, first.score, first.checksums) == ("0.1", "accuracy", (0, 1, 2))
    assert first.options == {"seed": 0, "learning_rate": 0.1, "protocol.epochs": 2}
    assert name_other_options([first, second]) == "learning_rate: 0.1 | 0.5"
    assert name_other_options([first, second], {"learning_rate"}) == "none"


def test_options_of_a_benchmark_and_of_its_paper_have_equal_names(tmp_path):
    runs = []
    for name, config in (
        ("run", {"batch_size": 32, "chosen": ["here"], "protocol": {"epochs": 2}}),
        ("paper", {"benchmark": {"batch_size": 16, "chosen": [], "protocol": {"epochs": 2}}}),
    ):
        write_config(finished(tmp_path / name, 0.1) / "config.json", {"config": config}, {})
        runs.append(read_finished_run(tmp_path / name))
    assert name_other_options(runs, {"chosen"}) == "batch_size: 32 | 16"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("online/ER/accuracy by task", ("online", "ER", "accuracy by task")),
        ("online/my/net/steps", ("online", "my/net", "steps")),
        ("draws", ("", "", "draws")),
        ("features/0", ("", "", "features/0")),
    ],
)
def test_a_key_is_its_parts_and_its_text(name, parts):
    key = ResultKey.parse(name)
    assert (tuple(key), str(key)) == (parts, name)
    assert key.sibling("steps") == (f"{parts[0]}/{parts[1]}/steps" if parts[1] else "steps")


def test_numbers_name_method_setting_and_seed(tmp_path):
    arrays = read_sealed(finished(tmp_path / "a", 0.1) / "results.npz", "")
    rows = list(list_numbers(arrays, first_seed=3))
    accuracy = [(row.seed, row.task, row.value) for row in rows if row.metric == "accuracy"]
    assert accuracy == [(3, 0, 0.1), (3, 1, 0.2), (4, 0, 0.3), (4, 1, 0.4)]
    assert {(row.setting, row.method) for row in rows if row.seed != ""} == {("online", "ER")}
    assert [(row.method, row.value) for row in rows if row.metric == "draws[1]"] == [("", 1)]


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(MissingDataError, match=r"results\.npz does not exist\. Name the folder of"):
        read_finished_run(tmp_path)
    save_sealed(tmp_path / "results.npz", draws=np.arange(2))
    with pytest.raises(DataError, match=r"results\.npz lacks data, measure\. Name the folder"):
        read_finished_run(tmp_path)


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ({"data": np.array([], int)}, r"data has dtype int64 and shape \(0,\)"),
        ({"data": np.array(["a"] * 3)}, r"data has dtype <U1 and shape \(3,\)"),
        ({"draws": np.array(5)}, r"draws has dtype int64 and shape \(\)"),
        ({"orders": np.arange(3)}, r"orders has dtype int64 and shape \(3,\)"),
        ({"measure": np.array(["accuracy"])}, r"measure has dtype <U8 and shape \(1,\)"),
        (
            {"online/ER/accuracy": np.ones(2)},
            r"online/ER/accuracy has dtype float64 and shape \(2,\)",
        ),
        ({"online/ER/accuracy": np.ones((2, 3))}, r"accuracy has dtype float64 and shape \(2, 3\)"),
        (
            {"online/ER/accuracy": np.array([["a", "b"]] * 2)},
            r"accuracy has dtype <U1 and shape \(2, 2\)",
        ),
        (
            {"online/ER/accuracy by task": np.ones((2, 2))},
            r"task has dtype float64 and shape \(2, 2\)",
        ),
        ({"online/ER/steps": np.ones(2, int)}, r"steps has dtype int64 and shape \(2,\)"),
    ],
)
def test_results_of_another_form_are_refused(tmp_path, change, result):
    """A checksum finds damage alone, and anybody can write one."""
    path = finished(tmp_path / "a", 0.1) / "results.npz"
    save_sealed(path, **read_sealed(path, "") | change)
    with pytest.raises(DataError, match=rf"results\.npz is damaged .*{result}.* Name the folder"):
        read_finished_run(path.parent)


def test_scores_without_steps_are_read(tmp_path):
    path = finished(tmp_path / "a", 0.1) / "results.npz"
    arrays = read_sealed(path, "")
    del arrays["online/ER/steps"]
    save_sealed(path, **arrays)
    np.testing.assert_array_equal(read_finished_run(path.parent).finals["online"]["ER"], [0.2, 0.4])


def test_axes_over_tasks_are_those_of_the_stored_names():
    """An axis of as many entries as tasks need not be over tasks."""
    of = "online/ER"
    arrays = {
        "over_time": np.array(["accuracy", "accuracy by task", "confusion"]),
        f"{of}/steps": np.array([[4, 8]]),
        f"{of}/accuracy": np.array([[0.1, 0.2]]),
        f"{of}/accuracy by task": np.array([[[0.1, 0.2], [0.3, 0.4]]]),
        f"{of}/confusion": np.arange(8.0).reshape(1, 2, 2, 2),
        f"{of}/diverged_at": np.array([[1, 0]]),
    }
    rows = {row[3:6]: row.value for row in list_numbers(arrays, first_seed=0)}
    assert rows[1, "", "steps"] == 8
    assert rows[1, "", "accuracy"] == 0.2
    assert rows[1, 0, "accuracy by task"] == 0.3
    assert rows[1, "", "confusion[0,1]"] == 5
    assert rows["", "", "diverged_at[0]"] == 1
