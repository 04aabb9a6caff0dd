"""The bench on tiny sizes: its numbers hang together, and it does without PyTorch."""

import json
import time
from itertools import chain

import numpy as np
import pytest

from everlight_data.images.iirc_metadata import official_metadata
from everlight_experiments.bench import net_training
from everlight_experiments.bench.__main__ import Sizes, bench, run_many, run_race
from everlight_experiments.bench.fact_ranking import RankingSizes
from everlight_experiments.bench.herding import herding_speed
from everlight_experiments.bench.iirc_training import TrainingSizes
from everlight_experiments.bench.many_runs import ManyRunsSizes
from everlight_experiments.bench.task_sequences import SequenceSizes
from everlight_experiments.bench.timing import (
    calls_per_second_in_turns,
    median_ratio,
    seconds_in_turns,
)
from everlight_experiments.bench.transform_fits import fit_error

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
        train_per_class=30,
        test_per_class=1,
        side=8,
        blocks=0,
        batch_size=64,
        part_rounds=1,
        replay_task=1,
        replay_rounds=1,
    ),
    herding=(4, 30, 6, 3),
    herding_rounds=1,
    ranking=RankingSizes(images=30, facts=50, words=12, part=(20, 40), dimension=4, rounds=1),
    copy_megabytes=4,
    matmul_size=64,
)


@pytest.fixture
def with_iirc():
    pytest.importorskip("iirc")


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


def first_two_tasks():
    """Their classes' counts of training samples, 30 of each subclass given: by hand.

    A tenth each is in-task and post-task validation. Of the other 24 a superclass takes the first 9
    of each of its 4 to 8 subclasses, and a subclass that has one the last 19. In the second task no
    class is another's superclass.
    """
    hierarchy, (configuration, *_), _ = official_metadata("iirc_cifar100")
    grouped = set(chain(*hierarchy.values()))
    return [
        [9 * len(hierarchy[c]) if c in hierarchy else 19 if c in grouped else 24 for c in task]
        for task in configuration.tasks[:2]
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("without_torch", "with_iirc")
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
    replay = results["replay"]
    first, second = first_two_tasks()
    assert replay["exemplars"] == sum(min(20, count) for count in first)
    assert replay["images"] == replay["exemplars"] + sum(second)
    assert replay["steps"] == -(-replay["images"] // 64)
    assert replay["everlight_s"] > 0
    assert replay["torch_s"] is replay["ratio"] is None
    herding = results["herding"]
    assert herding["same_classes"] == 4
    np.testing.assert_allclose(herding["ratio"], herding["numpy_s"] / herding["everlight_s"])
    ranking = results["ranking"]
    assert ranking["same_ranks"] == 1
    assert ranking["matrix_bytes"] == 4 * 30 * 50
    np.testing.assert_allclose(
        ranking["ratio"], ranking["part_numpy_s"] / ranking["part_everlight_s"]
    )
    assert ".[bench]" in page
    assert "| 20 of 24 pixels |" in page


@pytest.mark.slow
@pytest.mark.usefixtures("with_iirc")
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
    replay = measured(tmp_path)["replay"]
    np.testing.assert_allclose(replay["ratio"], replay["torch_s"] / replay["everlight_s"])
    assert ".[bench]" not in page


@pytest.mark.slow
@pytest.mark.usefixtures("with_iirc")
def test_the_race_is_run_whole_and_its_parts_add_up(tmp_path):
    page = run_race(TINY.iirc, tmp_path)
    race = json.loads((tmp_path / "race.json").read_text())["race"]
    first, second = first_two_tasks()
    assert (race["tasks"], race["classes"]) == (2, 15)
    # The superclasses of the first task share no sample.
    assert race["train_images"] == sum(first) + sum(second) + sum(min(20, c) for c in first)
    parts = ("training", "evaluation", "validation", "checkpoints", "driven_compilation")
    np.testing.assert_allclose(race["driven_s"], sum(race[f"{part}_s"] for part in parts))
    # What is left for training may be nothing, with so few steps on a busy machine.
    assert min(value for name, value in race.items() if name != "training_s") > 0
    assert f"{396 / race['driven_s']:.2f} times as long in all" in page


def test_herding_in_numpy_chooses_as_everlight_does():
    speed = herding_speed(classes=5, samples=60, features=16, exemplars=20, rounds=1)
    assert speed.same_classes == 5


def test_pytorchs_net_has_the_published_size_and_its_windows_are_of_the_padded_images():
    torch = pytest.importorskip("torch")
    from everlight_experiments.bench import iirc_torch

    assert sum(p.numel() for p in iirc_torch.reduced_resnet(115, 5).parameters()) == 473_731
    images = torch.randint(1, 256, (200, 3, 6, 6), dtype=torch.uint8)
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (4, 4), (4, 4)))
    mirrored = 0
    for window, image in zip(iirc_torch.crop_and_flip(images).numpy(), padded, strict=True):
        places = [
            sign
            for row, column, sign in np.ndindex(9, 9, 2)
            if np.array_equal(
                window[..., :: 1 - 2 * sign], image[:, row : row + 6, column : column + 6]
            )
        ]
        assert places
        mirrored += places[0]
    # Half of 200, give or take five standard deviations of 7.
    assert abs(mirrored - 100) < 36


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


@pytest.mark.slow
def test_many_runs_are_timed_on_the_devices_that_there_are(tmp_path):
    sizes = ManyRunsSizes(runs=2, devices=(1,), sequence=TINY.sequences)
    page = run_many(sizes, tmp_path)
    assert "| 1 | " in page
    assert "with the same bits" in page
    speed = json.loads((tmp_path / "many_runs.json").read_text())["speed"]
    assert speed["ratio"]["1"] == 1
    assert speed["together_s"]["1"] > 0
