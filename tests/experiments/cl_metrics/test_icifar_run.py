"""The paper of the continual-learning criteria, on a tiny configuration of the procedural world."""

from dataclasses import replace

import numpy as np
import pytest

from everlight.continual import Protocol
from everlight.continual.methods.method import INCOMPATIBILITIES
from everlight_data.errors import DataError
from everlight_experiments.cl_metrics.config import DEMO, PaperConfig
from everlight_experiments.cl_metrics.paper import PAPER
from everlight_experiments.cli import options_of
from tests.experiments.command_runs import arrays_of

TINY = PaperConfig(
    replace(
        DEMO,
        classes=4,
        per_class=(20, 10),
        side=8,
        tasks=(2,),
        net="small-cnn:2,4,8",
        protocol=Protocol(epochs=2, batch_size=16),
    ),
    methods=("Naive", "EWC"),
    seeds=2,
)


def test_the_report_has_both_settings(tmp_path):
    options = replace(options_of("paper cl-metrics", ["--runs", str(tmp_path)]), config=TINY)
    report = PAPER.run(options)
    page = report.read_text()
    expected = "Task-incremental", "Class-incremental", "CL score", "minus Naive", "procedural"
    assert all(text in page for text in expected)
    first = arrays_of(report)
    matrices = first["task-incremental/EWC/accuracy by task"]
    assert matrices.shape == (2, 2, 2)
    assert np.all(np.isfinite(matrices))
    np.testing.assert_array_equal(first["class-incremental/Naive/steps"], [[6, 12]] * 2)
    # The page states that the epoch and the hyper-parameter are chosen.
    assert "accuracy over all times (A)" in page
    assert not list((report.parent / "checkpoints").iterdir()), "finished parts leave no nets"
    changed = replace(TINY, benchmark=replace(TINY.benchmark, learning_rate=0.01))
    differs = r"\(config\.benchmark\.learning_rate: stored 0\.003, now 0\.01\)"
    with pytest.raises(DataError, match=differs):
        PAPER.run(replace(options, config=changed))


def test_without_boundaries_methods_that_act_at_them_are_left_out_with_the_reason(tmp_path):
    protocol = replace(TINY.benchmark.protocol, epochs=1, select="last", boundaries=False)
    config = replace(TINY, benchmark=replace(TINY.benchmark, protocol=protocol), seeds=1)
    options = options_of("paper cl-metrics", ["--runs", str(tmp_path)])
    report = PAPER.run(replace(options, config=config))
    methods = {name.split("/")[1] for name in arrays_of(report) if "incremental/" in name}
    assert methods == {"Naive"}
    page, reason = report.read_text(), INCOMPATIBILITIES["task boundaries"]
    for setting in ("task-incremental", "class-incremental"):
        assert f"<td>EWC, {setting}</td><td>{reason}</td>" in page
    with pytest.raises(DataError, match=f"^no method applies here: EWC {reason}$"):
        PAPER.run(replace(options, config=replace(config, methods=("EWC",)), tag="ewc"))
