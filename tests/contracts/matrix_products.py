"""Matrix products and convolutions of a traced program that accelerators may round."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import everlight
import everlight_data

ROOTS = [
    *(Path(package.__file__).parent for package in (everlight, everlight_data)),
    Path(__file__).parents[1],
]
PRODUCTS = ("dot_general", "conv_general_dilated", "ragged_dot_general")
PASSES = {
    *("capture_aware.CaptureNet", "confidence_pooling.ConfidencePoolingHead"),
    *("dual_mapping.DualMappingNet", "sensor_independent.HistogramNet"),
    *("generator_net.GeneratorNet", "generator_net.Merge", "generator_net.upsample_2x"),
    *("mlp.MLP", "heads.cosines", "heads.local_similarities", "lora.lora_products"),
    *("vit.VisionTransformer", "vit._Block", "vit.attention", "vae.VAE"),
    *("feedback_decoder.FeedbackDecoder", "split_linen._outputs_of", "split_linen._outputs_above"),
    *("prompts._nearest_keys", "prompts.prompt_components", "adapters.adapter_output"),
    *("projection.projected", "expert_gate._reconstruction", "polytope.with_polytope"),
    "pnn.lateral_values",
    # These are networks of the tests.
    *("strategies.build_with", "small_net.small_setup"),
}
"""Modules and functions that pass inputs through a network, for which the default is meant."""


def rounded_products(jaxpr: Any) -> set[str]:
    """Return the places of float products outside of networks that have no full precision."""
    return {
        f"{equation.primitive.name} in {place}"
        for equation in equations(jaxpr)
        if equation.primitive.name in PRODUCTS and _is_rounded(equation)
        for place in [_place(equation)]
        if place not in PASSES and not place.startswith("convolution.")
    }


def equations(jaxpr: Any) -> Iterator[Any]:
    """Yield a program's equations, and those of its called functions, loops and branches."""
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=has_equations):
            if has_equations(value):
                yield from equations(getattr(value, "jaxpr", value))


def has_equations(value: Any) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")


def _is_rounded(equation: Any) -> bool:
    floating = any(jnp.issubdtype(item.aval.dtype, jnp.inexact) for item in equation.invars)
    highest = jax.lax.Precision.HIGHEST
    return floating and equation.params["precision"] not in (highest, (highest, highest))


def _place(equation: Any) -> str:
    """Return the module and the outermost function of the innermost line that is not a library's.

    The backward pass of a product has the place of the product.
    """
    traceback = equation.source_info.traceback
    codes, _ = traceback.raw_frames() if traceback else ([], [])
    for code in codes:
        path = Path(code.co_filename)
        if any(path.is_relative_to(root) for root in ROOTS):
            return f"{path.stem}.{code.co_qualname.split('.')[0]}"
    return "an unknown place"
