"""The grid at its smallest: its table, its plans, what it refuses, and the nets that it keeps."""

import contextlib
import json
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual import choose_hyperparameter, fixed_hyperparameter
from everlight.continual.methods.method import INCOMPATIBILITIES
from everlight.continual.methods.registry import METHODS
from everlight.metrics import forgetting
from everlight_data.errors import DataError
from everlight_data.images.digits import load_digits
from everlight_data.runs.descriptions import json_checksum
from everlight_experiments import load_net
from everlight_experiments.cli import options_of
from everlight_experiments.commands.columns import mean_ranks, ranks_of
from everlight_experiments.commands.grid import (
    run_grid,
    runs_of,
    selection_rules,
    state_best_rank,
)
from everlight_experiments.continual.report.tables import NOTHING_SELECTED
from everlight_experiments.report.cells import final_cell
from tests.experiments.command_runs import arrays_of
from tests.experiments.continual.report.outcomes import BENCHMARK

# One worker runs the group, so that the module's fixtures are computed once.
pytestmark = pytest.mark.xdist_group("grid")

OPTIONS = ("--benchmarks", "digits", "--methods", "nearest mean", "HAT", "--seeds", "1")
SET = ("--set", "digits.tasks=2", "epochs=2", "digits.batch-size=64")
NEAREST, NAIVE = "digits, class-incremental/nearest mean", "digits, class-incremental/naive"


def grid(runs, *words):
    return run_grid(options_of("grid", [*words, "--runs", str(runs)]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    report = grid(tmp_path_factory.mktemp("runs"), *OPTIONS, *SET, "--keep-nets")
    return report, arrays_of(report)


def test_cells_count_diverged_runs():
    assert final_cell(np.array([0.4, 0.6])) == "0.500 ± 0.141"
    assert final_cell(np.array([0.4, np.nan, np.nan])) == "diverged in 2 of 3"


def test_ranks_begin_at_the_greatest_and_end_with_what_diverged():
    scores = {"a": [0.4, 0.6], "b": [0.9, np.nan], "c": [0.9, 0.9], "d": [0.5, 0.5]}
    ranks = ranks_of({name: np.array(values) for name, values in scores.items()})
    assert ranks == {"a": 2.5, "b": 4, "c": 1, "d": 2.5}


def test_a_benchmark_has_a_selection_rule_if_a_value_was_selected_on_it():
    choices = {
        "digits, class": choose_hyperparameter((1.0, 2.0), np.array([[0.1], [0.2]])),
        "facts": fixed_hyperparameter(3.0),
    }
    benchmarks = {column: BENCHMARK._replace(prefix=column[:5]) for column in choices}
    outcomes = {column: {"EWC": SimpleNamespace(choice=item)} for column, item in choices.items()}
    rules = selection_rules(benchmarks, outcomes, 2)
    assert "(number of seeds: 2)" in rules["digit"]
    assert rules["facts"] == NOTHING_SELECTED


def test_settings_of_a_benchmark_count_as_one():
    scores = {
        "digits, task": {"a": np.array([0.9]), "b": np.array([0.8]), "c": np.array([0.7])},
        "digits, class": {"a": np.array([0.1]), "b": np.array([0.3]), "c": np.array([0.2])},
        "facts": {"a": np.array([0.2]), "b": np.array([0.5])},
    }
    benchmarks = {"digits, task": "digits", "digits, class": "digits", "facts": "facts"}
    assert mean_ranks(scores, benchmarks) == {"a": [2, 2], "b": [1.5, 1], "c": [2.5]}


def test_methods_compete_for_the_best_rank_where_they_ran_in_all_columns():
    """HAT has the first rank in its only column, and joint is a reference."""
    columns = {"naive": 2, "HAT": 1, "ER": 2, "joint": 2}
    methods = [METHODS[name] for name in columns]
    ranks = {"naive": [4.0], "HAT": [1.0], "ER": [2.5], "joint": [1.5]}
    question, best, baseline = state_best_rank(ranks, columns, methods)
    assert question.startswith("Of the methods that ran in 2 columns, which has the best mean rank")
    assert (best, baseline) == ("Best mean rank: ER, 2.50.", "Baseline, naive: 4.00.")
    everywhere = dict.fromkeys(columns, 2)
    over_two = {name: [values[0], 2 * values[0]] for name, values in ranks.items()}
    question, best, _ = state_best_rank(over_two, everywhere, methods)
    assert question.endswith("best mean rank over 2 benchmarks?")
    # Student's interval of 1 and 2 is 12.706 times 0.5, cut at 1 and at the lowest rank.
    assert best == "Best mean rank, with 95% interval: HAT, 1.50 [1.00, 7.85]."


def test_changes_are_of_one_benchmark_or_of_all_that_have_the_option():
    words = ("--benchmarks", "digits", "icifar:small", "iirc")
    changes = ("epochs=7", "icifar:small.learning-rate=0.5", "icifar:small.per-class=30 5")
    result = runs_of(options_of("grid", [*words, "--set", *changes]))
    assert [item.config.protocol.epochs for item in result.values()] == [7, 7, 7]
    assert result["icifar:small"].config.learning_rate == 0.5
    assert result["icifar:small"].config.per_class == (30, 5)
    assert result["digits"].config.learning_rate == 0.02


def test_a_grid_has_every_method_everywhere_or_the_reason(finished):
    report, results = finished
    assert results[f"{NAIVE}/accuracy"].shape == (1, 2)
    assert list(results["over_time"]) == ["accuracy", "accuracy by task"]
    names = {key.rsplit("/", 1)[0] for key in results if "/" in key}
    assert names == {NAIVE, NEAREST}
    finals = {name: results[f"{name}/accuracy"][:, -1].mean() for name in names}
    assert finals[NEAREST] > finals[NAIVE]
    config = json.loads((report.parent / "config.json").read_text())
    # The value is the default, which no option sets.
    assert config["methods"] == {"digits-class-incremental-nearest mean": {"directions": False}}
    page = report.read_text()
    assert INCOMPATIBILITIES["task-incremental"] in page
    assert f"{finals[NEAREST]:.3f} (1)" in page


def test_a_grid_has_forgetting_and_seconds_beside_the_scores(finished):
    report, results = finished
    page = report.read_text()
    (table,) = (item for item in page.split("<table")[1:] if ">forgetting<" in item)
    for name in ("naive", "nearest mean"):
        row = table.split(f"<td>{name}</td>")[1].split("</tr>")[0]
        matrix = results[f"digits, class-incremental/{name}/accuracy by task"][0]
        # Only the first of two tasks can be forgotten.
        assert f"<td>{matrix[0, 0] - matrix[1, 0]:.3f}</td>" in row
        assert float(forgetting(jnp.asarray(matrix))) == pytest.approx(matrix[0, 0] - matrix[1, 0])
        assert f"<td>{results[f'digits, class-incremental/{name}/seconds'][0]:,.1f}</td>" in row


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--benchmarks", "digit"), "did you mean 'digits'"),
        (("--benchmarks", "digits:big"), "no preset 'big'"),
        (("--benchmarks", "images"), "the benchmark 'images' needs everlight run"),
        ((*OPTIONS, "--set", "facts.tasks=2"), "facts"),
        ((*OPTIONS, "--set", "digits.task=2"), "did you mean 'tasks'"),
        ((*OPTIONS, "--set", "epochs=2", "epochs=3"), "'epochs' is given twice"),
        (
            (*OPTIONS, "--set", "digits.learning-rate=0.1", "learning_rate=0.2"),
            "'learning_rate' is given twice for digits; give each setting once",
        ),
        ((*OPTIONS, "--set", "net='mlp:5"), "No closing quotation; close the quotation"),
        ((*OPTIONS, "--set", "net=mlp:5\\"), "No escaped character; close the quotation"),
        ((*OPTIONS, "--set", "epochs"), "--set 'epochs'; give NAME=VALUE"),
        (
            (*OPTIONS, "--keep-nets", "--distributed", "0/2@localhost:1"),
            "--keep-nets is for runs of",
        ),
    ],
)
def test_options_that_a_grid_lacks_are_refused(tmp_path, words, message):
    with pytest.raises(DataError, match=message):
        grid(tmp_path, *words)
    assert not list(tmp_path.iterdir())


