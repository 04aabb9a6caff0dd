"""DS-AL against the authors' two recursive streams, a task at a time, in float64."""

import jax.numpy as jnp
import numpy as np

from everlight.continual.strategies.ds_al import ds_al
from tests.continual.small_net import CLASSES, compiled, run_tasks, task_of
from tests.continual.strategies import frozen_stream as stream
from tests.continual.strategies.recursive_ridge import RecursiveRidge

WIDTH, RATIO, RIDGES = 50, 0.6, (0.5, 2.0)


def test_three_tasks_are_the_official_streams():
    """Evaluated at the end of each task, and before the end of the first with the same result."""
    train, labels, test, truth = stream.digits()
    setup = stream.identity_setup(train)
    strategy = compiled(ds_al(setup, WIDTH, RATIO, *RIDGES))
    parts = [np.flatnonzero(labels // 2 == number) for number in range(3)]
    tasks = [
        (
            task_of(number, [2 * number, 2 * number + 1], stream.labelled_samples(part, labels)),
            [*stream.batches_of(labels, part)],
        )
        for number, part in enumerate(parts)
    ]
    states = run_tasks(setup, strategy, tasks)
    unended = run_tasks(setup, strategy._replace(end_task=None), tasks[:1])[0]
    projection = np.asarray(states[0][0].projection, float)
    main, other = (RecursiveRidge(WIDTH, CLASSES, ridge) for ridge in RIDGES)
    for number, (memory, learner) in enumerate(states):
        now = labels // 2 == number
        rows, targets = train[now] @ projection, np.eye(CLASSES)[labels[now]]
        main.fit(np.maximum(rows, 0), targets)
        left = targets - np.maximum(rows, 0) @ main.weights
        left[:, : 2 * number] = 0
        other.fit(np.tanh(rows), left)
        tested = test @ projection
        plain = np.maximum(tested, 0) @ main.weights
        expected = plain + RATIO * np.tanh(tested) @ other.weights
        for kept in ((memory, learner), unended)[: 2 if number == 0 else 1]:
            given = jnp.asarray(test, jnp.float32)
            found = np.asarray(
                strategy.predict(stream.solved(strategy, *kept), kept[1], given), float
            )
            error = np.linalg.norm(found - expected)
            assert error < 1e-4 * np.linalg.norm(expected)
            assert error < 0.01 * np.linalg.norm(expected - plain)
    assert (found.argmax(axis=1) == truth).mean() > 0.9
