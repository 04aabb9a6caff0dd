"""A program that prints results of runs on two devices as JSON; it needs JAX_NUM_CPU_DEVICES=2."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.continual.engine import Protocol, Run, Runs, StoredImages, drive_runs, flax_setup
from everlight.continual.engine import driver as engine
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies.streaming_lda import streaming_lda
from everlight.meshes import runs_mesh, shard_batch
from everlight.models import MLP
from everlight.scenarios.class_incremental import class_incremental
from tests.continual.engine.linear_net import DATA
from tests.continual.engine.many_runs import PROTOCOL, build, join, some_runs, states

COLLECTIVES = ("all-reduce", "all-gather", "collective-permute")


def losses():
    """Return losses of three runs on two devices, and of resumed runs that share both."""
    last = states(some_runs())[-1]
    again = states(some_runs(), state=states(some_runs())[2])[-1]
    jax.tree.map(np.testing.assert_array_equal, last, again)
    shared = states(some_runs(), mesh=runs_mesh(data=2))[-1]
    return [np.asarray(item.result.losses).tolist() for item in (last, shared)]


def collectives():
    """Return the collectives in the program of four runs."""
    mesh, many = runs_mesh(), some_runs()
    inputs = engine.RunInputs(many.sequence, many.key, many.run_data)
    four = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[:1]]), inputs)
    begin, learn = (
        engine._program(engine.Programs(build, PROTOCOL, join, mesh), part)
        for part in (engine.begin_state, engine.learn_epochs)
    )
    text = learn.lower(DATA, four, begin(DATA, four), jnp.int32(2)).compile().as_text()
    return [word for word in COLLECTIVES if word in text]


def sharded(data):
    """Return a sum over both devices, the kinds of a mesh's axes, and its shape."""
    mesh = runs_mesh(data=data)
    with jax.set_mesh(mesh):
        total = jax.jit(lambda rows: shard_batch(rows).sum())(jnp.ones((4, 3)))
    return [float(total), [kind.name for kind in mesh.axis_types], list(mesh.devices.shape)]


def epochs_of_one_run():
    """Count the epochs of one run cut out of two; cut leaf by leaf, streaming LDA got stuck."""
    order, classes, width = np.arange(25).reshape(5, 5).tolist(), np.arange(25), 768
    images = np.random.default_rng(0).normal(size=(500, width)).astype(np.float32)
    sequence = class_incremental(np.repeat(classes, 16), np.repeat(classes, 4), order, 25)
    stored = StoredImages.of(jnp.asarray(images), jnp.zeros(width), jnp.ones(width))

    def wide(stored):
        head, descent = MLP(25, hidden=()), optax.sgd(0.01)
        setup = flax_setup(head, stored, softmax_objective(), descent)
        return setup, streaming_lda(setup)

    protocol = Protocol(epochs=2, batch_size=32, select="last")
    one = Runs.of(Run(wide, protocol, stored, sequence, jax.random.key(0)))
    return len([0 for _ in drive_runs(one, chunk=1, mesh=runs_mesh())])


if __name__ == "__main__":
    assert len(jax.devices()) == 2
    result = {
        "losses": losses(),
        "collectives": collectives(),
        "sharded": [sharded(1), sharded(2)],
        "epochs": epochs_of_one_run(),
    }
    print(json.dumps(result))
