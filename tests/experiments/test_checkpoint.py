from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data_pipelines.errors import DataError, MissingDataError
from experiments.common.checkpoint import Checkpoints, open_existing


class State(NamedTuple):
    """A stand-in of a training's state."""

    params: dict
    half: jax.Array
    step: jax.Array


def state_of(value, shape=(2, 3)):
    params = {2: jnp.full(shape, value, jnp.float32)}
    return State(params, jnp.full(4, value, jnp.bfloat16), jnp.array(int(value)))


def assert_same(restored, expected):
    for a, b in zip(jax.tree.leaves(restored), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_what_is_written_is_read_by_another_reader(tmp_path):
    Checkpoints(tmp_path / "a" / "b").save(3, state_of(1.5), {"name": "ä", "sizes": [1, 2]})
    reader = Checkpoints(tmp_path / "a" / "b")
    assert reader.newest() == 3
    assert reader.facts(3) == {"name": "ä", "sizes": [1, 2]}
    state, facts = reader.restore(3, like=state_of(0))
    assert isinstance(state, State)
    assert_same(state, state_of(1.5))
    assert facts == reader.facts(3)


def test_bits_survive(tmp_path, rng):
    bits = rng.integers(0, 2**32, 1000, dtype=np.uint32).view(np.float32)
    bits[:3] = [-0.0, np.inf, np.float32(1e-45)]
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"x": jnp.asarray(bits)})
    read = np.asarray(checkpoints.restore(1, {"x": jnp.zeros(1000)}).state["x"])
    np.testing.assert_array_equal(read.view(np.uint32), bits.view(np.uint32))


def test_the_newest_few_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.newest() is None
    for step in range(1, 5):
        checkpoints.save(step, state_of(step))
        assert checkpoints.newest() == step
    assert {path.name for path in tmp_path.iterdir()} == {"3", "4"}
    assert_same(checkpoints.restore(3, state_of(0)).state, state_of(3))


@pytest.mark.parametrize("step", [1, 2])
def test_a_number_that_does_not_follow_is_refused_not_dropped(tmp_path, step):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(2, state_of(2))
    with pytest.raises(DataError, match=rf"holds checkpoint 2; {step} would not follow"):
        checkpoints.save(step, state_of(7))
    assert_same(checkpoints.restore(2, state_of(0)).state, state_of(2))


def test_a_folder_half_written_is_not_the_newest(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state_of(1))
    checkpoints.save(2, state_of(2))
    half = tmp_path / "3.orbax-checkpoint-tmp"
    (tmp_path / "2").rename(half)  # as it stands the moment before orbax's last rename
    (half / "state" / "manifest.ocdbt").write_bytes(b"garbage")
    reader = Checkpoints(tmp_path)
    assert reader.newest() == 1
    assert_same(reader.restore(1, state_of(0)).state, state_of(1))
    reader.save(3, state_of(3))
    assert_same(Checkpoints(tmp_path).restore(3, state_of(0)).state, state_of(3))


@pytest.mark.parametrize("lost", ["state", "state/manifest.ocdbt", "state/_METADATA"])
def test_a_checkpoint_that_lost_a_part_is_never_loaded(tmp_path, lost):
    Checkpoints(tmp_path).save(1, state_of(1))
    path = tmp_path / "1" / lost
    path.rename(tmp_path / "elsewhere")
    with pytest.raises((ValueError, KeyError, OSError)):
        Checkpoints(tmp_path).restore(1, state_of(0))


@pytest.mark.parametrize(
    ("like", "difference"),
    [
        (state_of(0, (2, 4)), r"params/2: \[2, 3\]float32 there, \[2, 4\]float32 wanted"),
        (
            state_of(0)._replace(half=jnp.zeros(4)),
            r"half: \[4\]bfloat16 there, \[4\]float32 wanted",
        ),
        (
            state_of(0)._replace(params={5: jnp.zeros((2, 3))}),
            r"params/2: \[2, 3\]float32 there, absent wanted; params/5: absent there",
        ),
    ],
)
def test_another_structure_is_refused_by_its_difference(tmp_path, like, difference):
    Checkpoints(tmp_path).save(1, state_of(1))
    with pytest.raises(DataError, match=rf"1 was written with another configuration: {difference}"):
        Checkpoints(tmp_path).restore(1, like)


def test_a_folder_without_a_checkpoint_is_missing_data(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name, reason in (
        ("none", "no checkpoint"),
        ("file", "no checkpoint"),
        ("empty", "no whole"),
    ):
        with pytest.raises(MissingDataError, match=rf"{name} .*{reason}|{name} holds {reason}"):
            open_existing(tmp_path / name)
    assert not (tmp_path / "none").exists()
    Checkpoints(tmp_path / "empty").save(4, state_of(4))
    assert open_existing(tmp_path / "empty").newest() == 4
