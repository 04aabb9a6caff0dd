"""Names of metrics that results already have are refused before anything is trained."""

import pytest

from everlight_data.errors import DataError
from everlight_experiments.continual.benchmarks.metric import Metric
from everlight_experiments.continual.training.queue import check_metric_names
from tests.experiments.continual.report.outcomes import BENCHMARK

METRICS = BENCHMARK.setting.metrics


@pytest.mark.parametrize("name", ["forgetting", "final accuracy", "forgetting of recall"])
def test_a_metric_has_no_name_of_a_derived_number(name):
    metrics = METRICS._replace(others=(Metric("recall", print), Metric(name, print)))
    with pytest.raises(DataError, match=f"metric '{name}' has the name of a number"):
        check_metric_names(metrics._replace(second_score="recall"))


def test_other_names_are_free():
    check_metric_names(METRICS._replace(others=(Metric("forgetting of recall", print),)))
