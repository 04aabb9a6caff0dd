"""On accelerators closed forms keep float32, and networks have the default precision.

`test_traced.py` has the strategies. All tests run at the highest precision (`tests/conftest.py`);
this file is about JAX's default.
"""

import re

import jax
import jax.numpy as jnp
import pytest

from everlight.base import TaskSequence
from everlight.color import apply_color_transform
from everlight.continual import regression_objective
from everlight.models import MLP
from everlight.precision import full_precision
from everlight_data.procedural.shapes import OUTLINES, oklab_to_linear, polygon_distance
from tests.contracts.example_arguments import (
    COMPILING,
    OUTSIDE_OF_JIT,
    arguments,
    functions,
    public,
)
from tests.contracts.example_values import RECORDS
from tests.contracts.matrix_products import rounded_products

TRACED = [
    name for name in functions() if name not in COMPILING and not name.startswith(OUTSIDE_OF_JIT)
]
ONLY_BACKWARD = ("capture_aware", "calibrated_camera", "calibrated_estimate", "cross_camera")
"""Parts of the names of what has a network with `layers.convolution`, without a forward mode."""


@pytest.fixture(autouse=True)
def _default_precision():
    with jax.default_matmul_precision(None):
        yield


def of_arrays(name):
    """Return a public function of its float arrays, and an example of these; the rest is fixed."""
    inputs = arguments(name)
    arrays = {
        key: value
        for key, value in inputs.items()
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.floating)
    }

    def call(arrays):
        result = public(name)(**{**inputs, **arrays})
        return [leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, jax.Array)]

    return call, arrays


@pytest.mark.parametrize("name", TRACED)
def test_public_functions_have_full_precision_outside_of_networks(name):
    call, arrays = of_arrays(name)
    assert rounded_products(jax.make_jaxpr(call)(arrays).jaxpr) == set()


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in TRACED
        if name.split(".")[0] in ("color", "metrics") and not any(e in name for e in ONLY_BACKWARD)
    ],
)
def test_derivatives_of_compiled_functions_have_it_too(name):
    """Rules of derivatives are traced after the function that is compiled."""
    call, arrays = of_arrays(name)
    derivative = jax.make_jaxpr(lambda values: jax.jvp(jax.jit(call), (values,), (values,)))
    assert rounded_products(derivative(arrays).jaxpr) == set()


def test_an_error_averaged_over_tasks_has_full_precision():
    sequence = RECORDS[TaskSequence]()
    evaluate = regression_objective(lambda labels: labels[:, None]).evaluate
    errors, seen = jnp.ones(sequence.test_member.shape[1]), jnp.ones(4, bool)
    program = jax.make_jaxpr(lambda errors: evaluate(sequence, errors, seen))(errors)
    assert "dot_general" in str(program)
    assert rounded_products(program.jaxpr) == set()


def test_procedural_images_have_full_precision():
    outline = jnp.asarray(OUTLINES.vertices[0])
    distance = jax.make_jaxpr(polygon_distance)(jnp.ones((4, 4)), jnp.ones((4, 4)), outline)
    colors = jax.make_jaxpr(oklab_to_linear)(jnp.ones((5, 3)))
    for program in (distance, colors):
        assert "dot_general" in str(program)
        assert rounded_products(program.jaxpr) == set()


def many_products(vectors, images, kernel):
    """Return a number from products of every form: vmapped vectors, `@`, einsum, a convolution."""
    inner = jax.vmap(jnp.vdot)(vectors, vectors)
    traces = jnp.einsum("ij,kj->ik", vectors, vectors) + vectors @ vectors.T
    mapped = jax.lax.conv(images, kernel, (1, 1), "SAME")
    return jnp.sum(inner) + jnp.sum(traces) + jnp.sum(mapped**2)


EVERY_FORM = {
    f"{kind} in test_matrix_precision.many_products"
    for kind in ("dot_general", "conv_general_dilated")
}


def test_the_decorator_reaches_products_of_every_form_and_their_gradients():
    inputs = jnp.ones((3, 3)), jnp.ones((1, 2, 4, 4)), jnp.ones((2, 2, 3, 3))
    for function, places in ((many_products, EVERY_FORM), (full_precision(many_products), set())):
        gradient = jax.make_jaxpr(jax.grad(jax.jit(function), (0, 1, 2)))(*inputs)
        assert rounded_products(gradient.jaxpr) == places


def products_for(platform, function, *arguments):
    """Return the lines of the matrix products of the program that is exported for a platform."""
    text = jax.export.export(jax.jit(function), platforms=[platform])(*arguments).mlir_module()
    return re.findall(r".* = stablehlo\.dot_general .*", text)


def squared_colors(pixels, transform):
    return jnp.sum(apply_color_transform(pixels, transform) ** 2)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_exported_programs_state_the_precision(platform):
    """A network's products have no precision of their own, but under JAX's option."""
    net, inputs = MLP(4, (5,)), jnp.ones((2, 3))
    params = net.init(jax.random.key(0), inputs, False)

    def loss(params):
        return jnp.sum(net.apply(params, inputs, False).logits ** 2)

    # Two products are forward, two by the kernels and one by the hidden units.
    passes = products_for(platform, jax.grad(loss), params)
    assert len(passes) == 5
    assert not any("precision" in line for line in passes)
    with jax.default_matmul_precision("highest"):
        passes = products_for(platform, jax.grad(loss), params)
    assert len(passes) == 5
    colors = products_for(platform, jax.grad(squared_colors, (0, 1)), inputs, jnp.eye(3))
    assert len(colors) == 3
    for line in passes + colors:
        assert "precision = [HIGHEST, HIGHEST]" in line
