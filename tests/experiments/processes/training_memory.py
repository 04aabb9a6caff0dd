"""Growth of a process that trains many small networks in turn: `RUNS shared|own`.

`shared`: one `build` for all, as for the runs of a method. `own`: one each, as for runs that differ
in what is static. Prints the resident size in MB after every tenth of the runs.
"""

import gc
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight import continual
from everlight.continual.engine.run import Run
from everlight.models import MLP
from everlight.scenarios import class_incremental
from tests.experiments.commands.command_memory import resident

PROTOCOL = continual.Protocol(epochs=1, batch_size=8, select="last")
LABELS = np.arange(60) % 6
SEQUENCE = class_incremental(LABELS[:40], LABELS[40:], ((0, 1, 2), (3, 4, 5)), 6, 0.0)
DATA = continual.StoredImages.of(jnp.ones((60, 8)), jnp.float32(0), jnp.float32(1))


def new_build(rate: float):
    def build(data):
        net = MLP(classes=6, hidden=(16,))
        setup = continual.flax_setup(net, data, continual.softmax_objective(), optax.sgd(rate))
        return setup, continual.naive(setup)

    return build


def main() -> None:
    count, builds = int(sys.argv[1]), sys.argv[2]
    shared = new_build(0.1)
    for number in range(count):
        build = shared if builds == "shared" else new_build(0.1 + 1e-4 * number)
        run = Run(build, PROTOCOL, DATA, SEQUENCE, jax.random.key(number))
        for state in continual.drive_runs(continual.Runs.of(run)):
            jax.block_until_ready(state)
        if number % max(1, count // 10) == 0 or number == count - 1:
            gc.collect()
            print(number, resident(os.getpid()) // 1_000_000, flush=True)


if __name__ == "__main__":
    main()
