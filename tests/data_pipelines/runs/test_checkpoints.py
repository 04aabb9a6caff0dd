"""Checkpoints: bits, types and structure are read as written, and faults are named."""

import errno
import shutil
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight_data.errors import DataError, MissingDataError
from everlight_data.runs import checkpoints as module
from everlight_data.runs.checkpoints import Checkpoints, DamagedCheckpointError, open_existing


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


def test_checkpoints_are_read_by_another_reader(tmp_path):
    Checkpoints(tmp_path / "a" / "b").save(3, state_of(1.5), {"name": "ä", "sizes": [1, 2]})
    reader = Checkpoints(tmp_path / "a" / "b")
    assert reader.newest() == 3
    assert reader.fingerprint(3) == {"name": "ä", "sizes": [1, 2]}
    state, fingerprint = reader.restore(3, like=state_of(0))
    assert isinstance(state, State)
    assert_same(state, state_of(1.5))
    assert fingerprint == reader.fingerprint(3)


def test_arrays_are_read_without_knowing_the_structure(tmp_path):
    Checkpoints(tmp_path).save(0, state_of(1.5))
    result = Checkpoints(tmp_path).arrays(0)
    assert result.keys() == {"params/2", "half", "step"}
    np.testing.assert_array_equal(result["params/2"], np.full((2, 3), 1.5, np.float32))
    assert (result["half"].dtype, result["step"].dtype) == (jnp.bfloat16, jnp.int32)


def test_bits_survive(tmp_path, rng):
    bits = rng.integers(0, 2**32, 1000, dtype=np.uint32).view(np.float32)
    bits[:3] = [-0.0, np.inf, np.float32(1e-45)]
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"x": jnp.asarray(bits)})
    read = np.asarray(checkpoints.restore(1, {"x": jnp.zeros(1000)}).state["x"])
    np.testing.assert_array_equal(read.view(np.uint32), bits.view(np.uint32))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_random_keys_survive_and_are_held_to_their_words(tmp_path, impl):
    """They draw what they drew; other words under the same name are not believed."""
    keys = {"key": jax.random.key(7, impl=impl), "keys": jax.random.split(jax.random.key(3), 2)}
    checkpoints = Checkpoints(tmp_path / "a")
    checkpoints.save(1, keys)
    checkpoints.renew(2, keys, {})
    checkpoints.renew(2, keys, {})
    for like in (keys, jax.eval_shape(lambda: keys)):
        read = Checkpoints(tmp_path / "a").restore(2, like).state
        for name, key in keys.items():
            assert read[name].dtype == key.dtype
            np.testing.assert_array_equal(jax.random.key_data(read[name]), jax.random.key_data(key))
        drawn = (jax.random.normal(item["key"], 5) for item in (read, keys))
        np.testing.assert_array_equal(*drawn)
    words = Checkpoints(tmp_path / "a").arrays(1)["key"]
    np.testing.assert_array_equal(words, jax.random.key_data(keys["key"]))
    Checkpoints(tmp_path / "b").save(1, {**keys, "key": jax.random.key(8, impl=impl)})
    shutil.rmtree(tmp_path / "a" / "1" / "state")
    shutil.copytree(tmp_path / "b" / "1" / "state", tmp_path / "a" / "1" / "state")
    with pytest.raises(DamagedCheckpointError, match="1 is damaged: the checksums of key differ"):
        Checkpoints(tmp_path / "a").restore(1, keys)
    with pytest.raises(DataError, match=r"key: stored \[\]key<.*>, expected \[2\]uint32"):
        Checkpoints(tmp_path / "a").restore(2, {**keys, "key": jnp.zeros(2, jnp.uint32)})


