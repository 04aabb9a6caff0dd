"""Benchmarks of a user's file: the guide's example in a run, and what is refused."""

import re
from pathlib import Path

import numpy as np
import pytest

from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_experiments import load_net
from everlight_experiments.cli import options_of
from everlight_experiments.commands.benchmark_registry import load_benchmarks
from everlight_experiments.commands.run import run_benchmark
from everlight_experiments.commands.tune import run_tune
from everlight_experiments.commands.user_benchmark import load_user_benchmark
from everlight_experiments.continual.benchmarks.run_data import SequenceId, TrainedRun
from everlight_experiments.images.benchmark import compose
from everlight_experiments.images.config import DIGITS
from tests.refusals import refused

SEQUENCE_ID = SequenceId("evaluation", 0, 0)
GUIDE = Path(__file__).parents[3] / "docs" / "pages" / "guide" / "benchmarks.md"


def run(tmp_path, *words):
    return run_benchmark(options_of("run", [*words, "--runs", str(tmp_path / "runs")]))


def test_the_guide_s_example_is_trained_reported_and_read_back(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[0])
    words = f"{path}:stripes", "--methods", "ER", "--seeds", "1", "--keep-nets"
    report = run(tmp_path, *words)
    assert report.parent.name == "run-stripes-demo"
    with np.load(report.parent / "results.npz") as results:
        worst = results["class-incremental/ER/worst class"]
        by_class = results["class-incremental/ER/accuracy by class"]
    np.testing.assert_array_equal(worst, by_class[:, -1].min(axis=1))
    page = report.read_text()
    assert "Lowest accuracy of a class at the end." in page
    assert "Continual learning of stripes: 2 methods" in page
    net = load_net(report.parent, "ER", seed=0, task=1)
    assert net.class_names == ("a", "b", "c", "d")
    times = {path: path.stat().st_mtime_ns for path in report.parent.glob("units/*")}
    assert run(tmp_path, *words) == report
    assert times == {path: path.stat().st_mtime_ns for path in times}
    path.write_text(path.read_text().replace("+= 150", "+= 100"))
    refused(r"belongs to another configuration \(data: ", lambda: run(tmp_path, *words), DataError)


FILE = """
raise_value = 3
def none(): return None
def fails(): return 1 / 0
def leaves(): raise SystemExit(4)
def takes(argument): return argument
def made():
    from everlight_experiments import compose
    from everlight_experiments.images.config import DIGITS
    return compose(DIGITS)
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "mine.py:raise_value",
            r"mine\.py:raise_value is int, no Benchmark and no stream; give my_",
        ),
        ("mine.py:none", r"mine\.py:none is NoneType, no Benchmark and no stream; give"),
        ("mine.py:fails", r"mine\.py:fails: ZeroDivisionError: .* \(mine\.py, line 4\)"),
        ("mine.py:leaves", r"mine\.py:leaves ends the process \(4\); give"),
        ("mine.py:takes", r"mine\.py:takes takes arguments; give"),
        ("mine.py:none --setting online", r"mine\.py:none is NoneType, no Benchmark and no"),
        ("mine.py:made --setting online", "--setting is not for made, which has its own"),
        ("mine.py:made --preset small", "--preset small is not for mine.py:made, whose file has"),
        ("mine.py:made --hyperparameters published", "settings are known for .*; leave it out"),
        ("mine.py:made --epochs 3", "--epochs is for a stream of arrays; mine.py:made is a Bench"),
    ],
)
def test_other_objects_than_benchmarks_are_refused_in_one_line(
    tmp_path, monkeypatch, name, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE)
    refused(message, lambda: run(tmp_path, *name.split()), DataError)
    assert not (tmp_path / "runs").exists()


def test_commands_that_vary_configurations_name_the_one_that_takes_it():
    with pytest.raises(DataError, match=r"^mine.py:x is for everlight run; other commands take"):
        run_tune(options_of("tune", ["mine.py:x", "--vary", "epochs=1,2"]))
    with pytest.raises(DataError, match=r"--config is for benchmarks with a name; mine\.py:x has"):
        options_of("run", ["mine.py:x", "--config", "digits:demo"])


METRICS_FILE = """
from everlight_experiments import Config, Metric, compose
from everlight_experiments.images.config import DIGITS
from everlight_experiments.images.metrics import accuracy_by_class
def worst(run): return accuracy_by_class(run)[-1].min()
def other(run): return run.arrays["predicted classes"]
def fails(run): return 1 / 0
def extended():
    benchmark = compose(DIGITS)
    metrics = benchmark.setting.metrics
    others = *metrics.others, *(Metric(f.__name__, f) for f in (worst, other, fails))
    score = metrics.score._replace(compute=fails)
    setting = benchmark.setting._replace(metrics=metrics._replace(others=others, score=score))
    selection = benchmark.selection._replace(criterion=others[-1])
    return benchmark._replace(setting=setting, selection=selection)
def percent():
    benchmark = compose(Config(data="digits", tasks=(2,), net="linear"))
    metrics = benchmark.setting.metrics
    score = metrics.score._replace(compute=lambda run: 100 * metrics.score.compute(run))
    return benchmark._replace(setting=benchmark.setting._replace(
        metrics=metrics._replace(score=score)))
"""


def test_a_metric_that_fails_is_named_with_its_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(METRICS_FILE)
    benchmark = load_user_benchmark("mine.py:extended")
    metrics = benchmark.setting.metrics
    run = TrainedRun({}, benchmark.data.sequence(METHODS["naive"], SEQUENCE_ID), SEQUENCE_ID, 5)
    named = {metric.name: metric.compute for metric in metrics.all}
    named["criterion"] = benchmark.selection.criterion.compute
    fails = r"'fails': ZeroDivisionError: .* \(mine\.py, line 7\)"
    for name, message in (
        (
            "worst",
            r"'worst' reads predicted classes, .*; give the Config metrics=\(\"confusion\",\)",
        ),
        ("other", r"'other': KeyError: 'predicted classes' \(mine\.py, line 6\)"),
        ("fails", fails),
        ("criterion", fails),
        ("accuracy", fails.replace("fails", "accuracy")),
    ):
        with pytest.raises(DataError, match=f"mine.py:extended: the metric {message}"):
            named[name](run)


def test_a_score_in_percent_is_refused_after_the_first_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(METRICS_FILE)
    message = r"^the score 'accuracy' has \d+\.?\d*; give shares in \[0, 1\]$"
    with pytest.raises(DataError, match=message):
        run(tmp_path, "mine.py:percent", "--methods", "nearest mean", "--seeds", "1")
    assert not list(tmp_path.glob("runs/*/units/*.npz"))


def test_the_validation_tasks_of_a_benchmark_are_replaced_by_the_option_alone():
    stripes = compose(DIGITS, name="stripes")
    limited = stripes._replace(selection=stripes.selection._replace(validation_tasks=2))
    for words, expected in (([], 2), (["--validation-tasks", "3"], 3)):
        options = options_of("run", ["mine.py:stripes", *words])
        (benchmark,) = load_benchmarks(options, limited).values()
        assert benchmark.selection.validation_tasks == expected


def test_images_take_the_place_of_the_configuration_s_data():
    images = compose(DIGITS).data.images._replace(name="mine")
    benchmark = compose(DIGITS, images, name="own", setting="online")
    assert (benchmark.name, benchmark.setting.name, benchmark.data.note) == (
        "own",
        "online",
        "mine",
    )
