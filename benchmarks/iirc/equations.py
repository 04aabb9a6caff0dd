"""The authors' equations where everlight has others, put in place while a program is traced."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, StepInfo
from everlight.continual import Setup
from everlight.continual.strategies import agem, lucir


@contextmanager
def their_ranking() -> Iterator[None]:
    """Let LUCIR's margin ranking move the head's scale.

    The authors divide the logits by the scale's value and not by the scale, so that the scale has a
    gradient of the ranking loss. The ranked scores have no scale in Hou et al.'s code.
    """
    module = sys.modules[lucir.__module__]
    kernel_of, cosines, scales = module.head_kernel, module.cosines, []

    def with_scale(params: PyTree) -> Float[Array, "f c"]:
        scales.append(params["head"]["scale"])
        return kernel_of(params)

    def scaled(features: Float[Array, "*b f"], kernel: Float[Array, "f c"]) -> Float[Array, "*b c"]:
        scale = scales[-1]
        return cosines(features, kernel) * (scale / jax.lax.stop_gradient(scale))

    with patch.object(module, "head_kernel", with_scale), patch.object(module, "cosines", scaled):
        yield


@contextmanager
def their_passes() -> Iterator[None]:
    """Let A-GEM's reference pass change the batch statistics after the task's pass, not before."""
    module = sys.modules[agem.__module__]
    replayed_loss, task_gradient, before = module.replayed_loss, module.task_gradient, []

    def reference(
        setup: Setup, params: PyTree, learner: Learner, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        before.append(learner.batch_stats)
        return replayed_loss(setup, params, learner, batch, key)

    def task(
        setup: Setup, learner: Learner, batch: Batch, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        gradient, info = task_gradient(setup, learner, batch, key)
        held = jnp.any(batch.replay.weight > 0)

        def swapped(old: Array, after_memory: Array, after_both: Array) -> Array:
            # Each pass takes 0.9 of the old value and 0.1 of its batch.
            memory_part, batch_part = after_memory - 0.9 * old, after_both - 0.9 * after_memory
            return jnp.where(held, 0.9 * (0.9 * old + batch_part) + memory_part, after_both)

        stats = jax.tree.map(swapped, before[-1], learner.batch_stats, info.batch_stats)
        return gradient, info._replace(batch_stats=stats)

    patches = {"replayed_loss": reference, "task_gradient": task}
    with patch.multiple(module, **patches):
        yield


EQUATIONS = {"LUCIR": their_ranking, "A-GEM": their_passes}
"""Contexts by the name of the method."""