def test_identical_checkpoints_are_not_rewritten_and_others_are_replaced(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in range(3):
        checkpoints.renew(step, state_of(step), {})
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    checkpoints.renew(1, state_of(1), {})
    assert times == {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    # These are other bits: what followed the former ones goes too.
    checkpoints.renew(1, state_of(7), {})
    assert checkpoints.numbers() == [0, 1]
    assert_same(checkpoints.restore(1, state_of(0)).state, state_of(7))
    (tmp_path / "1" / "state" / "manifest.ocdbt").write_bytes(b"garbage")
    Checkpoints(tmp_path, keep=3).renew(1, state_of(7), {})
    assert_same(Checkpoints(tmp_path).restore(1, state_of(0)).state, state_of(7))


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
    with pytest.raises(DataError, match=rf"holds checkpoint 2; checkpoint {step} is not newer"):
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
    with pytest.raises(DamagedCheckpointError, match=r"/1 is damaged \("):
        Checkpoints(tmp_path).restore(1, state_of(0))


@pytest.mark.parametrize(
    ("like", "difference"),
    [
        (state_of(0, (2, 4)), r"params/2: stored \[2, 3\]float32, expected \[2, 4\]float32"),
        (
            state_of(0)._replace(half=jnp.zeros(4)),
            r"half: stored \[4\]bfloat16, expected \[4\]float32",
        ),
        (
            state_of(0)._replace(params={5: jnp.zeros((2, 3))}),
            r"params/2: stored \[2, 3\]float32, expected absent; params/5: stored absent",
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
    for name, reason in (("none", "not a chec"), ("file", "not a chec"), ("empty", "no complete")):
        with pytest.raises(MissingDataError, match=rf"{name} .*{reason}|{name} holds {reason}"):
            open_existing(tmp_path / name)
    assert not (tmp_path / "none").exists()
    Checkpoints(tmp_path / "empty").save(4, state_of(4))
    assert open_existing(tmp_path / "empty").newest() == 4


# ---- Damage


def two_checkpoints(folder, rng):
    """Write two checkpoints of 200 numbers each, and return their states."""
    states = {step: {"x": jnp.asarray(rng.normal(size=200), jnp.float32)} for step in (1, 2)}
    for step, state in states.items():
        Checkpoints(folder).save(step, state, {"seed": 0})
    return states


def resumed(folder):
    return Checkpoints(folder).resume({"seed": 0}, lambda: {"x": jnp.zeros(200)})


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << (place % 8)
    path.write_bytes(content)


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


@pytest.mark.parametrize("flips", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_no_flipped_byte_is_believed(tmp_path, rng, capsys, flips):
    """Each is repaired by what orbax stores twice, or found; then the checkpoint before serves."""
    states = two_checkpoints(tmp_path / "whole", rng)
    fell_back = 0
    for number in range(flips):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", folder)
        victims = files_of(folder / "2")
        # The arrays' own bytes are most of the checkpoint.
        victim = victims[rng.choice(len(victims), p=weights_of(victims))]
        flip(victim, int(rng.integers(victim.stat().st_size)))
        step, state = resumed(folder)
        np.testing.assert_array_equal(state["x"], states[step]["x"])
        fell_back += step == 1
        if step == 1:
            assert f"{folder / '2'} is damaged" in capsys.readouterr().out
            assert {path.name for path in folder.iterdir()} == {"1", "2.damaged"}
            Checkpoints(folder).save(2, states[2], {"seed": 0})
            assert resumed(folder)[0] == 2
        shutil.rmtree(folder)
    assert fell_back >= flips // 4, "few flips met what counts"


def weights_of(paths):
    sizes = np.array([path.stat().st_size for path in paths], float)
    return 0.5 / len(paths) + 0.5 * sizes / sizes.sum()


def test_wrong_values_that_orbax_restores_are_refused(tmp_path, rng):
    """The checkpoint's arrays are another one's, undamaged in themselves."""
    two_checkpoints(tmp_path, rng)
    shutil.rmtree(tmp_path / "2" / "state")
    shutil.copytree(tmp_path / "1" / "state", tmp_path / "2" / "state")
    with pytest.raises(DamagedCheckpointError, match="2 is damaged: the checksums of x differ"):
        Checkpoints(tmp_path).restore(2, {"x": jnp.zeros(200)})
    assert resumed(tmp_path)[0] == 1


def test_a_copy_under_another_number_is_not_believed(tmp_path, rng, capsys):
    states = two_checkpoints(tmp_path, rng)
    shutil.copytree(tmp_path / "1", tmp_path / "999")
    step, state = resumed(tmp_path)
    assert "999 is a copy of checkpoint 1; it is set aside" in capsys.readouterr().out
    assert step == 2
    np.testing.assert_array_equal(state["x"], states[2]["x"])
    Checkpoints(tmp_path).save(3, states[1])


def test_a_run_whose_checkpoints_are_all_damaged_restarts_with_a_warning(tmp_path, rng, capsys):
    two_checkpoints(tmp_path, rng)
    for step in ("1", "2"):
        (tmp_path / step / "facts" / "metadata").write_text("{}")
    assert resumed(tmp_path) is None
    assert "the run starts again" in capsys.readouterr().out


def test_a_damaged_checkpoint_prints_one_line_and_no_traceback(tmp_path):
    """The output has neither tracebacks of reads that end later, nor orbax's log."""
    program = [sys.executable, "-m", "tests.data_pipelines.runs.damaged_checkpoints", str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    damages, message = [], []
    for line in done.stdout.splitlines():
        (damages if line.startswith(("cut: ", "changed: ", "gone: ")) else message).append(line)
    assert len(damages) > 30
    assert len(message) >= 8, "few damages met what counts"
    assert all("is damaged" in line and "starts again" in line for line in message)


ORBAX_ERRORS = [
    MemoryError(),
    OSError(errno.EMFILE, "Too many open files"),
    jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"),
    ValueError("RESOURCE_EXHAUSTED: Error reading local file: [OS error 24: Too many open files]"),
    AssertionError("a fault of the program"),
]


@pytest.mark.parametrize("error", ORBAX_ERRORS, ids=repr)
def test_an_error_that_is_not_about_the_files_leaves_the_checkpoint(tmp_path, error):
    state = state_of(1.5)
    with_error = Checkpoints(tmp_path / "run")
    with_error.save(1, state, {"seed": 0})
    restore = with_error._manager.restore
    for item in ("facts", "state"):

        def fails(step, args, item=item):
            if item in args:
                raise error
            return restore(step, args=args)

        with_error._manager.restore = fails
        expected = OSError if isinstance(error, ValueError) else type(error)
        with pytest.raises(expected):
            with_error.resume({"seed": 0}, lambda: state)
        with pytest.raises(expected):
            with_error.renew(1, state, {"seed": 0})
    assert_same(Checkpoints(tmp_path / "run").restore(1, state).state, state)


def test_a_folder_that_is_only_read_is_read_without_a_remark(tmp_path, rng, caplog):
    two_checkpoints(tmp_path, rng)
    assert Checkpoints(tmp_path, read_only=True).arrays(2)
    assert caplog.messages == []


def test_other_facts_and_shapes_are_no_damage(tmp_path, rng):
    two_checkpoints(tmp_path, rng)
    like = {"x": jnp.zeros(200)}
    with pytest.raises(DataError, match=r"another configuration \(seed: stored 0, now 1\)"):
        Checkpoints(tmp_path).resume({"seed": 1}, lambda: like)
    with pytest.raises(
        DataError, match=r"was written with another configuration: x.* another folder"
    ):
        Checkpoints(tmp_path).resume({"seed": 0}, lambda: {"x": jnp.zeros(3)})
    assert {path.name for path in tmp_path.iterdir()} == {"1", "2"}


def test_half_written_checkpoints_are_removed_by_the_next_start(tmp_path, rng):
    two_checkpoints(tmp_path, rng)
    shutil.copytree(tmp_path / "2", tmp_path / "3.orbax-checkpoint-tmp-77")
    open_existing(tmp_path)
    assert (tmp_path / "3.orbax-checkpoint-tmp-77").exists(), "who only reads removes nothing"
    Checkpoints(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"1", "2"}


def test_a_checkpoint_without_room_is_refused_and_the_one_before_kept(tmp_path, rng, monkeypatch):
    states = two_checkpoints(tmp_path, rng)
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("everlight_data.writing.shutil.disk_usage", lambda path: usage)
    with pytest.raises(DataError, match=r"checkpoints: 1\.0 MB are needed .*same command again"):
        Checkpoints(tmp_path).save(3, states[1])
    assert resumed(tmp_path)[0] == 2
    large = {"x": jnp.zeros(1_000_000)}
    with pytest.raises(DataError, match=r"checkpoints: 13\.0 MB are needed"):
        Checkpoints(tmp_path / "new").save(1, large)


def test_a_checkpoint_is_due_when_as_much_as_may_be_lost_was_done_since_the_last(
    tmp_path, monkeypatch
):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    checkpoints = Checkpoints(tmp_path)
    assert not checkpoints.due()
    now[0] += module.SECONDS_AT_STAKE
    assert checkpoints.due()
    checkpoints.save(1, state_of(1))
    assert not checkpoints.due()


def test_checkpoints_of_several_devices_are_read_on_one(tmp_path):
    code = (
        "import sys, jax; jax.config.update('jax_num_cpu_devices', 2)\n"
        "from pathlib import Path; import jax.numpy as jnp\n"
        "from everlight_data.runs.checkpoints import Checkpoints\n"
        "mesh = jax.make_mesh((2,), ('runs',))\n"
        "over = jax.NamedSharding(mesh, jax.P('runs'))\n"
        "state = {'x': jnp.arange(4.0), 'key': jax.random.split(jax.random.key(0), 4)}\n"
        "state = jax.device_put(state, over)\n"
        "Checkpoints(Path(sys.argv[1])).save(1, state)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    keys = jax.random.split(jax.random.key(0), 4)
    like = {name: jax.ShapeDtypeStruct((4,), t) for name, t in (("x", "f4"), ("key", keys.dtype))}
    result = Checkpoints(tmp_path).restore(1, like).state
    np.testing.assert_array_equal(result["x"], np.arange(4.0))
    np.testing.assert_array_equal(jax.random.key_data(result["key"]), jax.random.key_data(keys))
    for leaf in result.values():
        assert leaf.devices() == {jax.local_devices()[0]}
