"""Small files that would unpack to a large memory: the readers' peaks are measured."""

import io
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest

from everlight_data.arrays import read_npz
from everlight_data.color.s20 import ARCHIVE, load_s20
from everlight_data.errors import DataError, MissingDataError
from everlight_data.files import one_line
from everlight_data.torch_state import read_torch_state
from everlight_data.unpickle import load_restricted
from tests.data_pipelines.color.test_s20 import as_npy, release_pair
from tests.data_pipelines.test_hostile_pickles import HEADER, call, dtype
from tests.data_pipelines.test_torch_state import FLOATS, state, tensor, write


def peak_of(read):
    """Peak of the memory that a call allocates, NumPy's arrays included, in bytes."""
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(read, message):
    def call():
        with pytest.raises((DataError, MissingDataError), match=message):
            read()

    return call


def test_scalars_that_repeat_the_same_bytes_are_refused():
    """A scalar copies its bytes; 1,000 of 100 kB from one string would be 100 MB."""
    size = 100_000
    text = dtype(f"S{size}", (3, "|", None, None, None, size, 1, 0))
    content = HEADER + b"(B" + size.to_bytes(4, "little") + bytes([65]) * size + b"q\x20" + text
    content += b"q\x21" + call("numpy.core.multiarray", "scalar", b"h\x21", b"h\x20") * 1000
    read = refused(lambda: load_restricted(content + b"l.", "crafted"), "over and over")
    assert peak_of(read) < 20 * size


@pytest.mark.parametrize("kind", ["integers", "complex numbers"])
def test_keys_of_one_hash_are_refused(kind):
    """Multiples of 2⁶¹ − 1 all have the hash 0, and real and imaginary parts can cancel."""
    prime = 2**61 - 1
    keys = [number * prime if kind == "integers" else complex(number, -number) for number in (3, 4)]
    assert kind != "integers" or len({hash(key) for key in keys}) == 1
    with pytest.raises(DataError, match="key"):
        load_restricted(pickle.dumps(dict.fromkeys(keys)), "crafted")
    assert load_restricted(pickle.dumps({2**59: 1}), "crafted") == {2**59: 1}


def test_pairs_of_an_archive_are_read_one_at_a_time(tmp_path):
    """Forty members of 0.9 MB, which deflate to nothing."""
    with zipfile.ZipFile(tmp_path / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        for index in range(40):
            pair = release_pair(index) | {"more": np.zeros(900_000, np.uint8)}
            archive.writestr(f"Metadata_Image_Pairs/RAW_{index:04}.npy", as_npy(pair))
    assert (tmp_path / ARCHIVE).stat().st_size < 200_000
    assert peak_of(refused(lambda: load_s20(tmp_path), r"idx_parts|\.mat")) < 8_000_000


def test_an_npz_is_held_once(tmp_path):
    path, array = tmp_path / "some.npz", np.random.default_rng(0).random(2_500_000)
    np.savez(path, array=array)
    assert peak_of(lambda: read_npz(path, "Again.")) < 1.2 * array.nbytes


def test_weights_that_repeat_their_numbers_are_refused(tmp_path):
    same = {f"t{number}": tensor("1", 12, (12,), (0,)) for number in range(400)}
    path = write(tmp_path / "state.pth", state(**same), {"1": FLOATS})
    assert len(read_torch_state(path, "Again.")) == 400
    many = np.zeros(20_000, "<f4")
    wide = {name: tensor("1", len(many), (len(many),), (0,)) for name in same}
    path = write(tmp_path / "state.pth", state(**wide), {"1": many})
    read = refused(lambda: read_torch_state(path, "Again."), "over and over")
    assert peak_of(read) < 40 * path.stat().st_size


def test_what_a_file_says_cannot_steer_a_terminal():
    assert one_line("a\x1b[2J\x07\u202eb") == "a?[2J??b"
    name = "\x1b]0;owned\x07"
    stream = io.BytesIO(pickle.dumps(np.zeros(1)).replace(b"numpy", b"n\x1bmpy"))
    with pytest.raises(DataError) as caught:
        load_restricted(stream, "crafted")
    assert name not in str(caught.value)
    assert str(caught.value).isprintable()
