"""Networks for pairs of cameras never seen, end to end on made-up cameras."""

from dataclasses import replace

import numpy as np
import pytest

from everlight.models.illuminant_training import TrainingSettings
from everlight_data.color import camera_descriptions
from everlight_data.color.camera_descriptions import see_scenes
from everlight_experiments.illuminant import unseen
from everlight_experiments.illuminant.config import OWN_NETWORKS, PRESETS, UNSEEN_NETWORKS
from everlight_experiments.illuminant.two_camera import TwoCameraRun, run_two_camera
from tests.data_pipelines.color.test_camera_descriptions import made_up


@pytest.mark.slow
def test_a_run_on_made_up_cameras(tmp_path, monkeypatch):
    library = made_up()
    monkeypatch.setattr(camera_descriptions, "SAMPLES", 3_000)
    monkeypatch.setattr(camera_descriptions, "VALIDATION_SAMPLES", 300)
    monkeypatch.setattr(unseen, "measured_library", lambda: library)
    settings = TwoCameraRun("unseen-small", camera_pairs=1, runs=tmp_path)
    training = TrainingSettings(600, 64, 1e-2, validate_every=20)
    plan = replace(PRESETS["unseen-small"], training=training, scenes=300)
    report = run_two_camera(settings, {"unseen-small": plan})
    results = np.load(report.parent / "results.npz")
    names = [*UNSEEN_NETWORKS, *OWN_NETWORKS, unseen.INTERPOLATED, "GW", "SoG"]
    for split in ("random", "illuminant"):
        for name in names:
            assert results[f"{split}/{name}"].shape == (2, 1, 60), name
    mean = {name: results[f"random/{name}"].mean() for name in names}
    # Always the same light would be some ten degrees off.
    assert mean["Net on T, the very pair"] < 5
    assert mean["Net on T and known illuminants, other pairs"] < 7
    page = report.read_text()
    assert (
        "Reported method, in degrees with 95% interval: Net on T and known illuminants, other"
        in page
    )
    assert "Baseline, Net on T, the very pair: " in page
    cameras = {name for pair in results["camera_pairs"] for name in pair}
    assert len(cameras) == 2
    world = see_scenes(library, 300, "random", 0)
    main = library.camera_names.index(results["camera_pairs"][1, 0])
    gray = np.float64(world.colors[main, world.scenes.test]).mean(axis=1)
    light = np.float64(world.illuminants[main, world.scenes.test])
    cosine = (gray * light).sum(1) / np.linalg.norm(gray, axis=1) / np.linalg.norm(light, axis=1)
    expected = np.degrees(np.arccos(cosine))
    np.testing.assert_allclose(results["random/GW"][1, 0], expected, atol=0.1)
