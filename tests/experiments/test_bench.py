"""The bench on tiny sizes: its numbers hang together, and it does without PyTorch."""

import json
import time

import numpy as np
import pytest

from experiments.bench import net_training
from experiments.bench.__main__ import Sizes, bench, run_race
from experiments.bench.iirc_training import TrainingSizes
from experiments.bench.task_sequences import SequenceSizes
from experiments.bench.timing import calls_per_second_in_turns, median_ratio, seconds_in_turns
from experiments.bench.transform_fits import fit_error

TINY = Sizes(
    fits=((20, 24),),
    fit_rounds=1,
    conditions=(3,),
    images=4,
    pixels=24,
    depths=(2,),
    models=2,
    batch_size=8,
    block=4,
    training_rounds=1,
    window=0.02,
    sequences=SequenceSizes(
        strategies=("EWC",),
        tasks=2,
        classes=4,
        train_per_class=10,
        test_per_class=2,
        side=8,
        channels=(2, 2),
        hidden=4,
        epochs=1,
        fisher_samples=4,
        exemplars=2,
        rounds=1,
    ),
    metric_samples=50,
    metric_tasks=3,
    metric_rounds=1,
    iirc=TrainingSizes(
        tasks=2,
        train_per_class=10,
        test_per_class=1,
        side=8,
        blocks=1,
        batch_size=64,
        part_rounds=1,
        replay_task=1,
        replay_rounds=1,
    ),
    herding=(4, 30, 6, 3),
    herding_rounds=1,
    copy_megabytes=4,
    matmul_size=64,
)


@pytest.fixture
def without_torch(monkeypatch):
    find = net_training.importlib.util.find_spec
    monkeypatch.setattr(
        net_training.importlib.util,
        "find_spec",
        lambda name: None if name == "torch" else find(name),
    )


def measured(folder):
    return json.loads((folder / "bench.json").read_text())


@pytest.mark.usefixtures("without_torch")
def test_without_pytorch_the_rest_is_measured_and_the_page_says_how_to_get_it(tmp_path):
    page = bench(TINY, tmp_path)
    results = measured(tmp_path)
    (fit,) = results["fits"]
    # One round, so the ratio of the medians is the median of the ratios.
    np.testing.assert_allclose(fit["ratio_float32"], fit["numpy_float32_s"] / fit["everlight_s"])
    assert fit["memory_floor_s"] > 0
    (training,) = results["training"]
    assert training["parameters"] == 200
    assert training["everlight"] > 0
    assert training["torch_one_thread"] is training["ratio"] is None
    for speed in results["sequences"]:
        assert speed["torch_s"] is speed["torch_over_compiled"] is None
        assert speed["evaluation_share"] > 0
        np.testing.assert_allclose(
            speed["driven_over_compiled"], speed["driven_s"] / speed["compiled_s"]
        )
    assert results["metrics"]["torch_s"] is None
    assert results["metrics"]["everlight_s"] > 0
    # Parameters, Adam's two moments, EWC's two sums and the best epoch are six copies.
    checkpoint = results["checkpoint"]
    assert checkpoint["state_bytes"] > 6 * 4 * checkpoint["parameters"]
    assert ".[bench]" in page
    assert "| 20 of 24 pixels |" in page


def test_pytorch_runs_beside_it(tmp_path):
    pytest.importorskip("torch")
    page = bench(TINY, tmp_path)
    (training,) = measured(tmp_path)["training"]
    better = max(training["torch_one_thread"], training["torch_all_cores"])
    np.testing.assert_allclose(training["ratio"], training["everlight"] / better)
    for speed in measured(tmp_path)["sequences"]:
        np.testing.assert_allclose(
            speed["torch_over_compiled"], speed["torch_s"] / speed["compiled_s"]
        )
    assert ".[bench]" not in page


def test_parameters_are_the_papers():
    counts = [sum(net_training.weight_counts(depth)) + 9 * depth + 2 for depth in (2, 5, 16)]
    assert counts == [200, 470, 1460]


def test_normal_equations_are_seen_to_fail_where_the_fit_does_not():
    error = fit_error(3e4, images=20, pixels=300)
    assert error.everlight < 1e-2
    assert error.normal_equations > 10 * error.everlight


def test_timings_are_those_of_the_contestants():
    naps = {"short": lambda: time.sleep(0.002), "long": lambda: time.sleep(0.02)}
    seconds = seconds_in_turns(naps, rounds=3)
    assert [len(s) for s in seconds.values()] == [3, 3]
    assert min(seconds["short"]) >= 0.002
    assert min(seconds["long"]) >= 0.02
    rates = calls_per_second_in_turns(naps, rounds=2, window=0.05)
    assert max(rates["short"]) <= 500
    assert max(rates["long"]) <= 50


def test_the_median_ratio_is_taken_round_by_round():
    assert median_ratio([10, 20, 100], [1, 10, 1]) == 10
