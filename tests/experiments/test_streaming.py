"""Training from a tree of JPEG files: killed and continued, within its memory, through the run."""

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.experiments.killed_stream import WNIDS
from tests.jpeg_tree import Mosaics, write_tree


@pytest.fixture
def mosaics(real_data):
    return Mosaics(real_data("tiny_imagenet_32x32/train_0.npz"), np.random.default_rng(0))


def run_child(module, root, *arguments):
    command = [sys.executable, "-m", f"tests.experiments.{module}", *map(str, arguments)]
    environment = os.environ | {"EVERLIGHT_DATA": str(root)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_killed_anywhere_it_ends_with_the_same_bits(mosaics, tmp_path):
    write_tree(tmp_path, mosaics, dict.fromkeys(WNIDS, (20, 5)))

    def run(folder, *moment):
        return run_child(
            "killed_stream", tmp_path, tmp_path / folder, tmp_path / f"{folder}.npz", *moment
        )

    whole = run("whole")
    assert whole.returncode == 0, whole.stderr
    killed = [run("killed", moment).returncode for moment in range(3)]
    assert killed.count(-9) >= 2, "few processes lived to their kill"
    assert run("killed").returncode == 0
    with np.load(tmp_path / "whole.npz") as whole, np.load(tmp_path / "killed.npz") as resumed:
        assert len(whole.files) > 10
        for name in whole.files:
            np.testing.assert_array_equal(whole[name], resumed[name])
