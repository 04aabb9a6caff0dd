"""Crops of JPEG files: what is read, whatever was decoded ahead, within a limit of memory."""

import threading
import time

import imagecodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from everlight_data.errors import DataError, MissingDataError
from everlight_data.images.inputs.jpeg_store import (
    JpegStore,
    UndecodableError,
    center_box,
    draw_crop,
)
from tests.jpeg_tree import Mosaics

SIDE = 56
COUNT = 30
keys_of = st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=2).map(
    lambda words: np.array(words, np.uint32)
)


@pytest.fixture(scope="module")
def files(tmp_path_factory, real_data):
    """Write thirty mosaics with sides of 200 to 400 pixels."""
    folder = tmp_path_factory.mktemp("files")
    mosaics = Mosaics(real_data("tiny_imagenet_32x32/train_0.npz"), np.random.default_rng(0))
    names = [f"{number}.JPEG" for number in range(COUNT)]
    for name in names:
        mosaics.write(folder / name, 200, 400)
    return folder, np.array(names, bytes)


def open_store(files, limit=10**8, **options):
    return JpegStore(*files, SIDE, limit, **options)


def make_keys(rng, *shape):
    return rng.integers(0, 2**32, (*shape, 2), dtype=np.uint32)


def pixels_of(folder, name):
    with Image.open(folder / name.decode()) as image:
        return image.convert("RGB").copy()


def test_evaluation_is_the_center_of_the_image_at_256_for_224(files):
    read = open_store(files).read(np.arange(COUNT))
    for crop, name in zip(read, files[1], strict=True):
        image = pixels_of(files[0], name)
        # 256 / 224 of 56 is 64.
        wide, high = (int(64 * edge / min(image.size)) for edge in image.size)
        left, upper = round((wide - SIDE) / 2), round((high - SIDE) / 2)
        full = image.resize((wide, high), Image.Resampling.BILINEAR)
        expected = np.asarray(full.crop((left, upper, left + SIDE, upper + SIDE)), int)
        assert np.max(np.abs(crop - expected)) <= 1


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_the_center_lies_in_the_image_and_is_square(width, height):
    left, upper, right, lower = center_box(width, height, 224)
    assert 0 <= left < right <= width
    assert 0 <= upper < lower <= height
    if min(width, height) >= 100:
        # Whole pixels of the resized image make it less than square by one in 256.
        np.testing.assert_allclose(right - left, 0.875 * min(width, height), rtol=0.005)
        np.testing.assert_allclose(lower - upper, 0.875 * min(width, height), rtol=0.005)


@given(st.integers(1, 2000), st.integers(1, 2000), keys_of)
def test_training_crops_keep_their_bounds(width, height, key):
    (left, upper, right, lower), _ = draw_crop(width, height, key)
    wide, high = right - left, lower - upper
    assert 0 <= left < right <= width
    assert 0 <= upper < lower <= height
    if min(width, height) >= 100:
        # Rounding takes half a pixel on either side.
        assert (wide - 0.5) / (high + 0.5) <= 4 / 3
        assert (wide + 0.5) / (high - 0.5) >= 3 / 4
        if max(width, height) <= 1.2 * min(width, height):
            assert (wide + 0.5) * (high + 0.5) >= 0.08 * width * height


def test_training_crops_are_distributed_as_described():
    drawn = [draw_crop(500, 400, key) for key in make_keys(np.random.default_rng(0), 4000)]
    (left, upper, right, lower), mirrored = (
        np.array([box for box, _ in drawn]).T,
        [flip for _, flip in drawn],
    )
    wide, high = right - left, lower - upper
    share = wide * high / 200_000
    # Areas are uniform on 0.08 to 0.6, where every aspect fits: both halves have as many.
    fits = share < 0.6
    assert abs(np.mean(share[fits] < 0.34) - 0.5) < 0.03
    ratio = np.log(wide / high)[fits]
    assert abs(np.mean(ratio)) < 0.01
    np.testing.assert_allclose(np.std(ratio), 2 * np.log(4 / 3) / np.sqrt(12), rtol=0.03)
    inside = left / np.maximum(500 - wide, 1)
    assert abs(np.mean(inside) - 0.5) < 0.02
    assert abs(np.mean(mirrored) - 0.5) < 0.03


