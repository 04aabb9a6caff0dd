"""Runs side by side: differences on shared orders by hand, intervals against SciPy, refusals."""

import json

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.runs.configs import write_config
from everlight_experiments.commands.compare import CompareOptions, run_compare
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions

LABELS = (11, 12)


def finished(runs, tag, first, finals, labels=LABELS, images=7, seed=0, orders=None, **features):
    """Write a run with these final accuracies, one per order, on two tasks.

    Without `orders` it is a run of an earlier version.
    """
    folder = RunFolder("run", "digits", ExperimentOptions(runs=runs, tag=tag, seed=seed))
    curves = {
        f"class-incremental/{name}/accuracy": np.tile(np.array(values)[:, None], (1, 2))
        for name, values in finals.items()
    }
    count = len(next(iter(finals.values())))
    folder.save_results(
        draws=first + np.arange(count),
        **({} if orders is None else {"orders": np.array(orders)}),
        data=np.array([images, *labels, *features.values()]),
        measure=np.array("accuracy"),
        tested=np.array("what was learned so far"),
        **curves,
    )
    return folder.path


def compare(runs, *folders):
    return run_compare(CompareOptions(runs=runs, folders=folders)).read_text(encoding="utf-8")


def test_differences_are_on_the_orders_that_both_have(tmp_path, capsys):
    """Orders 2 and 3 differ by 0.6 − 0.3 and 0.8 − 0.6: mean 0.25, half width 12.706 · 0.05."""
    first = finished(tmp_path, "a", 0, {"ER": [0.9, 0.1, 0.3, 0.6], "naive": [0.2] * 4})
    second = finished(tmp_path, "b<", 2, {"ER": [0.6, 0.8, 0.0]})
    page = compare(tmp_path, first, second)
    for text in (page, capsys.readouterr().out):
        assert "+0.250 [-0.385, +0.885]" in text
        assert "2 of 2" in text
    # Each run's own mean is over all of its orders.
    assert "0.475 ± 0.350" in page
    assert "0.467 ± 0.416" in page
    assert "run-digits-demo-b&lt;" in page
    assert (tmp_path / f"compare-{first.name}+{second.name}" / "report.html").is_file()
    assert "Settings that differ" in page
    assert "none" in page
    again = compare(tmp_path, second, first)
    assert "-0.250 [-0.885, +0.385]" in again


def test_a_seed_that_diverged_has_no_difference(tmp_path):
    first = finished(tmp_path, "a", 0, {"ER": [0.9, 0.1, 0.3], "naive": [0.2, np.nan], "SI": [0.5]})
    second = finished(
        tmp_path, "b", 0, {"ER": [np.nan, 0.2, 0.4], "naive": [np.nan, 0.1], "SI": [0.4]}
    )
    page = compare(tmp_path, first, second)
    assert "<td>–</td><td>2 of 2</td>" in page
    assert "<td>–</td><td>–</td>" in page
    assert "+nan" not in page


def test_seeds_are_paired_by_tasks_where_both_runs_have_them(tmp_path):
    """Seeds 1 and 2 of the first run are 0 and 1 of the second: 0.5 − 0.1 and 0.9 − 0.3.

    The third run is of an earlier version, whose first seed learns the samples of the first's last.
    """
    first = finished(tmp_path, "a", 0, {"ER": [0.2, 0.1, 0.3]}, orders=[5, 6, 7])
    second = finished(tmp_path, "b", 90, {"ER": [0.5, 0.9]}, orders=[6, 7])
    third = finished(tmp_path, "c", 2, {"ER": [0.4]})
    page = compare(tmp_path, first, second, third)
    assert "+0.500 [-0.771, +1.771]" in page
    assert "+0.100" in page
    with pytest.raises(DataError, match=r"learn no samples in the same order.*validation images"):
        compare(tmp_path, second, third)


def test_runs_of_one_name_are_distinguished_by_the_folder_above(tmp_path):
    """The difference is 1 − 0.5, and both columns are there."""
    first = finished(tmp_path / "left", "a", 0, {"ER": [0.5, 0.5]})
    second = finished(tmp_path / "right", "a", 0, {"ER": [1.0, 1.0]})
    page = compare(tmp_path, first, second)
    assert f"left/{first.name}" in page
    assert f"right/{first.name} − left/{first.name}" in page
    assert "+0.500 [+0.500, +0.500]" in page
    assert "1.000 ± 0.000" in page


def test_names_of_many_bytes_are_shortened(tmp_path):
    """120 signs of three bytes are within the limit of signs and beyond that of file names."""
    runs = [finished(tmp_path, sign * 60, 0, {"ER": [0.5, 0.5]}) for sign in "あい"]
    assert "1.000" not in compare(tmp_path, *runs)


def test_images_of_another_size_and_features_of_the_same_are_compared(tmp_path):
    first = finished(tmp_path, "a", 0, {"ER": [0.9, 0.1]})
    larger = finished(tmp_path, "b", 0, {"ER": [0.8, 0.3]}, images=8)
    features = finished(tmp_path, "c", 0, {"ER": [0.7, 0.2]}, features=9)
    page = compare(tmp_path, first, larger, features)
    assert "+0.050" in page
    assert "-0.050" in page


def test_settings_that_differ_are_reported(tmp_path):
    first, second = (finished(tmp_path, tag, 0, {"ER": [0.9, 0.1]}) for tag in ("a", "b"))
    settings = json.loads((second / "config.json").read_text())["settings"]
    settings |= {"seed": 7, "config": {"learning_rate": 0.5, "protocol": {"epochs": 2}}}
    write_config(second / "config.json", settings, {})
    page = compare(tmp_path, first, second)
    assert "learning_rate: None | 0.5; protocol.epochs: None | 2; seed: 0 | 7" in page


def test_runs_that_cannot_be_compared_are_refused(tmp_path):
    first = finished(tmp_path, "a", 0, {"ER": [0.9]})
    elsewhere = finished(tmp_path, "b", 0, {"ER": [0.9]}, labels=(13, 12))
    later = finished(tmp_path, "c", 1, {"ER": [0.9]})
    other_seed = finished(tmp_path, "e", 1, {"ER": [0.9]}, seed=1)
    drawn = finished(tmp_path, "d", 0, {"ER": [0.9]}, images=8, seed=1)
    other_tasks = [finished(tmp_path, tag, 0, {"ER": [0.9]}, orders=[ord(tag)]) for tag in "fg"]
    (tmp_path / "nothing").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for folders, message in (
        ((), "give the folders of two runs or more, each once"),
        ((first,), "give the folders of two"),
        ((first, first), "each once"),
        ((first, elsewhere), "demo-b has other data than run-digits-demo-a"),
        ((first, drawn), "demo-d has other data than run-digits-demo-a"),
        ((first, later), "demo-c and .* learn no samples in the same order; they differ in none"),
        ((first, other_seed), r"they differ in seed: 0 \| 1\. Give runs whose seeds .* overlap"),
        (other_tasks, "demo-g and .*-f share no tasks; they differ in none.* and test images"),
        ((first, tmp_path / "loop"), r"results.npz cannot be read .*Name the folder"),
        ((first, tmp_path / "nothing"), r"results.npz does not exist. Name the folder"),
    ):
        with pytest.raises(DataError, match=message):
            compare(tmp_path, *folders)
    assert not list(tmp_path.glob("compare-*"))
