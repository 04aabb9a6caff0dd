"""Stored models of camera pairs: what is read, and what is refused."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.feature_distribution import FeatureDistribution
from everlight.color.learned.linear_regression import LinearRegression
from everlight.color.transform_prior import TransformPrior, fit_probable_transform
from everlight.color.transforms import fit_color_transform
from everlight.illuminant.illuminant_interval import IntervalScale
from everlight.illuminant.illuminant_net import IlluminantNet
from everlight.illuminant.illuminant_training import IlluminantModel
from everlight.illuminant.out_of_distribution import calibrate_distances
from everlight.illuminant.pair_model import PairModel, ViewModel
from everlight_data.color.models.pair_model_files import load_pair_model, save_pair_model
from everlight_data.errors import DataError, MissingDataError
from everlight_data.runs.checkpoints import Checkpoints
from everlight_data.runs.descriptions import json_checksum


def drawn(rng, *shape):
    return jnp.asarray(rng.normal(0, 0.3, shape), jnp.float32)


def illuminant_of(rng, words="T", depth=2, members=3):
    width = 18 if words == "T and moments" else 9
    if depth is None:
        current = LinearRegression(
            drawn(rng, members, width, 2) / 10, 1 + drawn(rng, members, 2) / 3
        )
    else:
        shapes = jax.eval_shape(IlluminantNet(depth).init, jax.random.key(0), jnp.zeros(width))
        params = jax.tree.map(lambda leaf: drawn(rng, members, *leaf.shape), shapes)
        current = IlluminantModel(params, *(1 + drawn(rng, members, width) / 3 for _ in range(2)))
    scale = IntervalScale(jnp.array([0.02, 0.03]), jnp.float32(1.5))
    known = FeatureDistribution(drawn(rng, width), drawn(rng, width, width))
    familiar = calibrate_distances(known, jnp.asarray(rng.uniform(size=50), jnp.float32))
    return ViewModel(words, depth, current, scale, familiar, jnp.float32(12.5))


def model_of(seed, depth=2, fit=None, second=True, words="T"):
    rng = np.random.default_rng(seed)
    illuminants = (
        illuminant_of(rng, words, depth),
        illuminant_of(rng, "moments", None) if second else None,
    )
    prior = TransformPrior(drawn(rng, 9), drawn(rng, 9, 9), jnp.float32(0.05))
    prior = prior if fit == "probable" else None
    return PairModel(*illuminants, prior, fit, ("Main Eye", "Second Eye"), "made up")


def pair_of(rng):
    main = jnp.asarray(rng.uniform(0.05, 1, (20, 3)), jnp.float32)
    return main, main @ jnp.asarray(rng.uniform(size=(3, 3)), jnp.float32)


def member_illuminant(members, depth, index, features):
    """Return one member's estimate in float64 NumPy."""
    take = lambda leaf: np.float64(leaf[index])  # noqa: E731
    if depth is None:
        return features @ take(members.slopes) + take(members.intercept)
    weights = members.params["params"]
    hidden = (features - take(members.mean)) / take(members.scale)
    for layer in [*(f"hidden_{i}" for i in range(depth)), "chromaticity"]:
        hidden = hidden @ take(weights[f"{layer}_kernel"]) + take(weights[f"{layer}_bias"])
        hidden = np.exp(hidden) if layer == "chromaticity" else np.maximum(hidden, 0)
    return hidden


@pytest.mark.parametrize(
    ("depth", "fit", "second", "words"),
    [
        (2, None, True, "T"),
        (5, "sum", False, "T and moments"),
        (None, "scale", True, "T and moments"),
        (5, "probable", True, "T"),
    ],
)
def test_a_model_read_is_the_model_written(tmp_path, depth, fit, second, words, rng):
    model = model_of(1, depth, fit, second, words)
    save_pair_model(tmp_path / "net", model)
    read = load_pair_model(tmp_path / "net")
    assert (read.fit, read.cameras, read.trained_on) == (fit, ("Main Eye", "Second Eye"), "made up")
    assert (read.main.inputs, read.main.depth) == (words, depth)
    assert read.second is None or (read.second.inputs, read.second.depth) == ("moments", None)
    inputs = model.inputs(*pair_of(rng), jnp.ones(20))
    predicted, written = (jax.tree.leaves(item.estimate(inputs)) for item in (read, model))
    assert len(predicted) == len(written) == (14 if second else 7)
    for a, b in zip(predicted, written, strict=True):
        np.testing.assert_array_equal(a, b)


