"""Every strategy's whole sequence, traced but not compiled, has results of the documented shapes.

`make test` runs this file a second time under jaxtyping's import hook, which checks every annotated
function of the library that is called while a sequence is traced; `make test-all` runs all tests
under it. Calls under the hook take a third longer.
"""

import jax

from everlight.continual.engine.run import Run
from everlight.continual.engine.sequence import run_sequence
from tests.contracts.strategies import (
    CLASSES,
    DATA,
    KEY,
    PROTOCOL,
    SEQUENCE,
    TASKS,
    build_with,
    each_strategy,
)


@each_strategy
def test_a_traced_sequence_has_the_documented_shapes(name):
    run = Run(build_with(f"{name}, traced", name), PROTOCOL, DATA, SEQUENCE, KEY)
    result = jax.eval_shape(run_sequence, run)
    assert result.evaluation.class_incremental.shape == (TASKS, TASKS)
    assert result.evaluation.task_masked.shape == (TASKS, TASKS)
    assert result.learner.seen.shape == (CLASSES,)
    assert result.usage.steps.shape == result.usage.stored_samples.shape
