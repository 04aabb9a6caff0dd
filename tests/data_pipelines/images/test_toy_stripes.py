"""The toy data set: listed, loaded and trained on by its name alone."""

import os

import numpy as np
import pytest

from everlight_data.image_requests import load_images
from everlight_data.sets.data_set import ImageRequest
from everlight_experiments import cli


@pytest.fixture
def stored(tmp_path, monkeypatch):
    labels = np.repeat(np.arange(4), 10)
    rows = np.arange(8) % (labels[:, None] + 2) == 0
    file = tmp_path / "toy_stripes/stripes.npz"
    file.parent.mkdir()
    np.savez(file, images=np.repeat(255 * rows[..., None], 8, 2).astype(np.uint8), labels=labels)
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))


def test_it_is_listed_and_loaded(stored, capsys):
    cli.main(["data", "list"])
    assert "toy-stripes: present\n  content: toy stripes" in capsys.readouterr().out
    images, note = load_images(ImageRequest("toy-stripes", 4))
    assert images.images.shape == (40, 4, 4, 1)
    np.testing.assert_array_equal(np.bincount(images.test_labels), [2] * 4)
    assert note == "toy stripes: 4 classes at 4×4 pixels, grey"


def test_run_takes_it_by_name(stored, tmp_path):
    words = "run images --data toy-stripes --tasks 2 --net mlp:8 --methods naive --seeds 1"
    cli.main([*words.split(), "--runs", os.fspath(tmp_path / "runs")])
    assert [*tmp_path.glob("runs/**/report.html")]