def moments_in_numpy(colors):
    """Return means, and roots of mean products, in the order of their exponents."""
    products = {tuple(np.eye(3, dtype=int)[i]): colors[:, i].mean() for i in range(3)} | {
        tuple(np.eye(3, dtype=int)[i] + np.eye(3, dtype=int)[j]): np.sqrt(
            (colors[:, i] * colors[:, j]).mean()
        )
        for i in range(3)
        for j in range(i, 3)
    }
    ordered = [products[p] for p in sorted(products, key=lambda p: (sum(p), p))]
    return np.array(ordered) / np.mean(ordered)


@pytest.mark.parametrize("words", ["T", "moments", "T and moments"])
@pytest.mark.parametrize("depth", [None, 2])
def test_each_illuminant_is_estimated_from_its_own_inputs(rng, words, depth):
    """The members' geometric mean is the estimate; the second image's moments give the other."""
    model = model_of(2, depth, "scale", True, words)
    main, second = pair_of(rng)
    estimates = model.estimate(model.inputs(main, second, jnp.ones(20)))
    transform = np.linalg.lstsq(np.float64(main), np.float64(second))[0]
    inputs = {"T": np.ravel(transform / transform.sum(axis=1).mean())}
    inputs["moments"] = moments_in_numpy(np.float64(main))
    inputs["T and moments"] = np.concatenate([inputs["T"], inputs["moments"]])
    cases = [(model.main, estimates.main, inputs[words])]
    cases.append((model.second, estimates.second, moments_in_numpy(np.float64(second))))
    for part, predicted, features in cases:
        answers = np.array(
            [member_illuminant(part.members, part.depth, i, features) for i in range(3)]
        )
        red, blue = center = np.prod(answers, axis=0) ** (1 / 3)
        np.testing.assert_allclose(predicted.illuminant, [red, 1, blue], rtol=2e-4)
        width = 1.5 * (np.log(answers).std(axis=0) + np.array([0.02, 0.03]))
        np.testing.assert_allclose(predicted.interval.low, center * np.exp(-width), rtol=1e-3)
        np.testing.assert_allclose(predicted.interval.high, center * np.exp(width), rtol=1e-3)
        known = part.distances.distribution
        away = np.float64(known.root) @ (features - np.float64(known.mean))
        unit = np.float64(part.distances.distances[99])
        np.testing.assert_allclose(predicted.score.distance, np.linalg.norm(away) / unit, rtol=1e-3)


@pytest.mark.parametrize(("uninformative", "expected"), [(0.1, True), (89.0, False)])
def test_an_interval_as_wide_as_that_of_the_training_illuminants_is_uninformative(
    rng, uninformative, expected
):
    model = model_of(4)
    model = dataclasses.replace(
        model, main=dataclasses.replace(model.main, uninformative=jnp.float32(uninformative))
    )
    inputs = model.inputs(*pair_of(rng), jnp.ones(20))
    assert model.estimate(inputs).main.uninformative is expected


def test_a_newer_model_takes_the_place_of_an_older(tmp_path):
    for seed in (1, 2):
        save_pair_model(tmp_path, model_of(seed, depth=seed))
    np.testing.assert_array_equal(
        load_pair_model(tmp_path).main.members.mean, model_of(2, depth=2).main.members.mean
    )
    assert len(list(tmp_path.iterdir())) == 1


def test_files_of_no_model_are_refused(tmp_path):
    with pytest.raises(MissingDataError, match="train a net first"):
        load_pair_model(tmp_path / "none")
    for step in (1, 2, 3):
        Checkpoints(tmp_path / "training").save(step, {"x": jnp.zeros(3)}, {"seed": 0})
    with pytest.raises(DataError, match=r"training holds a checkpoint, but not of a trained model"):
        load_pair_model(tmp_path / "training")


