"""Every strategy's whole sequence, traced but not compiled: its shapes, and its matrix products.

`make test-medium` runs this file a second time under jaxtyping's import hook, which checks every
annotated function of the library that is called while a sequence is traced. Calls under the hook
take a third longer.
"""

import functools

import jax
import pytest

from everlight.continual.engine.run import Run
from everlight.continual.engine.sequence import run_sequence
from tests.contracts.matrix_products import rounded_products
from tests.contracts.strategies import (
    CLASSES,
    DATA,
    KEY,
    PROTOCOL,
    SEQUENCE,
    STRATEGIES,
    TASKS,
    build_with,
    each_strategy,
    some_now,
)


@functools.lru_cache(1)
def traced(name):
    """Return the sequence's program at JAX's default precision, and its result's shapes."""
    run = Run(build_with(f"{name}, traced", name), PROTOCOL, DATA, SEQUENCE, KEY)
    with jax.default_matmul_precision(None):
        return jax.make_jaxpr(run_sequence, return_shape=True)(run)


@each_strategy
def test_a_traced_sequence_has_the_documented_shapes(name):
    _, result = traced(name)
    assert result.evaluation.class_incremental.shape == (TASKS, TASKS)
    assert result.evaluation.task_masked.shape == (TASKS, TASKS)
    assert result.learner.seen.shape == (CLASSES,)
    assert result.usage.steps.shape == result.usage.stored_samples.shape


@some_now(STRATEGIES, otherwise=pytest.mark.medium)
def test_a_traced_sequence_has_full_precision_outside_of_its_network(name):
    program, _ = traced(name)
    assert rounded_products(program.jaxpr) == set()