def test_a_training_crop_is_the_drawn_box(files, rng):
    keys = make_keys(rng, COUNT)
    read = open_store(files).read(np.arange(COUNT), keys)
    turned = 0
    for crop, name, key in zip(read, files[1], keys, strict=True):
        image = pixels_of(files[0], name)
        box, mirrored = draw_crop(*image.size, key)
        cut = image.crop(box).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        expected = np.asarray(cut, int)[:, :: -1 if mirrored else 1]
        turned += mirrored
        # The border, where the filter reads beyond the crop, is left out.
        inner = slice(3, -3)
        assert np.max(np.abs(crop - expected)[inner, inner]) <= 1
    assert 5 < turned < 25


@given(st.integers(0, 2**32 - 1), st.integers(65, 400))
@settings(max_examples=15)
def test_images_read_depend_on_key_and_image_alone(files, seed, tight):
    """Images are announced once, twice, in vain or not at all, in any batches and threads."""
    rng = np.random.default_rng(seed)
    order = rng.integers(0, COUNT, 40)
    keys = make_keys(rng, 40)
    plain = open_store(files, workers=1).read(order, keys)
    limit = 20_000 * tight
    store = open_store(files, limit, workers=int(rng.integers(1, 5)))
    start = 0
    while start < 40:
        if rng.random() < 0.5:
            store.announce(rng.permutation(order)[: rng.integers(0, 40)])
        stop = start + int(rng.integers(1, 12))
        result = store.read(order[start:stop], keys[start:stop])
        np.testing.assert_array_equal(result, plain[start:stop])
        assert store.held <= limit
        start = stop


def test_images_are_decoded_ahead_up_to_half_the_limit_and_forgotten(files):
    limit = 8_000_000
    store = open_store(files, limit)
    store.announce(np.arange(COUNT))
    wait_for(lambda: store.held > 0.75 * limit / 2)
    time.sleep(0.05)
    assert store.held <= limit / 2
    store.announce(np.array([], int))
    wait_for(lambda: store.held == 0)
    store.announce(np.arange(COUNT))
    for place in range(COUNT):
        store.read(np.array([place]))
    wait_for(lambda: store.held == 0)


def test_a_reading_takes_what_was_decoded_ahead(files, monkeypatch):
    store = open_store(files)
    store.announce(np.arange(6))
    full = sum(4 * np.prod(pixels_of(files[0], name).size) for name in files[1][:6])
    wait_for(lambda: store.held == full)
    before = store.read(np.arange(6, 12))
    monkeypatch.setattr(Image, "open", None)
    store.read(np.arange(6))
    assert store.held == 0
    with pytest.raises(UndecodableError):
        store.read(np.arange(6))
    assert before.shape == (6, SIDE, SIDE, 3)


def test_images_announced_twice_are_decoded_for_two_readings(files, monkeypatch):
    """Runs that learn the same images in other orders announce them twice."""
    store = open_store(files)
    store.announce(np.array([3, 5, 3]))
    size = [4 * np.prod(pixels_of(files[0], name).size) for name in files[1]]
    wait_for(lambda: store.held == 2 * size[3] + size[5])
    monkeypatch.setattr(Image, "open", None)
    first = store.read(np.array([3, 5]))
    assert store.held == size[3]
    np.testing.assert_array_equal(store.read(np.array([3]))[0], first[0])
    assert store.held == 0


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_no_thread_outlives_its_order(files):
    store = open_store(files, 4_000_000)
    names = {thread.ident for thread in threading.enumerate()}
    store.announce(np.arange(COUNT))
    store.announce(np.array([], int))

    def started():
        return [one for one in threading.enumerate() if one.ident not in names and one.daemon]

    wait_for(lambda: not started())


