"""Training that is killed at any moment ends with the bits of one that was not."""

import dataclasses
import random

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.illuminant.illuminant_batches import predict_batch, stack_problems
from everlight.illuminant.illuminant_training import chromaticity_loss
from everlight_data.errors import DataError
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.illuminant.core.networks import BLOCKS
from tests.experiments.illuminant.core.small_problems import (
    PROBLEMS,
    SETTINGS,
    problems,
    train,
)
from tests.experiments.processes.child_processes import end, start

# One worker runs the group, so that the module's fixtures are computed once.
pytestmark = pytest.mark.xdist_group("training of nets")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    return folder, train(folder)


def test_over_two_devices_the_nets_are_those_of_one(tmp_path, uninterrupted):
    """Three problems on two devices are another program, so that 200 steps agree to 1e-4."""
    child = start("network_devices", tmp_path, tmp_path / "runs", JAX_NUM_CPU_DEVICES="2")
    devices, *losses = map(float, end(child).split())
    assert devices == 2
    single = uninterrupted[1].losses[2].valid
    np.testing.assert_allclose(np.reshape(losses, single.shape), single, atol=1e-4)


class Killed(Exception):
    pass


def test_stopped_at_a_checkpoint_it_ends_with_the_same_bits(tmp_path, monkeypatch, uninterrupted):
    blocks = random.randrange(1, BLOCKS)
    with monkeypatch.context() as patch:
        save = Checkpoints.save

        def save_or_die(self, step, *rest):
            if step > blocks:
                raise Killed
            save(self, step, *rest)

        patch.setattr(Checkpoints, "save", save_or_die)
        with pytest.raises(Killed):
            train(tmp_path)
    assert Checkpoints(tmp_path).newest() == blocks
    chex.assert_trees_all_equal(train(tmp_path), uninterrupted[1])


def test_the_best_models_have_the_least_validation_losses(uninterrupted):
    _, nets = uninterrupted
    data = stack_problems(problems())
    losses = nets.losses[2]
    assert losses.train.shape == losses.valid.shape == (20, PROBLEMS)
    assert np.isfinite(losses.train).all()
    assert np.all(losses.train[-1] < 0.5 * losses.train[0])
    estimates = predict_batch(2, nets.models[2], jnp.asarray(data.valid_features))
    for index in range(PROBLEMS):
        loss = chromaticity_loss(estimates[index], jnp.asarray(data.valid_targets[index]))
        assert loss == pytest.approx(float(losses.valid[:, index].min()), rel=1e-5)


def test_nets_that_all_diverge_are_reported_at_once_and_leave_no_checkpoint(tmp_path):
    removed = [item._replace(targets=np.full_like(item.targets, np.nan)) for item in problems()]
    with pytest.raises(DataError, match=r"all 3 networks .* diverged in tenth 1 of 10"):
        train(tmp_path, data=removed)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("part", ["valid_features", "valid_targets"])
def test_validation_samples_that_are_not_finite_are_refused(tmp_path, part):
    """A NaN made no step better than the initial parameters, which were kept and reported."""
    first, *rest = problems()
    values = getattr(first, part).copy()
    values[3, 0] = np.nan
    with pytest.raises(
        DataError, match=r"^validation samples of 1 of 3 networks have values that are not"
    ):
        train(tmp_path, data=[first._replace(**{part: values}), *rest])
    assert not list(tmp_path.iterdir())


def test_problems_depths_and_seeds_start_apart(uninterrupted, tmp_path):
    _, nets = uninterrupted
    first = nets.losses[2].valid[0]
    assert len(set(first.tolist())) == PROBLEMS
    again = train(tmp_path, depths=(1, 2), seed=2, data=problems()[:1] * PROBLEMS)
    for depth in (1, 2):
        assert len(set(again.losses[depth].valid[0].tolist())) == PROBLEMS
    assert again.losses[2].valid[0, 0] != first[0]
    hidden = [again.models[depth].params["params"]["hidden_0_kernel"] for depth in (1, 2)]
    assert not np.allclose(*hidden)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"seed": 2}, "seed: stored 1, now 2"),
        (
            {"settings": dataclasses.replace(SETTINGS, learning_rate=0.02)},
            "learning_rate: stored 0.01",
        ),
        ({"settings": dataclasses.replace(SETTINGS, steps=400)}, "steps: stored 200, now 400"),
        (
            {"depths": (3,)},
            r"losses/2/train: stored .*, expected absent.* losses/3/train: stored absent",
        ),
        ({"data": jax.tree.map(lambda a: a[::-1], problems())}, r"problems: stored \["),
    ],
)
def test_checkpoints_of_another_training_are_refused(uninterrupted, change, difference):
    with pytest.raises(DataError, match=difference):
        train(uninterrupted[0], **change)


@pytest.mark.parametrize(("steps", "interval"), [(150, 10), (205, 10), (90, 10)])
def test_steps_that_make_no_whole_blocks_are_refused(tmp_path, steps, interval):
    settings = dataclasses.replace(SETTINGS, steps=steps, validate_every=interval)
    with pytest.raises(DataError, match=rf"steps={steps} must be a multiple of {BLOCKS} times"):
        train(tmp_path, settings)
