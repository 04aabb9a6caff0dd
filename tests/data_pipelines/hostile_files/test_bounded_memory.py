"""Small files that would unpack to a large memory: the readers' peaks are measured."""

import gc
import io
import pickle
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

from everlight_data.color.photographs.thumbnails import read_thumbnails
from everlight_data.color.s20 import ARCHIVE, MAX_PAIR_BYTES, MAX_PAIRS, load_s20
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.arrays import read_npz
from everlight_data.formats.pickle_values import MAX_NUMERIC_KEYS
from everlight_data.formats.torch_state import read_torch_state
from everlight_data.formats.unpickle import load_restricted
from everlight_data.texts import one_line
from tests import refusals
from tests.data_pipelines.color.s20_files import as_npy, release_pair
from tests.data_pipelines.formats.torch_files import FLOATS, state, tensor, write
from tests.data_pipelines.hostile_files.pickle_codes import (
    BYTE,
    FLOAT,
    HEADER,
    array,
    call,
    dtype,
    short,
)


def peak_of(read):
    """Return the peak in bytes of the memory that a call allocates, NumPy's arrays included.

    The smaller of two: threads that other tests left, like a decoder's, allocate beside a call.
    """
    # The more objects the last collection left, the later Python collects cycles of new ones.
    gc.collect()
    gc.freeze()
    try:
        return min(_traced_peak(read) for _ in range(2))
    finally:
        gc.unfreeze()


def _traced_peak(read):
    gc.collect()
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(read, message):
    """Return a function that checks the refusal."""
    return lambda: refusals.refused(message, read, (DataError, MissingDataError))


def test_scalars_that_repeat_the_same_bytes_are_refused():
    """A scalar copies its bytes; 1,000 of 100 kB from one string would be 100 MB."""
    size = 100_000
    text = dtype(f"S{size}", (3, "|", None, None, None, size, 1, 0))
    content = HEADER + b"(B" + size.to_bytes(4, "little") + bytes([65]) * size + b"q\x20" + text
    content += b"q\x21" + call("numpy.core.multiarray", "scalar", b"h\x21", b"h\x20") * 1000
    read = refused(lambda: load_restricted(content + b"l.", "crafted"), "over and over")
    assert peak_of(read) < 20 * size


