"""The reproduction table: its verdicts and causes."""

from types import SimpleNamespace

import numpy as np
import pytest

from everlight_experiments.continual.report.reproduction import (
    PublishedComparison,
    ReferenceScore,
    compare_scores,
    reproduction_section,
    unexplained_lines,
)

ACTUAL = np.array([0.70, 0.74, 0.72, 0.71])


def of(published, code):
    return PublishedComparison("buffer of 200", "ER", published, code, ACTUAL)


@pytest.mark.parametrize(
    ("published", "code", "verified"),
    [
        (ReferenceScore(0.72), ReferenceScore(0.715, 0.01, 5), "both"),
        (ReferenceScore(0.72), ReferenceScore(0.60, 0.01, 5), "table"),
        (ReferenceScore(0.80), ReferenceScore(0.72, 0.01, 5), "code"),
        (ReferenceScore(0.80), ReferenceScore(0.60, 0.01, 5), "no"),
        (ReferenceScore(0.80), None, "no"),
        (None, ReferenceScore(0.72, 0.01, 5), "code"),
    ],
)
def test_a_number_is_verified_by_the_table_or_by_the_code(published, code, verified):
    result = of(published, code)
    assert result.verification == verified
    assert bool(unexplained_lines([result], {})) == (verified == "no")


def test_a_known_cause_explains_and_stands_in_the_table():
    result = of(ReferenceScore(0.80), None)
    assert unexplained_lines([result], {"ER": "another learning rate"}) == []
    assert unexplained_lines([result], {"ER, buffer of 500": "another learning rate"})
    section = reproduction_section([result], {"ER": "another learning rate"}, "From a table.")
    (row,) = section.items[0].rows
    errors = (ACTUAL.mean() - 0.8) / (ACTUAL.std(ddof=1) / 2)
    assert row == [
        *("ER, buffer of 200", "80.0", "–", "71.8 ± 1.7"),
        *(f"{errors:+.1f}", "–", "no", "another learning rate"),
    ]


def test_only_methods_that_were_run_are_compared():
    outcomes = {"buffer of 200": {"ER": SimpleNamespace(final=ACTUAL)}}
    references = [PublishedComparison("buffer of 200", name) for name in ("ER", "GEM")]
    (result,) = compare_scores([*references, PublishedComparison("no memory", "ER")], outcomes)
    assert result.method == "ER"
    np.testing.assert_array_equal(result.scores, ACTUAL)