@contextlib.contextmanager
def started_with(folder, **settings):
    """Change the folder's settings for the time of the context."""
    path = folder / "config.json"
    before = path.read_text()
    config = json.loads(before)
    config["settings"] |= settings
    config["crc32"] = json_checksum(config["settings"])
    path.write_text(json.dumps(config))
    yield
    path.write_text(before)


def test_the_nets_that_a_grid_kept_predict_what_it_scored(finished):
    report, results = finished
    digits = load_digits()
    images, labels = digits.images[len(digits.train_labels) :], digits.test_labels
    for benchmark in (None, "digits"):
        net = load_net(report.parent, "nearest mean", seed=0, task=1, benchmark=benchmark)
        predicted = net.predict(images).argmax(axis=1) == labels
        of_task = net.task_classes.argmax(axis=0)[labels]
        matrix = results[f"{NEAREST}/accuracy by task"][0]
        for task in (0, 1):
            assert np.mean(predicted[of_task == task]) == pytest.approx(matrix[1, task], abs=1e-6)
    with pytest.raises(DataError, match=r"no benchmark 'digit'; did you mean 'digits'"):
        load_net(report.parent, "nearest mean", seed=0, task=1, benchmark="digit")
    # One of several has to be named.
    several = started_with(report.parent, benchmarks=["digits", "facts"])
    with several, pytest.raises(DataError, match="has several benchmarks; give one: digits, facts"):
        load_net(report.parent, "nearest mean", seed=0, task=1)


def test_a_net_of_an_earlier_start_of_other_methods_is_read(finished):
    report, _ = finished
    with started_with(report.parent, methods=["joint"]):
        assert load_net(report.parent, "nearest mean", seed=0, task=0).class_names[9] == "9"
