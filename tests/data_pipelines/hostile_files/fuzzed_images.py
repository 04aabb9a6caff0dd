"""Valid files of images and of colour constancy sets, and their readers."""

import gzip
import json
import shutil
import zipfile

import imagecodecs
import numpy as np
import scipy.io

from everlight_data.color.cube_plus import load_cube_plus
from everlight_data.color.gehler_shi import load_gehler_shi
from everlight_data.color.intel_tau import load_intel_tau
from everlight_data.color.photographs.thumbnails import thumbnail_set
from everlight_data.facts.parts.split_files import read_images
from everlight_data.images.core50.prepared import load_core50, prepare_core50
from everlight_data.images.inputs.jpeg_store import JpegStore
from everlight_data.images.published_forms.idx_folders import load_idx
from everlight_data.images.published_forms.prepared_sets import load_published
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32
from everlight_data.images.user_files.user_images import load_user_images
from tests.data_pipelines.images.published_copies import (
    class_folders,
    data_set,
    drawn,
    prepared,
    published,
    write,
)
from tests.data_pipelines.prepared import zipped


def frames(folder, rng):
    source = folder / "release"
    for session, number, frame in ((1, 1, 0), (1, 2, 3), (11, 50, 7)):
        path = source / f"s{session}/o{number}/C_{session:02}_{number:02}_{frame:03}.png"
        path.parent.mkdir(parents=True)
        pixels = np.kron(rng.integers(0, 256, (16, 16, 3)), np.ones((8, 8, 1))).astype(np.uint8)
        path.write_bytes(imagecodecs.png_encode(pixels))
    return source


def core50_zip(folder, rng):
    source, archive = frames(folder, rng), folder / "core50.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(source.rglob("*.png")):
            packed.write(path, path.relative_to(source))

    def read():
        prepared = folder / "prepared"
        try:
            return prepare_core50(archive, prepared, partial=True)
        finally:
            if prepared.exists() and not (prepared / "images_128.npy").exists():
                assert [path.name for path in prepared.iterdir()] == [".lock"], "something is left"
            shutil.rmtree(prepared, ignore_errors=True)

    return [archive], read


def core50_prepared(folder, rng):
    prepared = folder / "prepared"
    prepare_core50(frames(folder, rng), prepared, partial=True)
    load_core50(32, prepared, partial=True)
    expected = {side: np.array(load_core50(side, prepared, partial=True).images) for side in (128,)}

    def read():
        for side in (128, 32):
            result = load_core50(side, prepared, partial=True)
            # Everything that is loaded is right.
            if side in expected:
                np.testing.assert_array_equal(result.images, expected[side])

    return sorted(prepared.glob("*.*")), read


def tiny_imagenet(folder, rng):
    root = folder / "tiny_imagenet_32x32"
    root.mkdir()
    jpeg = np.frombuffer(imagecodecs.jpeg8_encode(np.zeros((32, 32, 3), np.uint8)), np.uint8)
    part = {
        "jpeg_bytes": np.concatenate([jpeg, jpeg]),
        "offsets": np.array([0, len(jpeg), 2 * len(jpeg)]),
        "label": np.array([0, 1]),
    }
    for name in ("train_0", "train_1", "val"):
        np.savez(root / f"{name}.npz", **part)
    (root / "classes.json").write_text(json.dumps({"names": ["a", "b"], "wnids": ["n0", "n1"]}))
    return sorted(root.iterdir()), load_tiny_imagenet_32