def test_text_that_is_checked_again_and_again_is_refused():
    """60,000 arrays over one text of 1 MB took 18 seconds."""
    size = 100_000
    function = short("numpy.core.numeric") + short("_frombuffer") + b"\x93q\x200"
    kind = dtype(f"U{size // 4}", (3, "<", None, None, None, size, 4, 8))
    text = b"B" + size.to_bytes(4, "little") + b"a\0\0\0" * (size // 4)
    content = HEADER + function + b"(" + text + kind + b"K\x01\x85" + short("C") + b"tq\x210("
    with pytest.raises(DataError, match="over and over"):
        load_restricted(content + b"h\x20h\x21R" * 1000 + b"l.", "crafted")


def test_numbers_as_keys_are_counted():
    """Python's hashes of numbers are known, so keys can be chosen that all meet in a dict.

    Multiples of 2⁶¹ − 1 have the hash 0. Numbers of any size below can be chosen to walk the same
    slots: 3 MB of them took 166 seconds.
    """
    few, many = (dict.fromkeys(range(count)) for count in (MAX_NUMERIC_KEYS, MAX_NUMERIC_KEYS + 1))
    assert load_restricted(pickle.dumps(few), "valid") == few
    assert load_restricted(pickle.dumps({str(key): 0 for key in many}), "valid")
    halves = [set(range(600)), {float(key): 0 for key in range(600)}]
    # The numbers are in a list, of which a set is made twice.
    items = b"(" + b"".join(b"M" + key.to_bytes(2, "little") for key in range(600)) + b"lq\x00"
    twice = call("builtins", "frozenset", b"h\x00") * 2
    for content in (pickle.dumps(many), pickle.dumps(halves), HEADER + items + twice + b"\x86."):
        with pytest.raises(DataError, match="numbers as keys"):
            load_restricted(content, "crafted")
    with pytest.raises(DataError, match="key that is neither a number nor text"):
        load_restricted(pickle.dumps({complex(3, -3): 0}), "crafted")


def views(count):
    """Return arrays of 32 dimensions, all over the same byte."""
    function = short("numpy.core.numeric") + short("_frombuffer") + b"\x93q\x200"
    parts = b"C\x01a" + BYTE + b"(" + b"K\x01" * 32 + b"t" + short("C")
    return function + b"(" + parts + b"tq\x210(" + b"h\x20h\x21R" * count + b"l"


COUNT = 50_000
TYPE = short("numpy") + short("dtype") + b"\x93q\x200(" + short("f8") + b"\x89\x88tq\x210("
SETS = b"(" + b"N" * 1000 + b"lq\x40(" + call("builtins", "set", b"h\x40") * 20
SMALL_OBJECTS = {
    "sets": b"(" + b"\x8f" * COUNT + b"l",
    "dicts": b"(" + b"}" * COUNT + b"l",
    "lists": b"(" + b"]" * COUNT + b"l",
    "tuples": b"(" + b"N\x85" * COUNT + b"l",
    "views": views(COUNT),
    "types": TYPE + b"h\x20h\x21R" * COUNT + b"l",
    "memo": b"N" + b"\x94" * COUNT,
    "sets of one list": SETS + b"B" + COUNT.to_bytes(4, "little") + b"a" * COUNT + b"l",
}


@pytest.mark.parametrize("name", SMALL_OBJECTS)
def test_small_objects_are_charged(name, monkeypatch):
    """1.9 MB of empty sets took 700 MB and 9 seconds; one byte creates one."""
    monkeypatch.setattr("everlight_data.formats.pickle_values.MAX_OBJECT_BYTES", 1_000_000)
    content = HEADER + SMALL_OBJECTS[name] + b"."
    read = refused(lambda: load_restricted(content, "crafted"), "for its size")
    assert peak_of(read) < 1_500_000 + 3 * len(content)


@pytest.mark.parametrize(
    "content", [b"(" * COUNT + b"N", b"(" + b"N" * COUNT + b"l"], ids=["marks", "constants"]
)
def test_marks_and_constants_take_no_memory_of_their_own(content):
    read = HEADER + content + b"."
    assert peak_of(lambda: load_restricted(read, "crafted")) < 35 * len(read)


def test_a_pickle_of_400_000_objects_is_read():
    """CIFAR-100's has as many: names of files and two lists of labels."""
    names = [f"picture_s_{index:06}.png".encode() for index in range(50_000)]
    labels = list(range(100)) * 500
    valid = {"filenames": names, "fine_labels": labels, "coarse_labels": labels[::-1]}
    assert load_restricted(pickle.dumps(valid, 2), "valid") == valid


def test_an_array_that_is_built_over_and_over_takes_linear_time():
    """20,000 copies on the stack would each go through 20,000 memo entries of an array."""
    count = 20_000
    unbuilt = array(b"", b"")[: array(b"", b"").index(b"(K\x01")]
    state = b"(K\x01K\x00\x85" + FLOAT + b"\x89C\x00tq\x000"
    places = b"".join(b"r" + place.to_bytes(4, "little") for place in range(1, count + 1))
    content = HEADER + state + unbuilt + places + b"2" * count + b"h\x00b0" * count + b"N."
    begun = time.process_time()
    assert load_restricted(content, "crafted") is None
    assert time.process_time() - begun < 5


def test_pairs_of_an_archive_are_read_one_at_a_time(tmp_path):
    """Few of 2,000 members of 10 kB, which deflate to nothing, are in memory at a time."""
    more = {"more": np.zeros(MAX_PAIR_BYTES // 2, np.uint8)}
    with zipfile.ZipFile(tmp_path / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        for index in range(2_000):
            archive.writestr(f"{index:04}.npy", as_npy(release_pair(index) | more))
    assert peak_of(refused(lambda: load_s20(tmp_path), r"idx_parts|\.mat")) < 8_000_000


def test_large_pairs_and_too_many_are_refused(tmp_path):
    """5,000 members of 1 MB with a million objects each would take an hour, in 5 MB of zip."""
    with zipfile.ZipFile(tmp_path / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        pair = release_pair(0) | {"more": [None] * MAX_PAIR_BYTES}
        archive.writestr("0000.npy", as_npy(pair))
    with pytest.raises(DataError, match=r"0000\.npy claims [\d,]+ bytes, more than allowed"):
        load_s20(tmp_path)
    with zipfile.ZipFile(tmp_path / ARCHIVE, "w") as archive:
        for index in range(MAX_PAIRS + 1):
            archive.writestr(f"{index}.npy", b"")
    with pytest.raises(DataError, match=r"20,001 pairs, more than the limit of 20,000"):
        load_s20(tmp_path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("kind", ["random", "zeros"])
def test_an_npz_is_held_once(save, kind, tmp_path):
    """Deflated zeros are the case of a file that unpacks to a thousand times its size."""
    array = np.random.default_rng(0).random(2_500_000)
    path, array = tmp_path / "some.npz", array if kind == "random" else np.zeros_like(array)
    save(path, array=array)
    assert peak_of(lambda: read_npz(path, "Again.")) < 1.3 * array.nbytes


@pytest.mark.parametrize("shape", [(2_000_000,), (1, 2_000_000)])
@pytest.mark.parametrize("kind", ["?", "f8"])
def test_names_of_thumbnails_are_counted_before_they_become_text(shape, kind, tmp_path):
    """100 million booleans in 0.1 MB took 2.2 GB."""
    path, names = tmp_path / "thumbnails.npz", np.zeros(shape, kind)
    images, illuminants = np.full((1, 8, 8, 3), 0.5), np.ones((1, 3))
    np.savez_compressed(path, images=images, illuminant_rgb=illuminants, names=names)
    read = refused(
        lambda: read_thumbnails(path, "Again."), r"names have dtype \w+ and shape .*Again\."
    )
    assert peak_of(read) < 2 * names.nbytes + 2_000_000


def test_weights_that_repeat_their_numbers_are_refused(tmp_path):
    same = {f"t{number}": tensor("1", 12, (12,), (0,)) for number in range(400)}
    path = write(tmp_path / "state.pth", state(**same), {"1": FLOATS})
    assert len(read_torch_state(path, "Again.")) == 400
    many = np.zeros(20_000, "<f4")
    wide = {name: tensor("1", len(many), (len(many),), (0,)) for name in same}
    path = write(tmp_path / "state.pth", state(**wide), {"1": many})
    read = refused(lambda: read_torch_state(path, "Again."), "over and over")
    assert peak_of(read) < 40 * path.stat().st_size


def test_texts_of_a_file_cannot_control_a_terminal():
    assert one_line("a\x1b[2J\x07\u202eb") == "a?[2J??b"
    name = "\x1b]0;owned\x07"
    stream = io.BytesIO(pickle.dumps(np.zeros(1)).replace(b"numpy", b"n\x1bmpy"))
    with pytest.raises(DataError) as caught:
        load_restricted(stream, "crafted")
    assert name not in str(caught.value)
    assert str(caught.value).isprintable()
