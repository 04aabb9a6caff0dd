"""Training from a tree of JPEG files: killed and continued, within its memory, through the run."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.engine.protocol import Protocol
from everlight.scenarios.iirc import TaskConfiguration
from everlight_data.errors import DataError
from everlight_data.iirc import sets
from everlight_data.iirc.metadata import Metadata
from everlight_data.iirc.sets import IIRCRequest, load_iirc
from everlight_data.images.inputs.as_inputs import imagenet_statistics, naming_files, stream
from everlight_data.images.inputs.jpeg_store import JpegStore
from everlight_data.sets.image_set import PerClass
from everlight_experiments.continual.paper import PaperOptions
from everlight_experiments.iirc.config import IIRCConfig, PaperConfig
from everlight_experiments.iirc.paper import PAPER
from everlight_experiments.run_folder.config_options import with_config
from tests.experiments.processes.child_processes import end, pair_of_processes, start, stored_runs
from tests.experiments.processes.killed_stream import WNIDS
from tests.jpeg_tree import Mosaics, write_tree


@pytest.fixture
def mosaics(real_data):
    return Mosaics(real_data("tiny_imagenet_32x32/train_0.npz"), np.random.default_rng(0))


def start_stream(root, folder, *moment, distributed=None, devices=2):
    arguments = (root / folder, distributed, *moment)
    return start("killed_stream", root, *arguments, JAX_NUM_CPU_DEVICES=str(devices))


@pytest.mark.slow
def test_runs_killed_anywhere_end_with_the_same_bits(mosaics, tmp_path):
    """Two runs are on two devices, or one after another on one."""
    write_tree(tmp_path, mosaics, dict.fromkeys(WNIDS, (20, 5)))
    end(start_stream(tmp_path, "whole"))
    end(start_stream(tmp_path, "one", devices=1))
    killed = [start_stream(tmp_path, "killed", moment).wait() for moment in range(3)]
    end(start_stream(tmp_path, "killed"))
    assert killed.count(-9) >= 2, "few processes lived to their kill"
    full = stored_runs(tmp_path / "whole")
    assert sorted(full) == ["ER-0.npz", "ER-1.npz"]
    assert stored_runs(tmp_path / "killed") == stored_runs(tmp_path / "one") == full


@pytest.mark.slow
def test_joined_processes_read_the_images_of_their_runs(mosaics, tmp_path):
    write_tree(tmp_path, mosaics, dict.fromkeys(WNIDS, (20, 5)), smallest=40, greatest=60)
    end(start_stream(tmp_path, "one"))
    both = pair_of_processes()
    for child in [start_stream(tmp_path, "two", distributed=item, devices=1) for item in both]:
        end(child)
    assert stored_runs(tmp_path / "two") == stored_runs(tmp_path / "one")
    full, *halves = (
        int((tmp_path / name).read_text()) for name in ("one-read-0", "two-read-0", "two-read-1")
    )
    # Runs of equal shapes read equally often.
    assert halves == [full / 2] * 2


@pytest.fixture(scope="module")
def devices(real_data, tmp_path_factory):
    """Return the output of `stream_devices` for four classes of 12 + 3 small files."""
    root = tmp_path_factory.mktemp("tree")
    mosaics = Mosaics(real_data("tiny_imagenet_32x32/train_0.npz"), np.random.default_rng(0))
    write_tree(root, mosaics, dict.fromkeys(WNIDS[:4], (12, 3)), smallest=30, greatest=60)
    return json.loads(end(start("stream_devices", root, JAX_NUM_CPU_DEVICES="2")))


@pytest.mark.parametrize("name", ["naive", "icarl"])
def test_two_devices_stream_to_the_bits_of_one(devices, name):
    """Validation, herding, replayed exemplars and evaluation stream too."""
    one, two = devices[name]
    assert [len(run["bits"]) > 10 for run in one] == [True, True]
    assert one[0] != one[1]
    assert one == two


def test_streamed_they_learn_what_they_learn_from_memory(devices):
    for streamed, stored in zip(devices["naive"][0], devices["stored"], strict=True):
        np.testing.assert_allclose(streamed["losses"], stored["losses"], rtol=1e-5)
        assert np.all(np.isfinite(stored["losses"]))


def test_images_of_two_devices_are_announced_in_turn(devices):
    """The order is a batch of eight of the first run, one of the second, and so on."""
    first = devices["announced"][0]
    at = [devices["read"].index(first[begin : begin + 8]) for begin in range(0, 32, 8)]
    # Each device in its own order; neither waits for the other.
    assert at[0] < at[2]
    assert at[1] < at[3]


def test_a_broken_file_of_the_second_device_is_named(devices):
    assert devices["error"].startswith(f"{devices['broken']} is not an intact image")


GROWTH = 64_000_000
"""The limit on the process."""


@pytest.mark.slow
def test_memory_stays_below_a_tenth_of_the_tree(mosaics, tmp_path):
    """A quarter is the store's; checkpoints and JAX take 37 MB without any tree."""
    sizes = {"smallest": 500, "greatest": 1000, "quality": 95}
    write_tree(tmp_path, mosaics, dict.fromkeys(WNIDS, (345, 6)), **sizes)
    child = start("stream_memory", tmp_path, tmp_path / "runs", GROWTH // 4)
    answer = json.loads(end(child).splitlines()[-1])
    print(answer, end=" ")
    assert answer["tree"] >= 10 * GROWTH
    assert answer["growth"] < GROWTH
    assert answer["finite"]


HIERARCHY = {"fish": WNIDS[:3], "dog": WNIDS[3:5]}
CONFIGURATION = TaskConfiguration((("fish", "dog"), WNIDS[:2], (WNIDS[2], *WNIDS[3:])))
CONFIG = PaperConfig(
    IIRCConfig(
        data="iirc_imagenet_lite",
        side=16,
        per_class=(10, 2),
        protocol=Protocol(epochs=1, batch_size=8, evaluation_batch=16),
        learning_rate=0.05,
        exemplars_per_class=2,
        undecodable="skip",
    ),
    configurations=1,
    methods=("ER-balanced",),
)


@pytest.fixture
def tree(mosaics, tmp_path, monkeypatch):
    """Write six classes of 12 + 3 small files, one truncated, with two superclasses."""
    write_tree(tmp_path, mosaics, dict.fromkeys(WNIDS, (12, 3)), smallest=30, greatest=60)
    cut = tmp_path / "imagenet" / "train" / WNIDS[1] / f"{WNIDS[1]}_10.JPEG"
    cut.write_bytes(cut.read_bytes()[:300])
    metadata = Metadata(HIERARCHY, (CONFIGURATION,), 0.3)
    monkeypatch.setattr(sets, "official_metadata", lambda name: metadata)
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_undecodable_images_are_left_out_and_reported(tree):
    options = with_config(PaperOptions, CONFIG)(runs=tree / "runs")
    report = PAPER.run(options)
    page = report.read_text()
    assert "ImageNet, 16×16 pixels: 2 superclasses of 5 classes and 1 classes without one" in page
    assert "9 to 10 training images per class, 2 to 3 of them in-task validation" in page
    assert f"1 of 72 files cannot be decoded and are left out: train/{WNIDS[1]}/" in page
    assert "6 classes are listed without the other 992" in page
    with np.load(report.parent / "results.npz") as results:
        assert results["incomplete labels/ER-balanced/scores"].shape == (1, 3, 4)
    # Another file changes what the splits hold.
    (tree / "imagenet" / "train" / WNIDS[0] / f"{WNIDS[0]}_0.JPEG").unlink()
    with pytest.raises(DataError, match="files: "):
        PAPER.run(options)


def test_a_file_that_fails_within_a_program_is_named(tree):
    files, metadata = load_iirc(IIRCRequest("iirc_imagenet_lite", 8, PerClass(12, 3), 1))
    assert metadata.configurations == (CONFIGURATION,)
    store = JpegStore(files.folder, files.images, 8, 10**7)
    gather = jax.jit(stream(store, imagenet_statistics()).take)
    (place,) = np.flatnonzero(np.char.endswith(files.images, f"{WNIDS[1]}_10.JPEG".encode()))
    with naming_files(store):
        assert gather(jnp.array([0, 1]), None).shape == (2, 8, 8, 3)
    wrong = jnp.array([0, place])
    named = pytest.raises(DataError, match=f"{WNIDS[1]}_10.JPEG is not an intact image")
    with named, naming_files(store):
        np.asarray(gather(wrong, None))
    # Another error stays what it is.
    other = JpegStore(files.folder, files.images, 8, 10**7)
    with pytest.raises(ZeroDivisionError), naming_files(other):
        np.asarray(1 // 0)