@pytest.mark.parametrize("name", ["2019/wedding.jpg", "readme.txt", "x.orbax-checkpoint-tmp-1/a"])
def test_a_model_is_not_written_where_other_files_lie(tmp_path, name):
    """Folders named by numbers would be taken for models and deleted."""
    other = tmp_path / name
    other.parent.mkdir(exist_ok=True)
    other.write_text("kept")
    with pytest.raises(DataError, match=r"which is not a model; give a new or empty folder"):
        save_pair_model(tmp_path, model_of(1))
    assert other.read_text() == "kept"


def test_a_model_is_not_written_over_a_runs_checkpoints(tmp_path):
    Checkpoints(tmp_path).save(1, {"x": jnp.zeros(3)}, {"seed": 0})
    with pytest.raises(DataError, match="not of a trained model"):
        save_pair_model(tmp_path, model_of(1))
    assert Checkpoints(tmp_path, read_only=True).newest() == 1


def changed(field, value):
    return lambda record: record["facts"].update({field: value})


@pytest.mark.parametrize(
    "change",
    [
        changed("cameras", 7),
        changed("cameras", [["Main Eye"], "Second Eye"]),
        changed("fit", ["sum"]),
        changed("main", {"inputs": "T", "depth": 2.5, "size": 3}),
        changed("main", {"inputs": "T", "depth": 2, "size": 10**12}),
        changed("second", 5),
        changed("version", 1),
        changed("version", True),
        lambda record: record.update(facts=[1, 2]),
        lambda record: record.pop("step"),
    ],
)
def test_a_description_of_another_form_is_refused(tmp_path, change):
    """The checksum guards against damage and not against edits, which adapt it."""
    save_pair_model(tmp_path, model_of(1))
    path = tmp_path / "1" / "facts" / "metadata"
    stored = json.loads(path.read_text())
    change(stored["record"])
    stored["crc32"] = json_checksum(stored["record"])
    path.write_text(json.dumps(stored))
    with pytest.raises(DataError, match=f"{tmp_path}.*(is damaged|holds a model of version)"):
        load_pair_model(tmp_path)


def test_a_model_of_inputs_that_are_not_computed_is_refused(tmp_path):
    unknown = dataclasses.replace(model_of(1).main, inputs="T and the phone's white balance")
    save_pair_model(tmp_path / "net", dataclasses.replace(model_of(1), main=unknown))
    message = r"net needs the input T and the phone's white balance, which estimate does not"
    with pytest.raises(DataError, match=message):
        load_pair_model(tmp_path / "net")


@pytest.mark.parametrize("fit", [None, "mean", "scale", "sum"])
def test_transforms_are_fitted_as_the_model_states(rng, fit):
    main, second = pair_of(rng)
    expected = fit_color_transform(main, second, normalize=fit).transform
    seen = model_of(3, fit=fit).inputs(main, second, jnp.ones(20))
    np.testing.assert_allclose(seen.transform, expected, atol=1e-6)


def test_a_probable_transforms_distance_counts_its_colors_too(rng):
    model = model_of(3, fit="probable")
    main, second = pair_of(rng)
    inputs = model.inputs(main, second, jnp.ones(20))
    fitted = fit_probable_transform(main, second, model.prior)
    unit = model.main.distances.distances[99]
    predicted = model.estimate(inputs).main.score.distance
    np.testing.assert_allclose(predicted, fitted.distance / unit, rtol=1e-5)


@pytest.mark.parametrize(
    ("words", "second", "needed"),
    [("T", False, True), ("T and moments", True, True), ("moments", True, False)],
)
def test_a_model_on_moments_alone_needs_no_transform(rng, words, second, needed):
    model = model_of(1, second=second, words=words)
    assert model.needs_transform is needed
    gray = jnp.full((20, 3), 0.5)
    inputs = model.inputs(gray, gray, jnp.ones(20))
    assert not inputs.valid
    assert np.isfinite(model.estimate(inputs).main.illuminant).all() or needed
