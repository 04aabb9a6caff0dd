"""Diagnostics that a setup computes with every evaluation."""

import jax
import jax.numpy as jnp
import numpy as np

from everlight.base import Samples
from everlight.continual import Measured, Run, run_sequence
from everlight.continual.engine.evaluation import PROBE, measure
from tests.contracts.strategies import DATA, KEY, PROTOCOL, SEQUENCE, TASKS, build_with


def mean_activity(params, outputs):
    """Return the network's last kernel and its hidden units for the test samples."""
    return {
        "kernel": jnp.sum(params["head"]["kernel"]),
        "units": jnp.mean(outputs.hidden["hidden"], axis=0),
    }


def test_a_run_keeps_what_the_setup_measures_after_every_task():
    def build(data):
        setup, strategy = build_with("measured", "naive")(data)
        return setup._replace(measure=mean_activity), strategy

    plain = jax.jit(run_sequence)(
        Run(build_with("not measured", "naive"), PROTOCOL, DATA, SEQUENCE, KEY)
    )
    result = jax.jit(run_sequence)(Run(build, PROTOCOL, DATA, SEQUENCE, KEY))
    assert isinstance(result.evaluation, Measured)
    np.testing.assert_allclose(
        result.evaluation.evaluation.task_masked, plain.evaluation.task_masked, atol=0.02
    )
    stored, params = result.evaluation.measured, jax.tree.map(np.float64, result.learner.params)
    assert stored["units"].shape == (TASKS, 16)
    np.testing.assert_allclose(stored["kernel"][-1], params["head"]["kernel"].sum(), rtol=1e-4)
    inputs = np.asarray(DATA, np.float64)[np.asarray(SEQUENCE.test.index)]
    units = np.maximum(inputs @ params["hidden"], 0).mean(axis=0)
    np.testing.assert_allclose(stored["units"][-1], units, rtol=1e-4)


def test_evenly_spaced_samples_are_measured_and_no_padding():
    setup, _ = build_with("spaced", "naive")(jnp.zeros((3000, 6)))
    setup = setup._replace(
        gather=lambda index, key: index[:, None] * jnp.ones(6),
        apply=lambda params, stats, inputs, train, key: (inputs[:, 0], stats),
        measure=lambda params, chosen: chosen,
    )
    mask = np.arange(3000) % 2 == 1
    samples = Samples(jnp.arange(3000), jnp.zeros((3000, 1), int), jnp.asarray(mask))

    class Bare:
        params, batch_stats = {}, {}

    chosen = np.asarray(measure(setup, Bare, samples)).astype(int)
    expected = np.flatnonzero(mask)[np.arange(PROBE) * 1500 // PROBE]
    np.testing.assert_array_equal(chosen, expected)
