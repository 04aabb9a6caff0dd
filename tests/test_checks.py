"""Checks of arguments: one message of each form, and the values that they leave alone."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from everlight.checks import (
    NOT_NEGATIVE,
    NonNegativeInt,
    NotEmpty,
    PositiveInt,
    UnitInterval,
    check_finite,
    check_range,
    checked,
)
from tests.refusals import refused


class Camera(NamedTuple):
    noise: Annotated[float, NOT_NEGATIVE] = 0.0


@checked
def f(
    a: Float[Array, "n 3"] = None,
    b: Float[Array, "n 3"] = None,
    x: Annotated[Float[Array, "*shape"], NOT_NEGATIVE, NotEmpty] = None,
    steps: PositiveInt = 1,
    offset: NonNegativeInt | None = None,
    share: UnitInterval = 0.5,
    form: Literal["linear", "cosine"] = "linear",
    weights: Mapping[str, UnitInterval] = {},
    camera: Camera = None,
) -> None:
    """Return nothing; the arguments are checked, the defaults are not."""


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"a": np.ones(3)}, "f: a is float64[3]; give floats [n, 3]"),
        (
            {"a": jnp.ones((4, 3)), "b": np.ones((5, 3))},
            "f: b is float64[5, 3]; give floats [n, 3], with a float32[4, 3] as floats [n, 3]",
        ),
        ({"a": np.ones((4, 3), "u1")}, "f: a is uint8[4, 3]; give floats [n, 3]"),
        (
            {"a": np.ma.ones((1, 3))},
            "f: a is a masked float64[1, 3]; give floats [n, 3] without a mask",
        ),
        ({"x": np.ones((0, 9))}, "f: x is float64[0, 9]; give one or more along every axis"),
        ({"x": np.array([1.0, -2.0])}, "f: x holds -2.0; give 0 or more, but not infinite"),
        ({"x": np.array([np.inf], np.float16)}, "f: x holds inf; give 0 or more, but not infinite"),
        ({"x": np.array([1.0, np.nan])}, "f: x holds nan; give 0 or more, but not infinite"),
        ({"steps": 0}, "f: steps=0; give 1 or more"),
        ({"offset": 1.5}, "f: offset=1.5; give an integer or None"),
        ({"share": -0.1}, "f: share=-0.1; give 0 to 1"),
        ({"form": "round"}, "f: form='round'; choose 'linear' or 'cosine'"),
        (
            {"form": np.array(["linear", "cosine"])},
            "f: form is <U6[2]; choose 'linear' or 'cosine'",
        ),
        ({"form": np.array("linear")}, "f: form is <U6[]; choose 'linear' or 'cosine'"),
        ({"weights": {"A": 55.0}}, "f: weights['A']=55.0; give 0 to 1"),
        ({"camera": Camera(-1.0)}, "f: camera.noise=-1.0; give 0 or more, but not infinite"),
        ({"camera": None}, "f: camera=None; give Camera"),
    ],
)
def test_a_message_names_the_argument_its_value_and_the_requirement(wrong, message):
    refused(f"^{re.escape(message)}$", lambda: f(**wrong))


def test_traced_values_are_left_alone():
    @checked
    def gains(values: Float[Array, "n"], most: float):
        check_range("values", values, 0, 1)
        check_finite("values", values)
        return values * most

    wrong = jnp.array([2.0, jnp.nan])
    assert jax.jit(gains)(wrong, 2.0)[0] == 4
    assert jax.vmap(gains, (0, None))(wrong[None], 2.0)[0, 0] == 4
    refused(r"values holds 2\.0; give 0 to 1", lambda: gains(wrong, 2.0))
    # Values that a traced function closes over are checked.
    with pytest.raises(ValueError, match=r"values holds nan|values holds 2\.0"):
        jax.jit(lambda most: gains(wrong, most))(2.0)


def test_values_that_float32_cannot_hold_are_refused_with_their_place():
    values = np.array([[1.0, 2.0], [3.4e38, -3.5e38]])
    message = r"values holds 1 values beyond the range of float32, the first at \[1, 1\]; leave"
    refused(message, lambda: check_finite("values", values))
    check_finite("values", np.float32(values[:, :1]))


def test_numpy_arrays_and_pythons_numbers_count_like_jaxs():
    @checked
    def gains(values: Float[Array, "n"], most: Float[Array, ""], share: float, count: int):
        return np.asarray(values) * most * share * count

    expected = [2.0, 4.0]
    for most in (2, 2.0, np.float32(2), jnp.float32(2)):
        for count in (1, np.int64(1), jnp.int32(1)):
            np.testing.assert_array_equal(gains(np.array([1.0, 2.0]), most, 1, count), expected)
    for wrong in (True, 1.0, jnp.float32(1), "1", None):
        with pytest.raises(ValueError, match="count"):
            gains(np.ones(2), 2, 1, wrong)
