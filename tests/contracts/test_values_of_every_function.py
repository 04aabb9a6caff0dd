"""Values that cannot be meant, for every array that every public function takes.

NaN, infinity, negative and too large numbers, no rows, and masked arrays are refused by an error
that names the argument, or the docstring says what becomes of them. What is refused is refused
before anything is compiled: functions are traced, and their arguments are closed over.
"""

import inspect
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.contracts.annotations import arrays_of
from tests.contracts.example_arguments import (
    ANYTHING,
    COMPILING,
    OUTSIDE_OF_JIT,
    arguments,
    functions,
    public,
)

DOCUMENTED = {
    "NaN": re.compile(r"\bNaN\b|not finite|positive and finite"),
    "infinity": re.compile(r"\bNaN\b|not finite|positive and finite|infinit"),
    "no rows": re.compile(r"\bNaN\b"),
}
ANY_NUMBER = {
    *("pixels", "transform", "homography", "points", "image", "transforms", "first", "second"),
    *("xyz_to_camera", "charts", "colors", "linear", "features", "source", "target", "main"),
    *("source_points", "target_points", "chromaticity", "camera_matrix", "thumbnail", "moments"),
    *("reillumination", "gain", "maps", "matrix", "estimate", "estimates", "chromaticities"),
    *("criteria", "truth", "values", "embeddings", "confidence", "scores", "kernel", "losses"),
    *("vectors", "degrees", "sensitivity", "activations", "binary_digits.numbers"),
    # These are counts of any size, and numbers of groups and words that stand nowhere else.
    *("class_group", "counts", "train_counts", "test_counts", "steps", "pieces"),
    *("cameras", "rank_facts.fact_task", "matrices"),
    # An illuminant's own functions take estimates too, which may have a negative channel.
    *(
        "illuminant_to_chromaticity.illuminant",
        "unit_illuminant.illuminant",
        "von_kries.illuminants",
    ),
    # Negative memories and operations make a criterion NaN, as its docstring says.
    *("operations", "pass_operations", "model_memory", "sample_memory", "lifetime_memory"),
}
"""Arguments for which a negative number, or a count beyond any range, is as good as another."""
STAYS_NAN = {
    *("color.apply_color_transform", "color.encode_srgb", "color.feature_distance"),
    *("color.chromaticity_to_illuminant", "color.full_scale_balance", "color.white_balance"),
    *("color.render", "color.render_linear", "color.normalize_sum", "color.patch_means"),
    *("color.patch_thumbnail", "color.reilluminate_moments", "color.reilluminate_transform"),
    *("color.fit_linear_regression", "color.linear_estimate"),
    *("metrics.distances_to_facts", "metrics.student_interval", "metrics.accuracy"),
    *("metrics.accuracy_over_time", "metrics.anytime_average_accuracy", "metrics.intransigence"),
    *("metrics.average_incremental_accuracy", "metrics.final_average_accuracy"),
    *("metrics.learning_curve_area", "metrics.windowed_forgetting", "metrics.worst_case_accuracy"),
    *("metrics.maximum_softmax_probability", "illuminant.chromaticity_loss", "models.cosines"),
    *("illuminant.ensemble_chromaticity", "illuminant.ensemble_disagreement"),
    *("illuminant.predict_batch", "illuminant.predict_chromaticity"),
    *("illuminant.predict_illuminant", "models.crop_and_flip"),
    *("models.local_similarities", "models.unit_vectors"),
}
"""Functions whose result has a NaN if all numbers of an argument are NaN."""


def arrays(name: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arguments that are arrays of numbers, by name."""
    inputs = arguments(name)
    for argument, parameter in inspect.signature(public(name)).parameters.items():
        value = inputs[argument]
        if argument in ANYTHING or not arrays_of(parameter.annotation) or not is_array(value):
            continue
        if not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            yield argument, np.asarray(value)


def is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def wrong_values(value: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    if value.dtype.kind == "f":
        yield "NaN", np.full_like(value, np.nan)
        yield "infinity", np.full_like(value, np.inf)
        yield "negative", np.full_like(value, -0.5)
    elif value.dtype.kind == "i":
        yield "negative", np.full_like(value, -7)
        yield "too large", np.full_like(value, 10**6)
    if value.ndim:
        yield "no rows", value[:0]
    yield "masked", np.ma.masked_array(value, np.zeros(value.shape, bool))


def results(name: str, inputs: dict[str, Any]) -> list[Any]:
    """Return the arrays of the result."""
    result = public(name)(**inputs)
    return [leaf for leaf in jax.tree.leaves(result) if is_array(leaf)]


def traced(name: str, inputs: dict[str, Any]) -> Any:
    """Return the result's shapes, or the result of a function that looks at values anyway."""
    call = partial(results, name, inputs)
    return call() if name.startswith(OUTSIDE_OF_JIT) else jax.eval_shape(call)


def is_documented(name: str, argument: str, what: str, result: list[Any]) -> bool:
    """Return whether the docstring or a table states the effect of values that are not refused."""
    if what in ("negative", "too large"):
        first = f"{name.split('.')[1]}.{argument}"
        return bool({argument, first} & ANY_NUMBER)
    if what == "no rows" and any(0 in leaf.shape for leaf in result):
        return True
    if what in ("NaN", "infinity") and name in STAYS_NAN:
        return True
    return what in DOCUMENTED and bool(DOCUMENTED[what].search(inspect.getdoc(public(name)) or ""))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [item for item in functions() if item not in COMPILING])
def test_impossible_values_are_refused_or_documented(name):
    inputs = arguments(name)
    for argument, value in arrays(name):
        for what, wrong in wrong_values(value):
            try:
                result = traced(name, {**inputs, argument: wrong})
            except (ValueError, TypeError) as error:
                message = str(error)
                assert re.search(rf"\b{argument}\b", message), f"{what} of {argument}: {message}"
                assert "\n" not in message, message
            else:
                assert is_documented(name, argument, what, result), (
                    f"{name} takes {what} of {argument}"
                )


@pytest.mark.parametrize("name", [item for item in functions() if item not in COMPILING])
def test_arrays_of_numpy_and_of_jax_are_accepted_alike(name):
    """JAX arrays replace NumPy's of the annotation, and the other way around."""
    hints = inspect.signature(public(name)).parameters
    others = {}
    for argument, value in arrays(name):
        on_host = arrays_of(hints[argument].annotation)[0].array_type is np.ndarray
        others[argument] = jnp.asarray(value) if on_host else value
    options, call = {**arguments(name), **others}, partial(traced, name)
    if any(isinstance(value, jax.Array) for value in others.values()):
        call = partial(results, name)
    if others:
        for one, other in zip(call(options), call(arguments(name)), strict=True):
            assert one.shape == other.shape
            if not isinstance(one, jax.ShapeDtypeStruct):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(STAYS_NAN))
def test_a_nan_stays_one(name):
    inputs, tried = arguments(name), 0
    for argument, value in arrays(name):
        if value.dtype.kind == "f":
            wrong = np.full_like(value, np.nan)
            try:
                result = public(name)(**{**inputs, argument: wrong})
            except ValueError:
                continue
            tried += 1
            assert all(np.isnan(leaf).any() for leaf in jax.tree.leaves(result)[:1]), argument
    assert tried
