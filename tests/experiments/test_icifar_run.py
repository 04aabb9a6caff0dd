"""The run of the continual-learning criteria, on a tiny plan of the procedural world."""

from dataclasses import replace

import numpy as np
import pytest
from everlight_experiments.cl_metrics.icifar import ICifarRun, run_icifar
from everlight_experiments.cl_metrics.record import Plan

from everlight.continual.engine.protocol import Protocol
from everlight_data.errors import DataError

TINY = Plan(
    data="procedural",
    tasks=2,
    classes=4,
    side=8,
    channels=(2, 4),
    hidden=8,
    protocol=Protocol(epochs=2, batch_size=16),
    seeds=2,
    chosen="not chosen",
    methods=("Naive", "EWC"),
    hyperparameters_tried=2,
    per_class=(20, 10),
)


def test_it_reports_both_scenarios_and_continues_from_finished_parts(tmp_path):
    settings = ICifarRun(runs=tmp_path)
    report = run_icifar(settings, {"demo": TINY})
    page = report.read_text()
    for wanted in (
        "Task-incremental",
        "Class-incremental",
        "CL score",
        "minus Naive",
        "procedural",
    ):
        assert wanted in page
    with np.load(report.parent / "results.npz") as results:
        first = dict(results)
    matrices = first["task-incremental/EWC/matrices"]
    assert matrices.shape == (2, 2, 2)
    assert np.all(np.isfinite(matrices))
    np.testing.assert_array_equal(first["class-incremental/Naive/steps"], [[6, 12]] * 2)
    # The epoch and the hyperparameter are chosen, and so said.
    assert "accuracy over all times (A)" in page
    units = sorted((report.parent / "units").iterdir())
    assert not list((report.parent / "checkpoints").iterdir()), "finished parts leave no nets"
    units[0].unlink()
    again = run_icifar(settings, {"demo": TINY})
    with np.load(again.parent / "results.npz") as results:
        for name, array in results.items():
            if not name.endswith("seconds"):
                np.testing.assert_array_equal(array, first[name])
    with pytest.raises(DataError, match="hidden: 8 there, 9 now"):
        run_icifar(settings, {"demo": replace(TINY, hidden=9)})
