"""Names of metrics that results already have, and of settings, are refused before training."""

import pytest

from everlight_data.errors import DataError
from everlight_experiments.continual.benchmarks.metric import Metric
from everlight_experiments.continual.training.queue import check_metric_names, runners_of
from tests.experiments.continual.report.outcomes import BENCHMARK

METRICS = BENCHMARK.setting.metrics


@pytest.mark.parametrize("name", ["forgetting", "final accuracy", "forgetting of recall"])
def test_a_metric_has_no_name_of_a_derived_number(name):
    metrics = METRICS._replace(others=(Metric("recall", print), Metric(name, print)))
    with pytest.raises(DataError, match=f"metric '{name}' has the name of a number"):
        check_metric_names(metrics._replace(second_score="recall"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("seconds", "'seconds' has the name of another number of the results; rename it"),
        ("parameters", "'parameters' has the name of another number"),
        ("tried", "'tried' has the name of another number"),
        ("draws", "'draws' has the name of another number"),
        (METRICS.score.name, f"'{METRICS.score.name}' is there twice; rename it"),
        ("P/R", "'P/R' has a /, which separates names"),
    ],
)
def test_a_metric_replaces_no_other_number(name, message):
    with pytest.raises(DataError, match=f"the metric {message}"):
        check_metric_names(METRICS._replace(others=(Metric(name, print),)))


def test_a_setting_has_no_slash_in_its_name(tmp_path):
    setting = BENCHMARK.setting._replace(name="worst/case")
    with pytest.raises(DataError, match=r"the setting 'worst/case' has a /, .*; rename it"):
        runners_of(tmp_path, {"worst": BENCHMARK._replace(setting=setting)}, 0, 1)


def test_two_metrics_have_two_names():
    others = Metric("worst", print), Metric("worst", min)
    with pytest.raises(DataError, match="the metric 'worst' is there twice"):
        check_metric_names(METRICS._replace(others=others))


def test_the_matrix_of_a_score_is_found_by_its_name():
    recall = Metric("recall", print, ("time",))
    renamed = METRICS._replace(score=recall)
    for metrics in (renamed, METRICS._replace(others=(recall,), second_score="recall")):
        with pytest.raises(DataError, match="'recall' has no metric 'recall by task'; give its"):
            check_metric_names(metrics)
    matrix = METRICS.score_by_task._replace(name="recall by task")
    check_metric_names(renamed._replace(score_by_task=matrix))


def test_other_names_are_free():
    check_metric_names(METRICS._replace(others=(Metric("forgetting of recall", print),)))
