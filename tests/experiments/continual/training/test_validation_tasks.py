"""The option --validation-tasks: the score by hand, what is trained, and what it selects."""

import numpy as np
import pytest

from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_experiments.cli import options_of
from everlight_experiments.commands.tune import run_tune
from everlight_experiments.continual.benchmarks.run_data import SequenceId, TrainedRun
from everlight_experiments.continual.report.tables import rule_of
from everlight_experiments.continual.training.programs import MethodPrograms
from everlight_experiments.continual.training.runner import Runner
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions
from tests.experiments import command_runs

SMALL = ("digits", "--epochs", "1", "--batch-size", "64", "--tasks", "5")
EWC = METHODS["EWC"]._replace(hyperparameters=(10.0, 1e4))


def loaded(*words):
    return command_runs.loaded(*SMALL, *words)


def chosen(folder, *words):
    """Return the runner's scores of EWC, and the stored arrays of its validation runs."""
    folder = RunFolder("test", folder.name, ExperimentOptions(runs=folder))
    runner = Runner(folder, MethodPrograms(loaded(*words)), 0, 2)
    choice = runner.choose(EWC)
    files = sorted(folder.path.glob("units/*hyperparameter*.npz"))
    assert len(files) == 4
    return choice, [dict(np.load(file)) for file in files]


def test_the_score_after_the_first_tasks_is_that_of_a_whole_run_s_row(tmp_path):
    """The reference is float64 by hand on matrices of whole runs; later rows are not measured."""
    (tmp_path / "all").mkdir()
    (tmp_path / "two").mkdir()
    _, full = chosen(tmp_path / "all")
    choice, first = chosen(tmp_path / "two", "--validation-tasks", "2")
    for of_all, of_two in zip(full, first, strict=True):
        np.testing.assert_array_equal(of_two["matrix"][:2], of_all["matrix"][:2])
        assert np.isnan(of_two["matrix"][2:]).all()
        assert np.isnan(of_two["losses"][2:]).all()
        np.testing.assert_array_equal(of_two["steps"][2:], 0)
    by_hand = [np.mean(np.float64(item["matrix"][1, :2])) for item in full]
    # Files are sorted by seed, then by value.
    by_value = np.reshape(by_hand, (2, 2)).mean(axis=0)
    values = [float(name) for name in ("10", "10000")]
    np.testing.assert_array_equal(choice.hyperparameters, values)
    np.testing.assert_allclose(choice.tried, by_value, rtol=1e-6)
    with pytest.raises(DataError, match=r"validation_tasks: stored None, now 2"):
        chosen(tmp_path / "all", "--validation-tasks", "2")


def test_the_report_states_which_tasks_the_choice_sees():
    complete, two = (rule_of(loaded(*words), 1) for words in ((), ("--validation-tasks", "2")))
    assert "The choice sees all tasks of the validation seeds, so it is optimistic" in complete
    assert "highest accuracy after task 2 on validation samples" in two
    assert "sees only the first tasks of the validation seeds (number of tasks: 2)" in two
    assert "so it is optimistic" not in two


@pytest.mark.parametrize(
    ("tasks", "final", "over_all_times"), [(None, 0.4, 0.6), (1, 0.9, 0.9), (2, 0.6, 0.7)]
)
def test_validation_criteria_use_the_first_tasks_alone(tasks, final, over_all_times):
    """The expected values are the means of row k and of the lower triangle up to it."""
    matrix = np.array([[0.9, 0.0, 0.0], [0.5, 0.7, 0.0], [0.3, 0.4, 0.5]])
    matrix[2] = [0.3, 0.4, 0.5] if tasks is None else np.nan
    expected_all = np.mean([0.9, 0.5, 0.7, 0.3, 0.4, 0.5]) if tasks is None else over_all_times
    words = [] if tasks is None else ["--validation-tasks", str(tasks)]
    for criterion, value in (
        ("final accuracy", final),
        ("accuracy over all times (A)", expected_all),
    ):
        benchmark = loaded("--tasks", "3", "--criterion", criterion, *words)
        seq_id = SequenceId("validation", 0, 0)
        arrays = {"matrix": matrix, "steps": np.array([1, 2, 3])}
        run = TrainedRun(arrays, benchmark.data.sequence(METHODS["EWC"], seq_id), seq_id, 3)
        assert benchmark.select_by(run) == pytest.approx(value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--validation-tasks", "6"], r"--validation-tasks 6; digits has 5 tasks, give 5 or less"),
        (
            ["--validation-tasks", "3", "--evaluate-every", "2"],
            r"--validation-tasks 3 ends without an evaluation; give a multiple of .* 2",
        ),
    ],
)
def test_criteria_without_a_score_are_refused(words, message):
    with pytest.raises(DataError, match=f"^{message}$"):
        Runner(None, MethodPrograms(loaded(*words)), 0, 1).check(EWC)


def test_joint_training_has_no_score_before_the_last_task(tmp_path):
    words = [*SMALL, "--vary", "learning-rate=.01,.02", "--validation-tasks", "2"]
    options = options_of("tune", [*words, "--runs", str(tmp_path)])
    with pytest.raises(DataError, match=r"^--validation-tasks 2: joint learns all tasks at the"):
        run_tune(options)
    # All tasks together have validation.
    Runner(None, MethodPrograms(loaded("--validation-tasks", "5")), 0, 1).check_validation(
        METHODS["joint"]
    )


def test_a_benchmark_with_another_criterion_is_refused():
    benchmark = loaded("--validation-tasks", "2")
    other = benchmark.setting.metrics.score._replace(name="score of scenes")
    selection = benchmark.selection._replace(criterion=other)
    runner = Runner(None, MethodPrograms(benchmark._replace(selection=selection)), 0, 1)
    with pytest.raises(DataError, match=r"^--validation-tasks 2: digits selects by the score of"):
        runner.check(EWC)
