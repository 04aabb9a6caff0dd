"""The radiometric run end to end, on few scenes and steps."""

import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from everlight_experiments.illuminant.scenes import (
    TRAINING_NOISE,
    Variant,
    prepare_data,
    render_variants,
)

from everlight.models.illuminant_training import TrainingSettings
from everlight_data.color.spectra import embedded_library
from everlight_data.errors import DataError
from everlight_experiments.illuminant.config import PRESETS, RENDERED_NETWORKS
from everlight_experiments.illuminant.model_files import load_model
from everlight_experiments.illuminant.pair_map import map_of_pairs, sensitivity_distances
from everlight_experiments.illuminant.rendered import draw_pairs
from everlight_experiments.illuminant.two_camera import TwoCameraRun, run_two_camera

# One process, so that the run is made once.
pytestmark = pytest.mark.xdist_group("radiometric run")
# Everywhere as many, so that each program is compiled once.
SCENES = 100
ONE_COLOR = Variant(colors=1).name


def test_pairs_are_different_and_drawn_by_the_seed():
    cameras = ["A", "B", "C", "D"]
    pairs = draw_pairs(cameras, 6, seed=0)
    assert len({frozenset(pair) for pair in pairs}) == 6
    assert draw_pairs(cameras, 2, 0) == draw_pairs(cameras, 2, 0) != draw_pairs(cameras, 2, 1)


