"""The radiometric run end to end, on few scenes and steps."""

import json

import numpy as np
import pytest

from data_pipelines.errors import DataError
from everlight.models.illuminant_training import TrainingSettings
from experiments.two_camera.model_files import load_model
from experiments.two_camera.radiometric import RadiometricRun, draw_pairs, run_radiometric
from experiments.two_camera.s20 import S20Run, run_s20

# One process, so that the run is made once.
pytestmark = pytest.mark.xdist_group("radiometric run")


def test_pairs_are_different_and_drawn_by_the_seed():
    cameras = ["A", "B", "C", "D"]
    pairs = draw_pairs(cameras, 6, seed=0)
    assert len({frozenset(pair) for pair in pairs}) == 6
    assert draw_pairs(cameras, 2, 0) == draw_pairs(cameras, 2, 0) != draw_pairs(cameras, 2, 1)


@pytest.mark.parametrize("count", [0, 7])
def test_more_pairs_than_there_are_is_refused(count):
    with pytest.raises(DataError, match=f"camera_pairs={count}; 4 cameras make 1 to 6 pairs"):
        draw_pairs(["A", "B", "C", "D"], count, seed=0)


@pytest.mark.parametrize("seeds", [0, -1])
def test_no_seed_at_all_is_refused(tmp_path, seeds):
    with pytest.raises(DataError, match="at least one training per fold"):
        run_s20(S20Run(scale="demo", seeds=seeds, runs=tmp_path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    training = {"demo": TrainingSettings(200, 64, 1e-2, validate_every=10)}
    return run_radiometric(RadiometricRun(scenes=150, runs=runs), training).parent


def test_it_leaves_what_a_run_leaves(folder):
    page = (folder / "report.html").read_text()
    assert "colour-science: 107 lights" in page
    assert "honest" in page
    assert page.count("data:image/png") == 5
    results = np.load(folder / "results.npz")
    nets = [f"Net, {count} parameters" for count in (200, 470, 1460)]
    for split in ("random", "illuminant"):
        for name in (*nets, "GW", "Gamut Edge", "Chromagenic", "Linear regression"):
            assert results[f"{split}/{name}"].shape == (2, 30)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    means = {(line["split"], line["method"]): line["mean_error"] for line in lines}
    np.testing.assert_allclose(means["random", "GW"], results["random/GW"].mean(axis=1), rtol=1e-5)


@pytest.mark.slow
def test_its_models_can_be_loaded_and_answer(folder):
    path = folder / "models" / "Nikon_5100_(NPL)+Sigma_SDMerill_(NPL)-470"
    model = load_model(path)
    assert model.cameras == ("Nikon 5100 (NPL)", "Sigma SDMerill (NPL)")
    light = model.predict(np.eye(3))
    assert light.shape == (3,)
    assert light[1] == 1
