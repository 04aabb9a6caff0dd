"""The IIRC run, on a tiny plan of the procedural world."""

from dataclasses import replace

import numpy as np
import pytest

from everlight.continual.engine.protocol import Protocol
from everlight.scenarios.iirc import TaskConfiguration
from everlight_data.errors import DataError
from everlight_data.images.iirc_metadata import Metadata
from everlight_data.images.image_set import ImageSet
from everlight_experiments.continual.benchmark import RunData
from everlight_experiments.continual.methods import METHODS
from everlight_experiments.continual.run import run_continual
from everlight_experiments.continual.table import ContinualRun
from everlight_experiments.iirc import iirc
from everlight_experiments.iirc import record as iirc_record
from everlight_experiments.iirc.iirc import IIRCRun, run_iirc
from everlight_experiments.iirc.record import CLASS_TYPES, SCENARIO, Data, Plan, load_data, record

TINY = Plan(
    data="procedural",
    side=8,
    blocks=0,
    protocol=Protocol(epochs=1, first_epochs=2, batch_size=32),
    configurations=2,
    methods=("LUCIR", "finetune"),
    exemplars_per_class=2,
    ablation=(1,),
    per_class=(30, 2),
)


def test_it_reports_the_findings_and_refuses_parts_of_another_plan(tmp_path):
    pytest.importorskip("iirc")
    settings = IIRCRun(runs=tmp_path)
    report = run_iirc(settings, {"demo": TINY})
    page = report.read_text()
    assert "LUCIR learns new labels less and less" in page
    assert "not run: A-GEM, ER" in page
    with np.load(report.parent / "results.npz") as results:
        first = dict(results)
    # 16 classes: three shapes first, then tasks of five, five and three.
    matrix = first["LUCIR/by_task"]
    assert matrix.shape == (2, 4, 4)
    np.testing.assert_array_equal(
        np.isnan(matrix), np.broadcast_to(~np.tri(4, dtype=bool), (2, 4, 4))
    )
    np.testing.assert_array_equal(matrix, first[f"{SCENARIO}/LUCIR/matrices"])
    # With exemplars only what keeps some.
    finals = {key for key in first if key.endswith("/final") and "-" in key}
    assert finals == {"LUCIR-1/final", "LUCIR-2/final"}
    assert first["LUCIR-1/final"].shape == (2,)
    assert "exemplars per class" in page
    with pytest.raises(DataError, match=r"no method with exemplars in --plan\.ablated, 'finetune'"):
        run_iirc(replace(settings, plan={"ablated": ("finetune",)}), {"demo": TINY})
    # Without a second label seen, every test sample has one: the first task brings superclasses.
    np.testing.assert_allclose(first["LUCIR/true_labels"][:, 0], 1)
    # At the end each sample has its superclass and its subclass.
    np.testing.assert_allclose(first["LUCIR/true_labels"][:, -1], 2)
    # In this world every subclass has a superclass, and no class is without one.
    for kind, unknown in zip(CLASS_TYPES, (False, False, True), strict=True):
        scores = first[f"{SCENARIO}/LUCIR/in the end, {kind}"]
        np.testing.assert_array_equal(np.isnan(scores), [unknown] * 2)
    with pytest.raises(DataError, match="exemplars_per_class: 2 there, 3 now"):
        run_iirc(settings, {"demo": replace(TINY, exemplars_per_class=3)})


@pytest.mark.slow
def test_the_one_runner_has_it_for_any_method(tmp_path, monkeypatch):
    pytest.importorskip("iirc")
    monkeypatch.setattr(iirc_record, "PLANS", {"demo": TINY, "paper": TINY})
    asked = {
        "methods": ("joint", "incremental joint", "GDumb", "EWC"),
        "seeds": 2,
        "validation_seeds": 1,
    }
    report = run_continual(ContinualRun(benchmark="iirc", runs=tmp_path, **asked))
    with np.load(report.parent / "results.npz") as results:
        kept = {key: results[key] for key in results}
    name = f"{SCENARIO}/naive"
    assert kept[f"{name}/over_time"].shape == (2, 4)
    upper = np.broadcast_to(~np.tri(4, dtype=bool), (2, 4, 4))
    np.testing.assert_array_equal(np.isnan(kept[f"{name}/matrices"]), upper)
    assert np.isnan(kept[f"{SCENARIO}/joint/over_time"][:, :-1]).all()
    assert np.isfinite(kept[f"{SCENARIO}/joint/over_time"][:, -1]).all()
    assert np.isfinite(kept[f"{SCENARIO}/EWC/over_time"]).all()
    # Incremental joint holds the samples of earlier tasks beside each task's own; some are both's.
    own, upper = kept[f"{name}/samples"], f"{SCENARIO}/incremental joint"
    np.testing.assert_array_equal(kept[f"{upper}/samples"], own)
    earlier = np.cumsum(own, axis=1) - own
    assert (kept[f"{upper}/stored_samples"] <= earlier).all()
    assert (kept[f"{upper}/stored_samples"][:, 1:] > earlier[:, 1:] / 2).all()
    assert "task configuration" in report.read_text()


def test_penalties_know_how_far_momentum_carries():
    plan = replace(TINY, learning_rate=0.3, learning_rates={"EWC": 0.2})
    benchmark = record(plan, load_data(plan, 0), 0)
    for name, reach in (("EWC", 2), ("MAS", 3)):
        method = METHODS[name]
        data = RunData(benchmark.shared(SCENARIO, method), None)
        _, needs = benchmark.begin(SCENARIO, method, data)
        assert needs.reach == pytest.approx(reach)


@pytest.mark.parametrize("data", ["iirc_cifar100", "incremental_cifar100", "procedural"])
def test_cifar_is_normalised_as_by_the_authors(data):
    """(x / 255 - mean) / deviation with the numbers of their code; other sets by their own."""
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    labels = np.arange(6) % 2
    given = ImageSet("noise", images, labels, labels[:0], ("a", "b"))
    order = TaskConfiguration((("a",), ("b",)))
    benchmark = record(replace(TINY, data=data), Data(given, Metadata({}, (order,), 0.1)), 0)
    pixels = images / 255
    mean, deviation = (
        (pixels.mean((0, 1, 2)), pixels.std((0, 1, 2)))
        if data == "procedural"
        else ([0.5071, 0.4866, 0.4409], [0.2009, 0.1984, 0.2023])
    )
    found = benchmark.shared(SCENARIO, METHODS["ER-balanced"])
    np.testing.assert_allclose(
        (images - found.mean) / found.deviation, (pixels - mean) / deviation, atol=1e-4
    )


def test_an_unknown_method_is_named(tmp_path):
    with pytest.raises(
        DataError, match=r"no method 'ICARL'; did you mean 'iCaRL-CNN'.* There are 'joint'"
    ):
        run_iirc(IIRCRun(runs=tmp_path, methods=("ICARL",)), {"demo": TINY})


@pytest.mark.parametrize(("wanted", "words"), [(0, "give 1 or more"), (3, "procedural has 2")])
def test_configurations_that_there_are_not_are_refused(tmp_path, monkeypatch, wanted, words):
    pytest.importorskip("iirc")
    monkeypatch.setattr(iirc, "load_data", lambda plan, seed: load_data(TINY, seed))
    with pytest.raises(DataError, match=f"--configurations {wanted}.*{words}"):
        run_iirc(IIRCRun(runs=tmp_path, configurations=wanted), {"demo": TINY})
