"""Convolutions of any framework are replaced by fast ones of the same values and gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.models.layers.traced_convolutions import with_fast_convolutions

LAYOUTS = {"NHWC": ("NHWC", "HWIO", "NHWC"), "NCHW": ("NCHW", "OIHW", "NCHW")}
CASES = {
    "same": {"window_strides": (1, 1), "padding": "SAME"},
    "strided": {"window_strides": (2, 2), "padding": "SAME"},
    "unpadded": {"window_strides": (1, 1), "padding": "VALID"},
    "unequal margins": {"window_strides": (1, 1), "padding": ((2, 0), (1, 3))},
    "groups": {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 2},
    "depthwise": {"window_strides": (2, 2), "padding": "SAME", "feature_group_count": 4},
}
LEFT = {
    "dilated": {"window_strides": (1, 1), "padding": "SAME", "rhs_dilation": (2, 2)},
    "transposed": {"window_strides": (1, 1), "padding": ((1, 1), (1, 1)), "lhs_dilation": (2, 2)},
    "unequal strides": {"window_strides": (1, 2), "padding": "SAME"},
    "cropped": {"window_strides": (1, 1), "padding": ((-1, 0), (0, 0))},
}


def convolution(layout, options):
    """Return a function of images `[3, 9, 8, 4]` and a kernel in a layout, and its arguments."""
    images, kernel, _ = LAYOUTS[layout]
    groups = options.get("feature_group_count", 1)
    rng = np.random.default_rng(0)
    sizes = {"N": 3, "H": 9, "W": 8, "C": 4}
    kernel_sizes = {"H": 3, "W": 3, "I": 4 // groups, "O": 4}
    arguments = (
        rng.normal(size=[sizes[axis] for axis in images]).astype(np.float32),
        rng.normal(size=[kernel_sizes[axis] for axis in kernel]).astype(np.float32),
    )
    function = partial(jax.lax.conv_general_dilated, dimension_numbers=LAYOUTS[layout], **options)
    return function, arguments


def convolutions_of(function, arguments):
    """Return the number of XLA's convolutions in a function's jaxpr, not in those inside."""
    equations = jax.make_jaxpr(function)(*arguments).jaxpr.eqns
    return sum(equation.primitive.name == "conv_general_dilated" for equation in equations)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_xla(layout, case):
    function, arguments = convolution(layout, CASES[case])
    fast = with_fast_convolutions(function)
    assert (convolutions_of(function, arguments), convolutions_of(fast, arguments)) == (1, 0)

    def values(evaluated):
        def loss(*arguments):
            outputs = evaluated(*arguments)
            return (outputs * jnp.cos(jnp.arange(outputs.size).reshape(outputs.shape))).sum()

        return evaluated(*arguments), jax.grad(loss, (0, 1))(*arguments)

    expected, actual = jax.jit(lambda: (values(function), values(fast)))()
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), actual, expected)


@pytest.mark.parametrize("case", LEFT)
def test_others_stay_as_they_are(case):
    function, arguments = convolution("NHWC", LEFT[case])
    fast = with_fast_convolutions(function)
    assert convolutions_of(fast, arguments) == 1
    np.testing.assert_array_equal(fast(*arguments), function(*arguments))


def test_replaced_within_compiled_and_recomputed_functions_beside_other_operations():
    function, (images, kernel) = convolution("NHWC", CASES["same"])

    def net(params, images, key):
        hidden = jax.jit(lambda images: jax.nn.relu(function(images, params["first"])))(images)
        hidden = jax.checkpoint(lambda hidden: function(hidden, params["second"]) ** 2)(hidden)
        noise = jax.random.normal(key, hidden.shape)
        return {"logits": hidden.mean((1, 2)), "hidden": (hidden + noise, None)}

    arguments = {"first": kernel, "second": kernel[::-1]}, images, jax.random.key(1)
    fast = with_fast_convolutions(net)
    # In remat and nowhere else: `relu` and the random numbers stay calls of functions.
    text = str(jax.make_jaxpr(fast)(*arguments))
    assert "conv_general_dilated" in str(jax.make_jaxpr(net)(*arguments))
    assert text.count("custom_vjp_call") == 2
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
        *jax.jit(lambda: (fast(*arguments), net(*arguments)))(),
    )


def test_a_function_without_convolutions_is_called_itself():
    calls = []

    def function(values):
        calls.append(1)
        return values + 1

    fast = with_fast_convolutions(function)
    assert [float(fast(1.0)), float(fast(2.0))] == [2.0, 3.0]
    # Once to look, and once for each value.
    assert len(calls) == 3
