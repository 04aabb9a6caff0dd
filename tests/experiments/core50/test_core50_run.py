"""The CORe50 runs on tiny plans, where every object is a colour; and their parts."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual import StoredImages
from everlight_data.errors import DataError
from everlight_data.images.core50 import frames as core50_frames
from everlight_experiments.continual.benchmarks.statements import statement_paragraph
from everlight_experiments.continual.paper import findings_section
from everlight_experiments.core50 import config as settings
from everlight_experiments.core50 import paper, start
from everlight_experiments.core50.benchmark import AREA as ROC_AREA
from everlight_experiments.core50.benchmark import SEEN
from everlight_experiments.core50.published_curves import CURVES
from everlight_experiments.core50_static.paper import PAPER as STATIC_PAPER
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions
from tests.experiments.command_runs import arrays_of
from tests.experiments.core50.colored_frames import (
    SMALLEST,
    STATIC,
    colored_frames,
    other_objects,
    requested,
)

TINY = settings.Core50Config(
    **SMALLEST,
    test_frames=1,
    ni=settings.Length(2, 1, 0.01),
    nc=settings.Length(4, 2, 0.01, 0.001),
    nic=settings.Length(2, 1, 0.01),
    head=settings.Length(2, 2, 0.01),
    cumulative=settings.Length(3, 3, 0.01),
    gain=3.0,
)


def run_paper(tmp_path, config=TINY, **changes):
    options = {name: changes.pop(name) for name in ("preset", "tag") if name in changes}
    chosen = {"scenarios": ("NC",), "orders": 2, **changes}
    return paper.PAPER.run(requested(tmp_path, settings.PaperConfig(config, **chosen), **options))


@pytest.fixture
def colors(monkeypatch):
    """Replace the rendering of the procedural world by coloured frames."""

    monkeypatch.setattr(
        start, "load_procedural_core50", lambda frames, world: colored_frames(frames)
    )
    monkeypatch.setattr(start, "load_procedural", other_objects)


def test_batches_are_learned_scored_and_reported(tmp_path, colors):
    methods = ("naive", "CWR", "CWR as coded")
    report = run_paper(tmp_path, methods=methods)
    page = report.read_text()
    for expected in (
        "Mid-CaffeNet on CORe50, other data",
        "150 test frames of sessions 3, 7 and 10, at most 1 per recording",
        "gain 3 of the first",
        "stands in for ILSVRC-2012",
        "not run: NC, cumulative",
        "Area under the ROC curve. ",
    ):
        assert expected in page, expected
    first = arrays_of(report)
    assert first["NC/naive/accuracy"].shape == (2, 9)
    np.testing.assert_array_equal(first["NC/naive/steps"], [4 + 2 * np.arange(9)] * 2)
    np.testing.assert_array_equal(first["NC/CWR/steps"], [2 + 2 * np.arange(9)] * 2)
    for name in methods:
        # When all classes are known, the partial test set is the full one, and nothing is unknown.
        accuracy, partial = first[f"NC/{name}/accuracy"], first[f"NC/{name}/{SEEN}"]
        np.testing.assert_allclose(partial[:, -1], accuracy[:, -1], rtol=1e-6)
        # Both count the same right answers, of 5 objects more after every batch.
        known = 10 + 5 * np.arange(9)
        assert np.all(accuracy * 50 >= partial * known - 1e-4)
        area = first[f"NC/{name}/{ROC_AREA}"]
        np.testing.assert_array_equal(np.isnan(area), [[*[False] * 8, True]] * 2)
    # CWR predicts no class that it has not met: its right answers are all of known ones.
    cwr = {field: first[f"NC/CWR/{field}"] for field in ("accuracy", SEEN)}
    np.testing.assert_allclose(cwr["accuracy"] * 50, cwr[SEEN] * known, rtol=1e-4)
    # Both forms predict the first batch alike, but for classes that only one of them scores.
    assert np.all(first["NC/CWR as coded/steps"] == first["NC/CWR/steps"])
    assert np.any(first["NC/CWR as coded/accuracy"] != first["NC/CWR/accuracy"])
    # CWR has a head of 2 x 2 x 4 features, or two, and two counts for each of 50 classes.
    for heads in (1, 2):
        assert f"{heads * 4 * 17 * 50 + 2 * 4 * 50:,}" in page
    with pytest.raises(DataError, match=r"batch_size: stored 16, now 17"):
        run_paper(tmp_path, replace(TINY, batch_size=17), methods=methods)


def test_the_static_benchmark_has_both_nets_the_svm_and_fusion(tmp_path, colors):
    report = STATIC_PAPER.run(requested(tmp_path, STATIC))
    page = report.read_text()
    assert "77.8" in page
    assert "65.9" not in page, "the object level was not requested"
    assert statement_paragraph(TINY.chosen) in page
    assert "2 frames fused, %" in page
    with np.load(report.parent / "results.npz") as results:
        accuracies = {name for name in results if name.startswith("category/")}
        assert accuracies == {
            f"category/{name}"
            for name in ("from scratch", "frozen + SVM", "fine-tuning", "sessions")
        }
        # Recordings have two frames: predictions are of single frames and of both.
        assert results["category/fine-tuning"].shape == (2,)
        # Chance is 0.1: there are 10 categories of five colours each.
        assert results["category/frozen + SVM"][0] > 0.2
        assert np.all(results["category/sessions"] <= 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ("CRW",)}, r"no method 'CRW'; did you mean 'CWR'\? There are 'naive'"),
        ({"methods": ()}, "--methods without a name; there are 'naive', 'CWR'"),
        ({"orders": 11}, "--orders 11; give 1 to 10"),
        ({"config": {"test_frames": 0}}, "--test-frames 0; give 1 to"),
        (
            {"config": {"test_frames": 3}},
            "--test-frames 3; the longest recording of a test session has 2 frames: give 2 or",
        ),
        ({"config": {"net": "Mid-VGG"}}, "--net Mid-VGG at --side 8; give --preset paper"),
        ({"config": {"net": "VGG"}}, "--net VGG; choose 'small'"),
        ({"config": {"weights": Path("net.npz")}}, "the small net learns its own"),
    ],
)
def test_impossible_runs_are_named(tmp_path, colors, changes, message):
    config = replace(TINY, **changes.pop("config", {}))
    with pytest.raises(DataError, match=message):
        run_paper(tmp_path, config, **changes)


@pytest.mark.parametrize("run", [run_paper, STATIC_PAPER.run])
def test_a_run_on_an_incomplete_release_is_requested_and_needs_every_recording(
    tmp_path, monkeypatch, run
):
    """The loader refuses it without the option, and refuses a release without s4/o18."""
    frames = colored_frames(2)
    full = np.ones(len(frames.frame), bool)

    def load(side, partial):
        if not partial:
            raise DataError("give --partial")
        return frames._replace(
            images=frames.images[full], session=frames.session[full], object=frames.object[full]
        )

    def start_run(partial):
        release = {"data": "core50", "partial": partial}
        if run is run_paper:
            return run_paper(tmp_path, replace(TINY, **release))
        return STATIC_PAPER.run(requested(tmp_path, replace(STATIC, **release)))

    monkeypatch.setattr(core50_frames, "load_core50", load)
    with pytest.raises(DataError, match="give --partial"):
        start_run(False)
    result = start.load_material(replace(TINY, data="core50", partial=True), "object", 0)
    # Eight training sessions have two frames each, three test sessions one.
    assert len(result.frames.images) == 50 * (8 * 2 + 3)
    full[(frames.session == 3) & (frames.object == 17)] = False
    with pytest.raises(DataError, match=r"no frame in 1 of 550 recordings, .* s4/o18"):
        start_run(True)


def test_missing_weights_are_named_before_frames_are_read(tmp_path):
    with pytest.raises(DataError, match=r"--weights .*none\.npz does not exist"):
        run_paper(tmp_path, replace(settings.PRESETS["paper"], weights=tmp_path / "none.npz"))


def test_the_paper_s_lengths_are_its_iterations():
    """Lomonaco and Maltoni 2017 have: NC naive 2000 at 1e-3, then 300 at 1e-5; cumulative 2000."""
    config = settings.PRESETS["paper"]
    naive, full = config.nc, config.cumulative
    protocol = naive.protocol(config.batch_size)
    assert protocol.epochs_of(0) * protocol.epoch_steps == 2000
    assert protocol.epochs_of(5) * protocol.epoch_steps == 300
    assert naive.later_factor * naive.learning_rate == pytest.approx(1e-5)
    protocol = full.protocol(config.batch_size)
    assert protocol.epochs_of(0) * protocol.epoch_steps == 2000
    assert protocol.epochs_of(5) * protocol.epoch_steps == 2000
    assert full.later_factor == 1


def test_a_caffe_net_reads_blue_first_with_the_user_s_weights(tmp_path, rng):
    frames = colored_frames(1)
    frames = frames._replace(images=rng.integers(0, 256, (2, 128, 128, 3), np.uint8))
    weight = rng.normal(size=(96, 3, 11, 11)).astype(np.float32)
    np.savez(tmp_path / "net.npz", **{"conv1/weight": weight, "conv1/bias": np.ones(96)})
    folder = RunFolder("core50", "test", ExperimentOptions(runs=tmp_path))
    weights = start.initial_weights(
        folder, replace(settings.PRESETS["paper"], weights=tmp_path / "net.npz"), frames, 0
    )
    assert weights.layers.keys() == {*(f"conv{number}" for number in range(1, 6)), "fc6", "fc7"}
    np.testing.assert_array_equal(weights.layers["conv1"]["kernel"], weight.transpose(2, 3, 1, 0))
    np.testing.assert_array_equal(weights.layers["conv1"]["bias"], np.ones(96))
    assert np.std(weights.layers["conv2"]["kernel"]) > 0
    np.testing.assert_array_equal(weights.stored.images, frames.images[..., ::-1])
    np.testing.assert_array_equal(weights.stored.mean, [104, 117, 123])
    np.testing.assert_array_equal(weights.stored.deviation, [1, 1, 1])


def test_the_trunk_is_the_convolutions_of_the_whole_net():
    """The whole net's dense layer reads the features; 300 frames are three passes."""
    config, frames = TINY, colored_frames(1)
    frames = frames._replace(images=frames.images[:300])
    layers = start._draw_layers(config, 0)
    stored = StoredImages.of(frames.images, jnp.full(3, 100.0), jnp.full(3, 64.0))
    weights = start.InitialWeights(layers, stored, "drawn")
    features = start.trunk_features(weights, config)
    assert features.values.shape == (300, 2 * 2 * 4)
    dense = weights.layers["Dense_0"]
    hidden = np.maximum(features.values @ dense["kernel"] + dense["bias"], 0)
    net, inputs = start.make_net(config, 3), (weights.stored.images - weights.stored.mean) / 64
    head = {"kernel": jnp.ones((8, 3)), "bias": jnp.zeros(3)}
    outputs = net.apply({"params": {**weights.layers, "Dense_1": head}}, inputs, False)
    np.testing.assert_allclose(outputs.features, hidden, rtol=1e-4, atol=1e-3)
    # Two for each weight of the four convolutions at each of its places inside the image, of which
    # a side of n has 3n - 2; the rest is normalization, biases and maxima.
    products = 2 * (22**2 * (3 * 2 + 2 * 2) + 10**2 * (2 * 4 + 4 * 4))
    assert products < features.operations < 1.2 * products


