import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data_pipelines.errors import DataError, MissingDataError
from everlight.color.transform_prior import TransformPrior
from everlight.color.transforms import fit_color_transform
from everlight.models.illuminant_interval import IntervalScale
from everlight.models.illuminant_net import IlluminantNet
from everlight.models.illuminant_novelty import calibrate
from everlight.models.illuminant_training import IlluminantModel
from experiments.common.checkpoint import Checkpoints
from experiments.two_camera.model_files import (
    LightNets,
    LoadedModel,
    load_model,
    save_model,
)


def nets_of(rng, depth, members):
    shapes = jax.eval_shape(IlluminantNet(depth).init, jax.random.key(0), jnp.zeros(9))
    params = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(0, 0.3, (members, *leaf.shape)), jnp.float32), shapes
    )
    statistics = [jnp.asarray(rng.uniform(0.5, 2, (members, 9)), jnp.float32) for _ in range(2)]
    scale = IntervalScale(jnp.array([0.02, 0.03]), jnp.float32(1.5))
    return LightNets(IlluminantModel(params, *statistics), scale)


def model_of(seed, depth=2, members=3, fit=None, second=True):
    rng = np.random.default_rng(seed)
    nets = [nets_of(rng, depth, members), nets_of(rng, depth, members) if second else None]
    prior = TransformPrior(
        jnp.asarray(rng.normal(size=9), jnp.float32),
        jnp.asarray(rng.normal(size=(9, 9)), jnp.float32),
        jnp.float32(0.05),
    )
    familiar = calibrate(prior, jnp.asarray(rng.uniform(size=50), jnp.float32))
    return LoadedModel(*nets, familiar, depth, fit, ("Main Eye", "Second Eye"), "made up")


def member_light(members, depth, index, transform):
    """One member's forward pass in float64 NumPy."""
    take = lambda leaf: np.float64(leaf[index])  # noqa: E731
    weights = members.params["params"]
    hidden = (np.ravel(transform) - take(members.mean)) / take(members.scale)
    for layer in [*(f"hidden_{i}" for i in range(depth)), "chromaticity"]:
        hidden = hidden @ take(weights[f"{layer}_kernel"]) + take(weights[f"{layer}_bias"])
        hidden = np.exp(hidden) if layer == "chromaticity" else np.maximum(hidden, 0)
    return hidden


@pytest.mark.parametrize(
    ("depth", "fit", "second"), [(2, None, True), (5, "sum", False), (5, "probable", True)]
)
def test_a_model_read_is_the_model_written(tmp_path, depth, fit, second, rng):
    model = model_of(1, depth, fit=fit, second=second)
    save_model(tmp_path / "net", model)
    read = load_model(tmp_path / "net")
    assert (read.depth, read.fit, read.cameras, read.trained_on) == (
        depth,
        fit,
        ("Main Eye", "Second Eye"),
        "made up",
    )
    for one in ("main", "second", "familiar"):
        leaves = (jax.tree.leaves(getattr(each, one)) for each in (read, model))
        for a, b in zip(*leaves, strict=True):
            np.testing.assert_array_equal(a, b)
    transform = rng.normal(size=(3, 3))
    told, written = (jax.tree.leaves(each.predict(transform)) for each in (read, model))
    assert len(told) == len(written) == (8 if second else 4)
    for a, b in zip(told, written, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_light_is_the_geometric_mean_of_the_members(rng):
    model = model_of(2)
    transform = np.float32(rng.normal(size=(3, 3)))
    for nets, told in zip((model.main, model.second), model.predict(transform), strict=True):
        lights = np.array([member_light(nets.members, 2, index, transform) for index in range(3)])
        red, blue = centre = np.prod(lights, axis=0) ** (1 / 3)
        np.testing.assert_allclose(told.illuminant, [red, 1, blue], rtol=1e-5)
        width = 1.5 * (np.log(lights).std(axis=0) + np.array([0.02, 0.03]))
        np.testing.assert_allclose(told.interval.low, centre * np.exp(-width), rtol=1e-4)
        np.testing.assert_allclose(told.interval.high, centre * np.exp(width), rtol=1e-4)


def test_a_newer_model_takes_the_place_of_an_older(tmp_path):
    for seed in (1, 2):
        save_model(tmp_path, model_of(seed, depth=seed))
    np.testing.assert_array_equal(
        load_model(tmp_path).main.members.mean, model_of(2, depth=2).main.members.mean
    )
    assert len(list(tmp_path.iterdir())) == 1


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(MissingDataError, match="train a net first"):
        load_model(tmp_path / "none")
    for step in (1, 2, 3):
        Checkpoints(tmp_path / "training").save(step, {"x": jnp.zeros(3)}, {"seed": 0})
    with pytest.raises(DataError, match=r"training holds a checkpoint, but not of a trained model"):
        load_model(tmp_path / "training")


def test_a_model_whose_arrays_are_another_nets_is_refused(tmp_path):
    facts = {"depth": 5, "size": 3, "lights": 2, "fit": None, "cameras": ["a", "b"]}
    facts["trained_on"] = ""
    model = model_of(1, depth=2)
    arrays = {"main": model.main, "second": model.second, "familiar": model.familiar}
    Checkpoints(tmp_path).save(1, arrays, facts)
    with pytest.raises(DataError, match=r"hidden_2_bias: absent there"):
        load_model(tmp_path)


@pytest.mark.parametrize("fit", [None, "scale", "sum"])
def test_least_squares_transforms_are_told_by_their_mahalanobis_distance(rng, fit):
    model = model_of(3, fit=fit)
    main = jnp.asarray(rng.uniform(size=(20, 3)), jnp.float32)
    second = main @ jnp.asarray(rng.uniform(size=(3, 3)), jnp.float32)
    fitted = model.fit_transform(main, second, jnp.ones(20))
    expected = fit_color_transform(main, second, normalize=fit).transform
    np.testing.assert_allclose(fitted.transform, expected, atol=1e-6)
    prior = model.familiar.prior
    away = np.float64(prior.root) @ (np.ravel(expected) - np.float64(prior.mean))
    np.testing.assert_allclose(fitted.distance, np.linalg.norm(away), rtol=1e-4)
