"""The command of plasticity: its files, its seeds, its problems and what it refuses."""

import numpy as np
import pytest

from everlight.continual import GeneratedResult
from everlight_data.errors import DataError
from everlight_experiments.cli import options_of
from everlight_experiments.images.metrics import DIAGNOSTICS
from everlight_experiments.plasticity import command
from everlight_experiments.plasticity.command import run_plasticity
from everlight_experiments.plasticity.problems import ONLINE, Problem, values_of
from everlight_experiments.plasticity.report import answer

WORDS = ("--tasks", "12", "--samples", "20", "--seeds", "2", "--methods", "naive", "CBP")


def run(folder, problem, *words):
    return run_plasticity(
        options_of("plasticity", [problem, *WORDS, *words, "--runs", str(folder)])
    )


def test_every_value_is_a_row_and_without_replacement_cbp_is_backpropagation(tmp_path):
    report = run(tmp_path, "regression", "--hyperparameters", "CBP=0,1")
    results = np.load(report.parent / "results.npz")
    rows = {"naive": "naive", **{f"CBP {n}": f"CBP, replacement rate {n}" for n in "01"}}
    error = {name: results[f"{row}/online error"] for name, row in rows.items()}
    assert error["naive"].shape == (2, 12)
    assert np.isfinite(error["CBP 1"]).all()
    # Seeds differ in their target.
    assert abs(np.subtract(*error["naive"])).min() > 1e-3
    np.testing.assert_allclose(error["CBP 0"], error["naive"], rtol=1e-5)
    # Within six tasks of 20 samples no unit is older than a hundred steps.
    np.testing.assert_allclose(error["CBP 1"][:, :5], error["naive"][:, :5], rtol=1e-5)
    assert (abs(error["CBP 1"] - error["naive"])[:, 6:] > 1e-3).any()
    dead = results["naive/dead units"]
    assert ((5 * dead) % 1 < 1e-5).all()
    text = report.read_text()
    assert "CBP, replacement rate 1" in text
    assert "every value of a hyper-parameter is a row" in text


def test_finished_rows_are_not_computed_again_and_others_follow(tmp_path, monkeypatch, capsys):
    """A killed run continues with other methods of the same problem, but not with another seed."""
    words = ("--hyperparameters", "CBP=0,1")
    full = dict(np.load(run(tmp_path / "whole", "regression", *words).parent / "results.npz"))
    first = run(tmp_path, "regression", "--methods", "naive").parent
    learned = []
    train = command._train_row
    monkeypatch.setattr(
        command, "_train_row", lambda *arguments: learned.append(arguments[-2]) or train(*arguments)
    )
    again = run(tmp_path, "regression", *words).parent
    assert again == first
    assert learned == ["CBP, replacement rate 0", "CBP, replacement rate 1"]
    results = dict(np.load(again / "results.npz"))
    assert results.keys() == full.keys()
    for name, expected in full.items():
        np.testing.assert_array_equal(results[name], expected)
    assert "row 3 of 3, CBP, replacement rate 1: " in capsys.readouterr().out
    with pytest.raises(DataError, match="seed"):
        run(tmp_path, "regression", "--seed", "1")


def test_methods_that_learn_classes_are_refused(tmp_path):
    with pytest.raises((DataError, SystemExit)):
        run(tmp_path, "regression", "--methods", "iCaRL")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a problem first; there are regression, permuted,"),
        (
            ["regression", "--hyperparameters", "CBP=1.0000001e-4,1.0000002e-4"],
            "two values that are named CBP, replacement rate 0.0001",
        ),
        (
            ["regression", "--side", "14"],
            "--side is for problems of images, and the problem is reg",
        ),
        (["permuted", "--flips", "all"], "--flips is for regression, and the problem is permuted"),
        (["regression", "--batch-size", "3"], "--samples 500 with --batch-size 3; give a multiple"),
        (["permutation"], "no problem 'permutation'; did you mean 'permuted'"),
        (["permuted", "--data", "digits", "--net", "mlp-layer-norm:8"], "CBP needs named hidden"),
        (["class-pairs", "--data", "digits", "--side", "None", "--net", "mlp-nothing:8"], "mlp"),
    ],
)
def test_impossible_runs_are_refused(words, message, tmp_path):
    with pytest.raises(DataError, match=message):
        run_plasticity(options_of("plasticity", [*words, "--runs", str(tmp_path)]))


SMALL = ("--data", "digits", "--side", "None", "--net", "mlp:16", "--batch-size", "8")