CAFFE_CONFIG = replace(
    settings.PRESETS["paper"],
    side=48,
    nc=settings.Length(1, 1, 1e-3),
    head=settings.Length(2, 2, 1e-4),
    batch_size=4,
    test_frames=1,
)


@pytest.mark.slow
@pytest.mark.parametrize(("net", "published"), [("Mid-CaffeNet", "42.3"), ("Mid-VGG", "39.1")])
def test_the_papers_nets_learn_in_batches(tmp_path, monkeypatch, net, published):
    frames = colored_frames(1, side=48)
    monkeypatch.setattr(core50_frames, "load_core50", lambda side, partial: frames)
    config, methods = replace(CAFFE_CONFIG, net=net), ("naive", "CWR")
    page = run_paper(tmp_path, config, preset="paper", methods=methods, orders=1).read_text()
    assert f"Paper: {net} on CORe50" in page
    assert published in page
    assert "drawn at random: no weights were given" in page


@pytest.mark.parametrize(
    ("net", "features", "deviation", "bias"),
    [("Mid-CaffeNet", 9 * 256, 0.01, 0), ("Mid-VGG", 9 * 512, 0.005, 1)],
)
def test_another_net_is_chosen_with_its_own_trunk_and_head(net, features, deviation, bias):
    config = replace(settings.PRESETS["paper"], net=net)
    images = jnp.zeros((1, 128, 128, 3))
    result = jax.eval_shape(
        lambda: start.make_net(config, 50).init(jax.random.key(0), images, False)["params"]
    )
    assert result["fc6"]["kernel"].shape == (features, 2048)
    head = start.make_head(config, 50).init(jax.random.key(0), jnp.zeros((1, features)), False)
    assert np.std(head["params"]["head"]["kernel"]) == pytest.approx(deviation, rel=0.02)
    np.testing.assert_array_equal(head["params"]["head"]["bias"], bias)