def photographs(folder, rng):
    pixels = np.kron(rng.integers(0, 256, (8, 8, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    (folder / "a.jpg").write_bytes(imagecodecs.jpeg8_encode(pixels))
    (folder / "b.png").write_bytes(imagecodecs.png_encode(pixels))
    store = JpegStore(folder, np.array([b"a.jpg", b"b.png"]), 16, 50_000_000, 1)

    def read():
        read_images(folder, ["a.jpg", "b.png"], 16)
        store.read(np.array([0, 1]))

    return [folder / "a.jpg", folder / "b.png"], read


def user_images(folder, rng):
    """Write a csv and its files, and an npz."""
    source = folder / "mine"
    source.mkdir()
    pixels = rng.integers(0, 256, (6, 12, 10, 3), np.uint8)
    labels = ["cat", "é"] * 3
    files = [source / f"{number}.{'jpg' if number % 2 else 'png'}" for number in range(6)]
    for path, image in zip(files, pixels, strict=True):
        encode = imagecodecs.jpeg8_encode if path.suffix == ".jpg" else imagecodecs.png_encode
        path.write_bytes(encode(image))
    rows = [f"{path.name},{label}\n" for path, label in zip(files, labels, strict=True)]
    table, arrays = source / "mine.csv", folder / "mine.npz"
    table.write_text("".join(["file,label\n", *rows]))
    np.savez(arrays, images=pixels, labels=np.array(labels))

    def read():
        load_user_images(str(table), 8, 3)
        load_user_images(str(arrays), 8, 3)

    return [table, arrays, *files], read


def idx(folder, rng):
    """Write four files, of which two are compressed."""
    source = folder / "idx"
    source.mkdir()
    for part, count in (("train", 6), ("t10k", 4)):
        images = rng.integers(0, 256, (count, 4, 4), np.uint8)
        for file, array in (("images-idx3", images), ("labels-idx1", np.arange(count) % 2)):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            content = header + array.astype(np.uint8).tobytes()
            end, pack = (".gz", gzip.compress) if part == "t10k" else ("", bytes)
            (source / f"{part}-{file}-ubyte{end}").write_bytes(pack(content))
    return sorted(source.iterdir()), lambda: load_idx(source)


def published_set(folder, rng):
    """Write a prepared set, of which only the right labels are read."""
    images = drawn(rng, 4)
    known = published(images)
    prepared(data_set(known), write(folder / "source", class_folders(images)), folder / "fruit")
    return sorted((folder / "fruit").glob("[!m.]*")), lambda: load_published(
        folder / "fruit", known
    )


def published_source(folder, rng):
    """Write a zip of class folders."""
    images = drawn(rng, 4)
    row = data_set(published(images))
    source = zipped(folder / "source.zip", class_folders(images))

    def read():
        try:
            prepared(row, source, folder / "fruit")
        finally:
            shutil.rmtree(folder / "fruit", ignore_errors=True)

    return [source], read


def every_photograph(result):
    for camera in result.values():
        for index in range(len(camera.names)):
            camera.read_image(index)


def constancy_thumbnails(folder, rng):
    path = folder / "mine.npz"
    images, illuminants = rng.uniform(0, 1, (3, 8, 9, 3)), rng.uniform(0.1, 1, (3, 3))
    np.savez(path, images=images, illuminant_rgb=illuminants, names=np.array(["a_1", "a_2", "é_1"]))
    return [path], lambda: every_photograph(thumbnail_set(path))


def picture(rng):
    return rng.integers(2_100, 4_000, (16, 24, 3), np.uint16)


def cube_plus_release(folder, rng):
    truth, path = folder / "cube+_gt.txt", folder / "1.PNG"
    truth.write_text("0.3 0.5 0.2\n")
    path.write_bytes(imagecodecs.png_encode(picture(rng)))
    return [truth, path], lambda: every_photograph(load_cube_plus(folder))


def gehler_release(folder, rng):
    truth, path = folder / "real_illum_568.mat", folder / "png" / "8D5U5524.png"
    chart = folder / "8D5U5524_macbeth.txt"
    path.parent.mkdir()
    scipy.io.savemat(truth, {"real_rgb": rng.uniform(0.1, 1, (1, 3))})
    path.write_bytes(imagecodecs.png_encode(picture(rng)))
    chart.write_text("24 16\n2 2\n2 6\n6 2\n6 6\n")
    return [truth, path, chart], lambda: every_photograph(load_gehler_shi(folder))


def intel_release(folder, rng):
    path = folder / "Canon_5DSR" / "field" / "a_001.tiff"
    path.parent.mkdir(parents=True)
    path.write_bytes(imagecodecs.tiff_encode(picture(rng)))
    path.with_suffix(".wp").write_text("0.3,0.5,0.2")
    return [path, path.with_suffix(".wp")], lambda: every_photograph(load_intel_tau(folder))


READERS = (
    *(core50_zip, core50_prepared, tiny_imagenet, photographs, user_images, idx),
    *(published_set, published_source),
    *(constancy_thumbnails, cube_plus_release, gehler_release, intel_release),
)
