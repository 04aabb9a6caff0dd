"""The head that a method with an extractor per task aligns, against PyCIL's rule in float64."""

import numpy as np

from everlight.continual.strategies.parts.expansion import joined_head
from tests.continual import small_net as net


def assert_aligned(setup, strategy, finished, task, width, key):
    """Check the head after the second task, of classes 2 and 3, on three extractors of a width.

    `finished` are memory and learner at the end of the first task, of classes 0 and 1.
    """
    memory, learner = net.begin(setup, strategy, *finished, task)
    head = np.float64(joined_head(memory, learner.params)["kernel"])
    after, changed = strategy.end_task(memory, learner, task, key)
    lengths = np.linalg.norm(head[np.r_[:width, 2 * width : 3 * width]], axis=0)
    head[:, [2, 3]] *= lengths[[0, 1]].mean() / lengths[[2, 3]].mean()
    np.testing.assert_allclose(joined_head(after, changed.params)["kernel"], head, rtol=1e-5)
    np.testing.assert_array_equal(changed.params["head"]["bias"], learner.params["head"]["bias"])
