"""The demo with fewer methods and one seed: its sentences agree with its numbers."""

import re

import numpy as np
import pytest

from everlight.color.rendering import white_balance
from everlight_experiments.cli import options_of
from everlight_experiments.commands import demo
from everlight_experiments.illuminant.photographs.relit import (
    SHOWN,
    UNCORRECTED,
    relight_sample_photograph,
)
from tests.experiments.command_runs import arrays_of


@pytest.fixture(scope="module")
def relit():
    return relight_sample_photograph()


def test_the_photograph_divided_by_its_illuminant_is_the_original(relit):
    seen = relit.original * relit.illuminant
    again = np.asarray(white_balance(seen, relit.illuminant)) / relit.illuminant[1]
    np.testing.assert_allclose(again, relit.original, rtol=1e-5)


def test_errors_are_angles_between_illuminants(relit):
    def angle(one, other):
        cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        return np.degrees(np.arccos(cosine))

    truth = relit.illuminant.astype(np.float64)
    for name in (SHOWN, UNCORRECTED):
        expected = angle(relit.estimates[name].astype(np.float64), truth)
        assert relit.errors[name] == pytest.approx(expected, abs=1e-3)
    assert relit.errors[SHOWN] < 3 < 30 < relit.errors[UNCORRECTED]


def test_the_demo_shows_that_replay_forgets_less(tmp_path, monkeypatch, capsys):
    methods = {name: demo.METHODS[name] for name in ("naive", "ER")}
    monkeypatch.setattr(demo, "METHODS", methods)
    monkeypatch.setattr(demo, "SEEDS", 1)
    report = demo.run_demo(options_of("demo", ["--runs", str(tmp_path)]))
    arrays = arrays_of(tmp_path / "run-digits-demo" / "report.html")
    finals = {name: arrays[f"class-incremental/{name}/accuracy"][0, -1] for name in methods}
    assert finals["naive"] < 0.25 < 0.8 < finals["ER"]
    printed = capsys.readouterr().out
    sentence = re.search(r"finetuning \(naive\) (.*)%, replay \(ER\) (.*)%;", printed)
    np.testing.assert_allclose(
        [float(number) for number in sentence.groups()],
        [100 * finals["naive"], 100 * finals["ER"]],
        atol=0.051,
    )
    page = report.read_text(encoding="utf-8")
    assert page.count("data:image/png") == 4
    assert "Illuminants. Before and after" in page