def outcomes_of(scenario, curves):
    """Return outcomes that have accuracies and nothing else."""
    by_name = {
        name: SimpleNamespace(over_time=np.array([curve]) / 100) for name, curve in curves.items()
    }
    return {scenario: by_name}


def rows_of(outcomes):
    (table,) = findings_section(paper.findings(outcomes), "").items
    return table.rows


@pytest.mark.parametrize("net", CURVES)
def test_the_published_curves_have_the_paper_s_findings(net):
    published = CURVES[net]
    outcomes = {}
    for scenario, curves in published.items():
        outcomes |= outcomes_of(scenario, curves)
    rows = rows_of(outcomes)
    assert [row[1] for row in rows] == ["1 of 1"] * len(rows)
    # Reversed in time CWR falls, and all ends are beginnings.
    turned = outcomes_of("NC", {name: curve[::-1] for name, curve in published["NC"].items()})
    held = {row[0]: row[1] for row in rows_of(turned)}
    assert held["NC: CWR rises with every batch, 2 points of noise allowed"] == "0 of 1"
    assert held["NC: CWR ends between naive and cumulative"] == "0 of 1"
    nothing = rows_of({})
    assert [row[1] for row in nothing] == ["–"] * len(rows)
    assert nothing[0][2] == "not run: NI, cumulative, NI, naive"


@pytest.mark.slow
def test_memory_stays_flat_over_nic_s_batches():
    """Peak resident sizes after batch 79 and batch 10 are compared, in a separate process."""
    command = [sys.executable, "-m", "tests.experiments.processes.core50_memory"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    tenth, last = map(int, answer.stdout.splitlines()[-1].split())
    assert last < 1.05 * tenth
