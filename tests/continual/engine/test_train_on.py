"""Training on fixed samples, as strategies do at or between tasks."""

import jax
import jax.numpy as jnp
import numpy as np

from everlight.base import Epoch, Plateau
from everlight.continual.engine.epochs import train_on
from everlight.continual.strategies.naive import naive
from tests.continual.small_net import samples_of, small_learner, small_setup, task_of

SETUP = small_setup()
SAMPLES = samples_of(np.arange(9), np.arange(9) < 7)
EPOCH = Epoch(SAMPLES, jnp.zeros(9, bool))
SCHEDULE = Plateau(jnp.float32(0.5), jnp.float32(0.25), jnp.int32(1))


def trained(factor=None, epochs=2):
    learner = small_learner(SETUP, [0, 1])._replace(schedule=SCHEDULE)
    task, key = task_of(0, [0, 1], SAMPLES), jax.random.key(0)
    given = (SETUP, naive(SETUP), (), learner, task, EPOCH)
    settings = {"epochs": epochs, "batch_size": 3, "key": key, "learning_rate_factor": factor}
    return learner, train_on(*given, **settings)


def moved(before, after):
    return np.abs(after.params["head"] - before.params["head"]).max()


def test_every_epoch_takes_all_samples_once():
    """Seven samples in steps of three, twice."""
    before, after = trained()
    assert after.step - before.step == 6
    assert moved(before, after) > 0


def test_the_factor_of_an_epoch_scales_its_rate_and_the_schedule_stays():
    one = trained(epochs=1)
    same = trained(lambda epoch: jnp.where(epoch == 0, jnp.float32(0.5), 0.0))
    np.testing.assert_array_equal(same[1].params["head"], one[1].params["head"])
    assert moved(*trained(lambda epoch: jnp.float32(0))) == 0
    assert same[1].schedule == SCHEDULE
