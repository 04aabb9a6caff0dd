"""The radiometric run end to end, on few scenes and steps."""

import contextlib
import html
import io
import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.illuminant.illuminant_training import TrainingSettings
from everlight_data.color.models.pair_model_files import load_pair_model
from everlight_data.color.rendered.variants import Variant
from everlight_experiments.illuminant.config import EQUAL_SIZE, PRESETS, RENDERED_NETWORKS
from everlight_experiments.illuminant.core.camera_means import camera_mean_name
from everlight_experiments.illuminant.two_camera.command import run_two_camera
from everlight_experiments.illuminant.two_camera.options import TwoCameraOptions

# One process runs the group, so that the run is made once.
pytestmark = pytest.mark.xdist_group("radiometric run")
# All tests have this many scenes, so that each program is compiled once.
SCENES = 100
ONE_COLOR = Variant(colors=1).name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    training = TrainingSettings(40, 64, 1e-2, validate_every=4)
    preset = replace(PRESETS["rendered-demo"], training=training)
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setitem(PRESETS, "rendered-demo", preset)
        folder = run_two_camera(TwoCameraOptions(scenes=SCENES, runs=runs)).parent
    (runs / "printed.txt").write_text(printed.getvalue())
    return folder


def test_the_result_is_printed_before_the_reports_path(folder):
    lines = (folder.parent / "printed.txt").read_text().splitlines()
    place = lines.index(f"report: {folder / 'report.html'}")
    headline = lines[place - 1]
    assert headline.startswith("Does a second camera lower the angular error? Best, in degrees")
    assert headline in html.unescape((folder / "report.html").read_text())


def test_rendered_runs_leave_report_and_results(folder):
    page = (folder / "report.html").read_text()
    assert "colour-science: 107 illuminants" in page
    assert "held-out selection" in page
    assert "bootstrap over illuminants" in page
    assert page.count("data:image/png") == 2
    assert "Does a second camera lower the angular error? Best, in degrees" in page
    results = np.load(folder / "results.npz")
    others = ("GW", "Gamut Edge", "Chromagenic", "Linear regression on T and moments", "FFCC")
    others += tuple(map(camera_mean_name, ("FFCC", EQUAL_SIZE)))
    for condition, nets in RENDERED_NETWORKS.items():
        for split in ("random", "illuminant"):
            for name in (*nets, *others):
                assert results[f"{condition}/{split}/{name}"].shape == (2, SCENES // 5)
    for name in RENDERED_NETWORKS["noisy"]:
        assert results[f"variants/illuminant/{ONE_COLOR}/{name}"].shape == (2,)
        assert np.isfinite(results[f"variants/illuminant/{ONE_COLOR}/{name}"]).all()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    means = {(x["condition"], x["method"]): x["mean_error"] for x in lines}
    expected = results["exact/random/GW"].mean(axis=1)
    np.testing.assert_allclose(means["exact/random", "GW"], expected, rtol=1e-5)


def test_models_of_rendered_runs_can_be_loaded_and_estimate(folder):
    path = folder / "models" / "Nikon_5100_(NPL)+Sigma_SDMerill_(NPL)-470"
    model = load_pair_model(path)
    assert model.cameras == ("Nikon 5100 (NPL)", "Sigma SDMerill (NPL)")
    assert model.fit == "probable"
    colors = jnp.asarray(np.random.default_rng(0).uniform(0.05, 1, (24, 3)), jnp.float32)
    for predicted in model.estimate(model.inputs(colors, colors, jnp.ones(24))):
        assert predicted.illuminant.shape == (3,)
        assert predicted.illuminant[1] == 1
        assert (predicted.interval.low < predicted.illuminant[::2]).all()
        assert (predicted.illuminant[::2] < predicted.interval.high).all()