def test_other_labels_of_the_same_images_are_other_data(tmp_path, monkeypatch, rng):
    values = {ONLINE: np.zeros((2, 12))}
    monkeypatch.setattr(command, "_train_row", lambda *arguments: values)
    monkeypatch.setattr(command, "write_plasticity_report", lambda folder, *arguments: folder)
    images, data = rng.integers(0, 256, (40, 8, 8), dtype=np.uint8), tmp_path / "images.npz"
    words = (*SMALL, "--data", str(data), "--samples", "24", "--methods", "naive")
    np.savez(data, images=images, labels=np.repeat(range(4), 10))
    run(tmp_path, "permuted-labels", *words)
    np.savez(data, images=images, labels=np.repeat(range(4), (15, 5, 10, 10)))
    with pytest.raises(DataError, match="images"):
        run(tmp_path, "permuted-labels", *words)


@pytest.mark.parametrize(
    ("problem", "score", "least", "differences"),
    [
        ("permuted", "online accuracy", 0.2, "the same orders of pixels, other samples and"),
        ("permuted-labels", "online accuracy", 0.1, "different tasks"),
        ("class-pairs", "accuracy after the task", 0.75, "different tasks"),
    ],
)
def test_images_are_learned_in_every_task(problem, score, least, differences, tmp_path):
    """Digits have 10 classes and pairs 2, so chance is 0.1 and 0.5."""
    words = ("--samples", "480", "--learning-rate", "0.1", "--tasks", "6", "--methods", "naive")
    report = run(tmp_path, problem, *SMALL, *words)
    results = np.load(report.parent / "results.npz")
    result = results[f"naive/{score}"]
    assert result.shape == (2, 6)
    assert result.mean() > least
    # Seeds have other tasks or samples.
    assert abs(np.subtract(*result)).max() > 1e-3
    page = report.read_text()
    assert "Which method keeps the ability to learn?" in page
    assert f"{score} in the last tenth" in page
    assert f"2, with {differences}" in page


def test_a_network_of_nan_has_no_score_from_its_divergence_on():
    """Its accuracy is finite: the greatest of its outputs is the first."""
    losses, accuracy = np.array([[1.0, np.nan, np.nan], [1.0, 2.0, 3.0]]), np.full((2, 3), 0.1)
    measured = [accuracy] * len(DIAGNOSTICS)
    result = GeneratedResult(losses, accuracy, None, measured, None, None)
    problem = Problem(None, None, None, "", None, 10, ONLINE)
    values = values_of(problem, result)
    assert set(values) == {ONLINE, *DIAGNOSTICS}
    for series in values.values():
        np.testing.assert_array_equal(series, [[0.1, np.nan, np.nan], [0.1, 0.1, 0.1]])


def test_the_answer_names_what_the_seeds_do_not_separate():
    """The second row is ahead of the first in one of three seeds; the third row is far behind."""
    late = {
        "naive": np.array([0.2, 0.21, 0.22]),
        "one": np.array([0.60, 0.61, 0.62]),
        "two": np.array([0.59, 0.62, 0.60]),
    }
    early = {name: np.array([0.5, 0.5, 0.51]) for name in late}
    question, result, naive = answer("online accuracy", 1, early, late)
    assert question.endswith("?")
    assert result.startswith("one has the highest online accuracy in the last tenth of the tasks")
    assert result.endswith("the seeds do not separate it from two.")
    assert "(naive) loses it: it goes from 0.503 ± 0.006 to 0.210 ± 0.010" in naive
    _, _, stored = answer("online accuracy", 1, late, early)
    assert stored.startswith("No loss of plain backpropagation (naive) is shown: it goes from 0.2")
    _, lowest, lost = answer("online error", -1, late, early)
    assert lowest.startswith("naive has the lowest online error")
    assert "(naive) loses it" in lost


def test_the_answer_on_one_seed_separates_no_rows_and_shows_no_loss():
    late = {"naive": np.array([0.1]), "one": np.array([0.7])}
    early = {"naive": np.array([0.7]), "one": np.array([0.6])}
    _, result, naive = answer("online accuracy", 1, early, late)
    assert result.startswith("one has the highest online accuracy")
    assert result.endswith("; one seed separates no methods.")
    assert naive.startswith("No loss of plain backpropagation (naive) is shown")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_answer_names_diverged_rows_and_compares_the_others(value):
    late = {name: np.array([0.2, 0.3]) for name in ("one", "two")}
    late["naive"] = np.array([0.1, value])
    early = {name: np.array([0.5, 0.5]) for name in late}
    _, result, diverged = answer("online error", -1, early, late)
    assert result.startswith("one has the lowest online error")
    assert result.endswith("; the seeds do not separate it from two.")
    assert diverged == "Diverged, without a finite online error in some seed: naive."
    only = {"naive": late["naive"]}
    assert answer("online error", -1, early, only)[1:] == (diverged,)
