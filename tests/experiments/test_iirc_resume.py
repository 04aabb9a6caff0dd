"""IIRC's methods stopped in the middle of a task go on to the same bits, rate already dropped."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import Outputs
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import Run
from everlight.continual.engine.sequence import initial_state
from everlight.continual.engine.sources import StoredImages
from everlight.models import Network
from everlight.models.heads import make_head
from everlight.models.layers.normalization import BatchNorm
from everlight.scenarios.iirc import TaskConfiguration, iirc
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.continual.benchmark import PerRunData, RunData
from everlight_experiments.iirc.benchmark import protocol_of, setup_factory
from everlight_experiments.iirc.config import FORMS, IIRCConfig
from tests.driving import drive_run

SIDE, EXEMPLARS, EPOCHS = 4, 2, 5
HIERARCHY = {"round": ("disc", "ring"), "square": ("box", "frame")}
CLASSES = ("disc", "ring", "box", "frame", "star", "cross")
TASKS = (("round", "square"), ("disc", "box", "star"), ("ring", "frame", "cross"))
# After a task's first epoch no metric, at most 1, is an improvement, so each epoch drops.
PROTOCOL = Protocol(
    epochs=EPOCHS,
    batch_size=16,
    plateau_factor=0.5,
    plateau_patience=0,
    plateau_threshold=2.0,
    evaluation_batch=16,
)
RESUMED_FROM = EPOCHS + 2
CONFIG = IIRCConfig("procedural", SIDE, PROTOCOL, learning_rate=0.5, exemplars_per_class=EXEMPLARS)
KEY = jax.random.key(5)
# ER's memory is a buffer with a key, as A-GEM's; BiC's a buffer, a teacher, samples held out and a
# correction, the first two of which are iCaRL's and LUCIR's. Every method takes seconds to compile.
each_kind = pytest.mark.parametrize(
    "name",
    [
        *("ER-balanced", "BiC"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("A-GEM", "iCaRL-norm", "LUCIR")),
    ],
)


class TinyNet(nn.Module):
    """One layer, batch norm and a head."""

    head: str

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> Outputs:
        hidden = nn.Dense(6)(images.reshape(len(images), -1))
        features = jnp.tanh(BatchNorm()(hidden, train))
        return Outputs(make_head(self.head, len(CLASSES) + len(HIERARCHY))(features), features)


@functools.cache
def run_of(name):
    train, test = (np.repeat(np.arange(len(CLASSES)), count) for count in (20, 2))
    images = np.random.default_rng(0).integers(0, 256, (132, SIDE, SIDE, 3), np.uint8)
    stored = StoredImages.of(jnp.asarray(images), jnp.full(3, 127.5), jnp.full(3, 74.0))
    # A tenth would leave the superclasses none to validate on.
    sequence = iirc(
        train, test, CLASSES, HIERARCHY, TaskConfiguration(TASKS), valid_fraction=0.2
    ).sequence
    classes = len(CLASSES) + len(HIERARCHY)
    begin = setup_factory(CONFIG, Network(TinyNet("linear"), "a tiny net"), classes, len(TASKS))

    def build(data):
        setup, needs = begin(FORMS[name], data)
        return setup, FORMS[name].make(setup, needs._replace(hyperparameter=5.0))

    data = RunData(stored, PerRunData(jnp.zeros_like(sequence.class_task), jnp.float32(5.0)))
    # Arrays that are read back are bound to a device; others would compile every program twice.
    bound = jax.device_put((data, sequence, KEY), jax.devices()[0])
    return Run(build, protocol_of(CONFIG, FORMS[name]), *bound)


@functools.cache
def states(name):
    """After every epoch."""
    return list(drive_run(run_of(name)))


def finish(name, state):
    *_, last = drive_run(run_of(name), state)
    return last.result


def bits(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def samples_of(buffer):
    """ER's buffer is samples, the others' records more of them."""
    return getattr(buffer, "samples", buffer)


def without_exemplars(result):
    buffer = result.memory.buffer
    held = samples_of(buffer)
    none = held._replace(mask=jnp.zeros_like(held.mask))
    emptied = none if held is buffer else buffer._replace(samples=none)
    return result._replace(memory=result.memory._replace(buffer=emptied))


def without_drop(result):
    schedule = result.learner.schedule._replace(factor=jnp.float32(1))
    return result._replace(learner=result.learner._replace(schedule=schedule))


@each_kind
def test_stopped_in_a_task_it_goes_on_to_the_same_bits(name, tmp_path):
    """Memory, learner with schedule and best epoch, curves and what was predicted."""
    Checkpoints(tmp_path).save(RESUMED_FROM, states(name)[RESUMED_FROM - 1])
    checkpoints = Checkpoints(tmp_path)
    kept = checkpoints.restore(RESUMED_FROM, initial_state(run_of(name))).state
    assert (int(kept.task), int(kept.epoch)) == (1, 2)
    assert kept.result.learner.schedule.factor == 0.5
    # The first task's two superclasses have their exemplars.
    held = np.arange(8 * EXEMPLARS) < 2 * EXEMPLARS
    np.testing.assert_array_equal(samples_of(kept.result.memory.buffer).mask, held)

    resumed, whole = finish(name, kept), states(name)[-1].result
    assert jax.tree.structure(resumed) == jax.tree.structure(whole)
    assert bits(resumed) == bits(whole)
    # The rate begins anew in every task.
    assert whole.learner.schedule.factor == 0.5 ** (EPOCHS - 1)
    for lose in (without_exemplars, without_drop):
        other = finish(name, kept._replace(result=lose(kept.result)))
        # The epoch that is kept may be one before the state; the losses after it are not.
        assert bits(other.losses) != bits(whole.losses), lose.__name__
