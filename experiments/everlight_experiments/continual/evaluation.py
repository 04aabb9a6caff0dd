"""Evaluation of a finished run's network, as after every task: its scores and its time."""

import functools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from everlight.continual import Learner, Samples, SequenceResult, predict_samples
from everlight.continual.method import Method
from everlight_experiments.continual.benchmark import Benchmark, Draw, Metric, RunData
from everlight_experiments.continual.runner import build_with

EVALUATION_SECONDS = "evaluation seconds"


def with_evaluation_seconds(benchmark: Benchmark, seed: int) -> Benchmark:
    """Return the benchmark whose runs keep the seconds of an evaluation too."""
    if benchmark.prepare is not None:
        prepare = benchmark.prepare
        return benchmark._replace(
            prepare=lambda folder: with_evaluation_seconds(prepare(folder), seed)
        )
    programs = functools.cache(lambda method: evaluation_of(benchmark, method, seed))

    def keep(method: Method, result: SequenceResult) -> dict[str, Any]:
        evaluate = programs(method)(result)
        jax.block_until_ready(evaluate())  # compiles
        start = time.monotonic()
        jax.block_until_ready(evaluate())
        spent = time.monotonic() - start
        return {**benchmark.keep(method, result), "evaluation_seconds": np.array(spent)}

    seconds = Metric(EVALUATION_SECONDS, lambda run: run.arrays["evaluation_seconds"], (), False)
    return benchmark._replace(keep=keep, metrics=(*benchmark.metrics, seconds))


def evaluation_of(
    benchmark: Benchmark, method: Method, seed: int
) -> Callable[[SequenceResult], Callable[[], Float[Array, "m c"]]]:
    """Return a function from a result to the evaluation of its test set, as after every batch."""
    build = build_with(benchmark, method)
    size = benchmark.protocol(method).evaluation_batch
    # The test samples are the same in all orders.
    sequence = benchmark.sequence(method, Draw("evaluation", seed, 0))
    data = RunData(benchmark.shared(method), benchmark.own(sequence))

    @jax.jit
    def scores(
        data: RunData, test: Samples, memory: PyTree, learner: Learner
    ) -> Float[Array, "m c"]:
        return predict_samples(*build(data), memory, learner, test, size)

    return lambda result: partial(scores, data, sequence.test, result.memory, result.learner)
