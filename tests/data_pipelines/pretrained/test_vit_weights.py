"""Checkpoints of the release's layout: what is read, and what is refused with which words."""

import numpy as np
import pytest

from everlight.models import VisionTransformer, vit_layers
from everlight_data.errors import DataError, MissingDataError
from everlight_data.pretrained import vit_weights
from everlight_data.pretrained.vit_weights import load_vit_checkpoint, pretrained_vit
from tests import refusals
from tests.models.released_vit import released_arrays

NET = VisionTransformer(5, 2, 6, 1, 2, 8)


@pytest.fixture
def arrays(rng):
    return released_arrays(NET, 2, rng)


def test_a_file_of_the_release_gives_its_layers(tmp_path, arrays):
    np.savez(tmp_path / "vit.npz", **arrays)
    read = load_vit_checkpoint(tmp_path / "vit.npz")
    assert set(read) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
    for side in (4, 10):
        result, expected = (
            pretrained_vit(tmp_path / "vit.npz", NET, side),
            vit_layers(NET, arrays, side),
        )
        assert set(result) == {"embedding", "cls", "position", "block0", "norm"}
        np.testing.assert_array_equal(result["position"], expected["position"])
        kernel = arrays["Transformer/encoderblock_0/MultiHeadDotProductAttention_1/out/kernel"]
        np.testing.assert_array_equal(result["block0"]["out"]["kernel"], kernel.reshape(6, 6))


def refused(path, arrays, **changed):
    stored = {name: array for name, array in (arrays | changed).items() if array is not None}
    np.savez(path, **stored)
    message = refusals.refused(None, lambda: pretrained_vit(path, NET, 4), DataError)
    assert message.startswith(str(path))
    assert "imagenet21k/ViT-B_16.npz" in message
    return message


def test_missing_and_wrong_arrays_are_named_with_the_file(tmp_path, arrays, monkeypatch):
    path = tmp_path / "vit.npz"
    assert "cls is missing" in refused(path, arrays, cls=None)
    assert "cls has the shape (1, 1, 7)" in refused(path, arrays, cls=np.zeros((1, 1, 7)))
    assert "cls is int64" in refused(path, arrays, cls=np.zeros((1, 1, 6), int))
    assert "or not finite" in refused(path, arrays, cls=np.full((1, 1, 6), np.nan))
    assert "extra is not an array of" in refused(path, arrays, extra=np.zeros(2))
    monkeypatch.setattr(vit_weights, "MAX_BYTES", 1_000)
    assert "more than the limit of 1,000" in refused(path, arrays)
    path.write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(DataError, match=r"vit\.npz is damaged or not the expected file"):
        load_vit_checkpoint(path)
    with pytest.raises(MissingDataError, match=r"none\.npz does not exist\. Give a checkpoint of"):
        load_vit_checkpoint(tmp_path / "none.npz")
