"""All networks under `vmap(grad)`, exported for a GPU: no operation is slow for several runs."""

import re

import jax
import jax.numpy as jnp
import pytest

from everlight.color.learned.sensor_independent import HistogramNet
from everlight.models import efficientnet
from tests.contracts.networks import NAMED, OTHERS
from tests.models.exported_programs import convolutions

RUNS = 4
SLOW = "while", "scatter", "select_and_scatter", "gather", "sort"


def exported(loss, variables, *inputs):
    """Export the gradients of several runs; `variables` and inputs are those of one run."""

    def gradients(variables, *inputs):
        return jax.grad(lambda params: loss({**variables, "params": params}, *inputs))(
            variables["params"]
        )

    runs = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((RUNS, *leaf.shape), leaf.dtype), (variables, *inputs)
    )
    program = jax.jit(jax.vmap(gradients))
    return jax.export.export(program, platforms=["cuda"])(*runs).mlir_module()


def check(text, params):
    """Check that convolutions have one group per run, times the layer's, and its kernel's sides."""
    kernels = [leaf.shape for leaf in jax.tree.leaves(params) if leaf.ndim >= 3]
    kernels = [shape for shape in kernels if shape[0] == shape[1] > 1]
    sides = {shape[:2] for shape in kernels}
    by_kernel = 0
    for batch, features, window in convolutions(text):
        if batch > 1:
            assert (batch % RUNS, features) == (0, 1)
            by_kernel += 1
        else:
            assert features % RUNS == 0
            assert tuple(window) in sides
    assert by_kernel == len(kernels)
    operations = set(re.findall(r"stablehlo\.(\w+)", text))
    assert not operations & set(SLOW)


@pytest.mark.parametrize("name", [*NAMED, *OTHERS])
def test_runs_of_a_network_have_grouped_convolutions_and_no_loops(name, monkeypatch):
    # EfficientNet has fewer blocks here, for time, of all sides and strides.
    stages = [stage._replace(blocks=1) for stage in efficientnet.STAGES[:4]]
    monkeypatch.setattr(efficientnet, "STAGES", stages)
    net, shape, _ = (NAMED | OTHERS)[name]
    images, key = jax.ShapeDtypeStruct((2, *shape), jnp.float32), jax.random.key(0)
    variables = jax.eval_shape(lambda: net.init(key, jnp.zeros(images.shape), False))

    def loss(variables, images):
        outputs, _ = net.apply(
            variables, images, True, mutable=["batch_stats"], rngs={"dropout": key}
        )
        return jnp.mean(outputs.logits**2)

    check(exported(loss, variables, images), variables["params"])


def test_runs_of_the_histogram_network_have_grouped_convolutions():
    net = HistogramNet(3)
    pixels, weights = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((2, 64, 3), (2, 64)))
    zeros = jnp.zeros(pixels.shape), jnp.zeros(weights.shape)
    variables = jax.eval_shape(lambda: net.init(jax.random.key(0), *zeros))
    text = exported(lambda *inputs: jnp.mean(net.apply(*inputs) ** 2), variables, pixels, weights)
    check(text, variables["params"])