@pytest.mark.parametrize("count", [0, 7])
def test_more_pairs_than_there_are_is_refused(count):
    with pytest.raises(DataError, match=f"camera_pairs={count}; 4 cameras make 1 to 6 pairs"):
        draw_pairs(["A", "B", "C", "D"], count, seed=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    training = TrainingSettings(40, 64, 1e-2, validate_every=4)
    presets = {"rendered-demo": replace(PRESETS["rendered-demo"], training=training)}
    return run_two_camera(TwoCameraRun(scenes=SCENES, runs=runs), presets).parent


def test_it_leaves_what_a_run_leaves(folder):
    page = (folder / "report.html").read_text()
    assert "colour-science: 107 illuminants" in page
    assert "held-out selection" in page
    assert "bootstrap over illuminants" in page
    assert page.count("data:image/png") == 2
    assert "Does a second camera lower the angular error? Best, in degrees" in page
    results = np.load(folder / "results.npz")
    others = ("GW", "Gamut Edge", "Chromagenic", "Linear regression on T and moments")
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


def test_its_models_can_be_loaded_and_answer(folder):
    path = folder / "models" / "Nikon_5100_(NPL)+Sigma_SDMerill_(NPL)-470"
    model = load_model(path)
    assert model.cameras == ("Nikon 5100 (NPL)", "Sigma SDMerill (NPL)")
    assert model.fit == "probable"
    colors = jnp.asarray(np.random.default_rng(0).uniform(0.05, 1, (24, 3)), jnp.float32)
    for told in model.estimate(model.inputs(colors, colors, jnp.ones(24))):
        assert told.illuminant.shape == (3,)
        assert told.illuminant[1] == 1
        assert (told.interval.low < told.illuminant[::2]).all()
        assert (told.illuminant[::2] < told.interval.high).all()


@pytest.fixture(scope="module")
def prepared():
    """One pair, exact and noisy, of few scenes."""
    library = embedded_library()
    return library, prepare_data(library, [library.camera_names], SCENES, 0)


def test_both_conditions_show_the_same_lights_and_noisy_ones_fewer_colours(prepared):
    _, data = prepared
    for split in ("random", "illuminant"):
        (exact,), (noisy,) = data["exact", split], data["noisy", split]
        np.testing.assert_array_equal(exact.scenes.illuminant, noisy.scenes.illuminant)
        counts = [len(set(row)) for row in noisy.scenes.surfaces.tolist()]
        assert min(counts) == 1 < max(counts) <= 24
        low, high = TRAINING_NOISE
        assert low <= noisy.main.read_noise.min() < noisy.main.read_noise.max() <= high


def test_what_a_net_is_given(prepared):
    """Each input against float64 from the colours that the cameras measured."""
    _, data = prepared
    (exact,) = data["exact", "random"]
    row = 7
    main, second = (np.float64(view.colors[row]) for view in (exact.main, exact.second))
    plain = np.linalg.lstsq(main, second)[0]
    shares = [view / view.sum(1, keepdims=True) for view in (main, second)]
    expected = {
        "T with exposure": plain,
        "T": plain * 3 / plain.sum(),
        "T of sum-normalised": np.linalg.lstsq(*shares)[0],
    }
    for given, transform in expected.items():
        np.testing.assert_allclose(exact.inputs[given][row], transform.ravel(), atol=2e-3)
    moments = np.asarray(exact.inputs["moments"][row])
    np.testing.assert_allclose(
        moments[2] / moments[0], main[:, 0].mean() / main[:, 2].mean(), rtol=1e-5
    )
    both = np.concatenate([exact.inputs["T"][row], moments])
    np.testing.assert_array_equal(exact.inputs["T and moments"][row], both)


def test_a_noisy_image_is_what_its_patch_means_are_of(prepared):
    _, data = prepared
    (noisy,) = data["noisy", "random"]
    images = np.asarray(noisy.main.images(slice(3, 6)))
    means = images.reshape(3, 4, 8, 6, 8, 3).mean((2, 4)).reshape(3, 24, 3)
    np.testing.assert_allclose(means, noisy.main.colors[3:6], atol=1e-5)
    assert np.abs(images[:, 0, 0] - means[:, 0]).max() > 1e-3


def test_without_a_transform_a_scene_is_counted_as_invalid_and_not_trained_on(prepared):
    """Of one colour: sum-normalised least squares has none, the most probable one exists."""
    library, data = prepared
    photographed = render_variants(library, [library.camera_names], data, "random", 0)
    (one_colour,) = photographed[ONE_COLOR]
    assert np.isfinite(one_colour.inputs["T"]).all()
    (noisy,) = data["noisy", "random"]
    lost = ~np.isfinite(noisy.inputs["T of sum-normalised"]).all(axis=1)
    spoiled = {**noisy.inputs, "T": noisy.inputs["T"].at[:10].set(jnp.nan)}
    problem = noisy._replace(inputs=spoiled).problem("T")
    assert problem.features.shape == (60, 9)
    np.testing.assert_array_equal(problem.features[:50], noisy.inputs["T"][10:60])
    np.testing.assert_array_equal(problem.features[50:], noisy.inputs["T"][10:20])
    assert lost.sum() < 60


def test_the_map_tells_each_pair_and_what_the_second_camera_adds():
    library = embedded_library()
    result = map_of_pairs(library, 400, 0, 0.01)
    for errors in (result.transform, result.moments, result.both):
        assert errors.shape == (2, 2, 2)
        assert np.isnan(errors[:, [0, 1], [0, 1]]).all()
        assert (errors[:, [0, 1], [1, 0]] > 0).all()
    assert (result.both < result.moments)[:, [0, 1], [1, 0]].all()
    assert result.invalid == 0


def test_sensitivities_that_a_matrix_makes_of_another_are_at_no_distance(rng):
    library = embedded_library()
    first = library.sensitivities[0]
    mixed = rng.uniform(size=(3, 3)) @ first
    other = rng.uniform(size=first.shape)
    library = library._replace(sensitivities=np.stack([first, mixed, other]))
    distances = sensitivity_distances(library)
    np.testing.assert_allclose(distances[:2, :2], 0, atol=1e-9)
    weights = np.linalg.lstsq(first.T, other.T)[0]
    expected = np.linalg.norm(other.T - first.T @ weights) / np.linalg.norm(other)
    np.testing.assert_allclose(distances[0, 2], expected, rtol=1e-9)