def test_more_axes_are_those_of_a_vmapped_step(files, rng):
    store, index, keys = open_store(files), rng.integers(0, COUNT, (2, 3)), make_keys(rng, 2, 3)
    result = store.read(index, keys)
    assert result.shape == (2, 3, SIDE, SIDE, 3)
    np.testing.assert_array_equal(result[1], store.read(index[1], keys[1]))


def test_gray_cmyk_and_png_become_rgb(tmp_path):
    color = (200, 60, 30)
    plain = Image.new("RGB", (80, 90), color)
    plain.convert("L").save(tmp_path / "grey.JPEG")
    plain.convert("CMYK").save(tmp_path / "cmyk.JPEG", quality=95)
    plain.save(tmp_path / "png.JPEG", "PNG")
    names = np.array(["grey.JPEG", "cmyk.JPEG", "png.JPEG"], bytes)
    gray, cmyk, png = JpegStore(tmp_path, names, 8, 10**6).read(np.arange(3))
    # The weights are Rec. 601's.
    assert np.max(np.abs(gray - np.dot(color, (0.299, 0.587, 0.114)))) <= 2
    assert np.max(np.abs(cmyk - np.array(color, int))) <= 6
    np.testing.assert_array_equal(png, np.broadcast_to(color, (8, 8, 3)))


def test_hidden_colors_are_white_and_16_bits_are_refused(tmp_path):
    Image.new("RGBA", (80, 90), (200, 60, 30, 0)).save(tmp_path / "clear.JPEG", "PNG")
    deep = imagecodecs.png_encode(np.full((80, 90, 3), 4095, np.uint16))
    (tmp_path / "deep.JPEG").write_bytes(deep)
    store = JpegStore(tmp_path, np.array(["clear.JPEG", "deep.JPEG"], bytes), 8, 10**6)
    np.testing.assert_array_equal(store.read(np.array([0])), np.full((1, 8, 8, 3), 255))
    with pytest.raises(DataError, match=r"deep\.JPEG has 16 bits per channel: save with 8 bits"):
        store.read(np.array([1]))


@pytest.fixture
def damaged(files, tmp_path):
    """Return a valid file, a truncated one, one of text and a missing one."""
    content = (files[0] / "0.JPEG").read_bytes()
    (tmp_path / "whole.JPEG").write_bytes(content)
    (tmp_path / "cut.JPEG").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.JPEG").write_text("no image")
    return tmp_path, np.array(["whole.JPEG", "cut.JPEG", "text.JPEG", "gone.JPEG"], bytes)


@pytest.mark.parametrize("announced", [False, True])
@pytest.mark.parametrize(
    ("place", "error", "message"),
    [
        (1, UndecodableError, r"cut.JPEG is not an intact image \(.*truncated"),
        (2, UndecodableError, "text.JPEG is not an intact image"),
        (3, MissingDataError, "gone.JPEG does not exist"),
    ],
)
def test_damaged_images_are_named_and_release_their_memory(
    damaged, place, error, message, announced
):
    store = open_store(damaged)
    if announced:
        store.announce(np.array([0, place]))
        time.sleep(0.05)
    with pytest.raises(error, match=message):
        store.read(np.array([0, place]))
    assert error is type(store.failure)
    wait_for(lambda: store.held == 0)


def test_files_that_are_no_images_are_found(damaged):
    store = open_store(damaged)
    np.testing.assert_array_equal(store.undecodable(np.array([2, 0, 1])), [2, 1])
    with pytest.raises(DataError, match=r"gone.JPEG does not exist"):
        store.undecodable(np.arange(4))


def test_an_image_that_does_not_fit_is_refused(files):
    width, height = pixels_of(files[0], files[1][0]).size
    store = open_store(files, 8 * width * height - 2)
    store.announce(np.arange(1))
    with pytest.raises(DataError, match=rf"0.JPEG takes {4 * width * height:,} bytes .* raise"):
        store.read(np.arange(1))
    assert open_store(files, 8 * width * height).read(np.arange(1)).shape == (1, SIDE, SIDE, 3)
