"""Feeds mutated files to readers: `SEED COUNT READER ...`; ends badly where a reader does.

A reader may return or refuse by a DataError of one line that names a file. Anything else, more than
`SECONDS` for a file or `MEMORY` more than the whole file takes is a failure, printed as one line of
reader and case, by which it can be repeated.
"""

import gzip
import json
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path

import imagecodecs
import numpy as np
import scipy.io

from everlight_data.arrays import read_npz
from everlight_data.color.chart_pairs import given_charts
from everlight_data.color.constancy_sets import cube_plus, gehler_shi, intel_tau, thumbnail_set
from everlight_data.color.image_sets import read_folds
from everlight_data.color.nus import load_official, load_same_scene_pairs
from everlight_data.color.raw import read_raw
from everlight_data.color.s20 import ARCHIVE, FOLDS, load_s20
from everlight_data.color.spectra import measured_library
from everlight_data.color.view_pairs import read_homography
from everlight_data.data_sets import DATA_SETS
from everlight_data.errors import DataError
from everlight_data.facts.splits import (
    Fact,
    FactSamples,
    FactSet,
    read_images,
    read_split,
    write_split,
)
from everlight_data.facts.vrd import PREDICATES, load_vrd
from everlight_data.facts.word_vectors import load_word_vectors
from everlight_data.files import read_csv, read_json
from everlight_data.images.caffe_weights import load_caffe_weights
from everlight_data.images.core50 import load_core50, prepare_core50
from everlight_data.images.idx import load_idx
from everlight_data.images.jpeg_store import JpegStore
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32
from everlight_data.images.user_images import load_user_images
from everlight_data.matlab import read_mat
from everlight_data.preparing import MANIFEST, read_manifest
from everlight_data.torch_state import read_torch_state
from everlight_data.unpickle import load_npy_restricted, load_restricted
from everlight_data.writing import read_sealed, save_sealed
from tests.data_pipelines.test_torch_state import state, tensor, write
from tests.dng_writer import write_dng
from tests.nus_files import MAIN, render, write_camera

SECONDS = 20
MEMORY = 500_000_000
SHOWN = 1_500
"""Characters that a message may have."""

Read = Callable[[], object]
Reader = Callable[[Path, np.random.Generator], tuple[list[Path], Read]]
"""Writes honest files into a folder; gives those to be mutated, and what reads them."""


def pickles(folder, rng):
    path = folder / "some.pickle"
    objects = np.array([{"a": rng.normal(size=3)}, None], dtype=object)
    content = {"x": rng.normal(size=(2, 3)), "y": [1, 2**70, "é", (b"\0", {3})], "z": objects}
    path.write_bytes(pickle.dumps(content, int(rng.integers(5))))
    encoding = ["ASCII", "latin1", "bytes"][rng.integers(3)]
    return [path], lambda: load_restricted(path, str(path), encoding)


def npy_objects(folder, rng):
    path = folder / "some.npy"
    np.save(path, np.array({"a": rng.normal(size=3), "b": "text"}), allow_pickle=True)
    return [path], lambda: load_npy_restricted(path.read_bytes(), str(path))


def npz(folder, rng):
    path = folder / "some.npz"
    save = [np.savez, np.savez_compressed][rng.integers(2)]
    save(path, a=rng.normal(size=(3, 4)), b=np.array(["é", "text"]), c=np.asfortranarray(np.eye(3)))
    return [path], lambda: read_npz(path, "Again.")


def sealed(folder, rng):
    path = folder / "unit.npz"
    save_sealed(path, a=rng.normal(size=(3, 4)))
    return [path], lambda: read_sealed(path, "Again.")


def mat(folder, rng):
    path = folder / "some.mat"
    cells = np.empty((2, 1), object)
    cells[:, 0] = ["name", rng.normal(size=3)]
    written = {"cells": cells, "x": rng.integers(0, 9, (3, 4)), "s": {"a": 1}, "t": "text"}
    scipy.io.savemat(path, written, do_compression=bool(rng.integers(2)))
    return [path], lambda: read_mat(path, ["cells", "x", "t"])


def s20(folder, rng):
    transforms = ("image_1to2", "image_2to1", "chart_1to2", "chart_2to1")
    with zipfile.ZipFile(folder / ARCHIVE, "w") as archive:
        for index in range(3):
            pair = {f"transform_{name}": np.eye(3) for name in transforms}
            for name in ("wb_gt_1", "wb_gt_2", "as_shot_neutral_1", "as_shot_neutral_2"):
                pair[name] = rng.uniform(0.5, 1, 3)
            with archive.open(f"RAW_{index:04}.npy", "w") as member:
                np.save(member, np.array(pair), allow_pickle=True)
    scipy.io.savemat(folder / FOLDS, {"idx_parts_no_rep": np.array([[0], [1], [2]])})
    return [folder / ARCHIVE, folder / FOLDS], lambda: load_s20(folder)


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
            found = load_core50(side, prepared, partial=True)
            # What is loaded at all is right.
            if side in expected:
                np.testing.assert_array_equal(found.images, expected[side])

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


def vrd(folder, rng):
    path = folder / "vrd_spo_facts" / "vrd_annotations.zip"
    path.parent.mkdir()
    relation = {
        "predicate": PREDICATES.index("hold"),
        "subject": {"category": 0, "bbox": [1, 5, 1, 9]},
        "object": {"category": 1, "bbox": [2, 4, 3, 8]},
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("all/objects.json", '["dog", "tree"]')
        for part in ("train", "test"):
            archive.writestr(f"annotations_{part}.json", json.dumps({"a.jpg": [relation], "b": []}))
    return [path], load_vrd


def nus_release(folder, rng):
    _, images, charts, lights = render(rng, 2)
    write_camera(folder, MAIN, images[0], charts[0], lights[0])

    def read():
        camera = load_official(folder, MAIN)
        camera.read_image(0)
        camera.read_chart(0)

    return [path for path in sorted((folder / MAIN).rglob("*")) if path.is_file()], read


def nus_thumbnails(folder, rng):
    path, pairs = folder / "SonyA57.npz", folder / "pairs_NikonD5200_Canon1DsMkIII.csv"
    np.savez(
        path,
        names=np.array(["SonyA57_1", "SonyA57_2"]),
        images_u16=rng.integers(0, 65536, (2, 64, 64, 3), np.uint16),
        illuminant_rgb=rng.uniform(0.1, 1, (2, 3)),
    )
    pairs.write_text("nikon,canon,structure_similarity\na,b,0.5\nc,d,0.25\n")

    def read():
        thumbnail_set(path)
        load_same_scene_pairs(folder)

    return [path, pairs], read


def facts(folder, rng):
    known = tuple(Fact(*words) for words in (("dog",), ("dog", "ride"), ("dog", "ride", "cow")))
    samples = FactSamples(("a.jpg", "b.jpg", "a.jpg"), np.array([0, 1, 2]))
    write_split(folder / "split", FactSet("made up", known, samples, samples), np.array([0, 1, 1]))
    return sorted((folder / "split").iterdir()), lambda: read_split(folder / "split")


def photographs(folder, rng):
    pixels = np.kron(rng.integers(0, 256, (8, 8, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    (folder / "a.jpg").write_bytes(imagecodecs.jpeg8_encode(pixels))
    (folder / "b.png").write_bytes(imagecodecs.png_encode(pixels))
    store = JpegStore(folder, np.array([b"a.jpg", b"b.png"]), 16, 50_000_000, 1)

    def read():
        read_images(folder, ["a.jpg", "b.png"], 16)
        store.read(np.array([0, 1]))

    return [folder / "a.jpg", folder / "b.png"], read


def word_vectors(folder, rng):
    text, binary, arrays = folder / "a.txt", folder / "a.bin", folder / "a.npz"
    vectors = rng.normal(size=(3, 4)).astype(np.float32)
    words = ("dog", "ride", "cow")
    pairs = list(zip(words, vectors, strict=True))
    text.write_text("".join(" ".join([word, *map(str, vector)]) + "\n" for word, vector in pairs))
    lines = (word.encode() + b" " + vector.tobytes() + b"\n" for word, vector in pairs)
    binary.write_bytes(b"3 4\n" + b"".join(lines))
    np.savez(arrays, words=np.array(words), vectors=vectors)

    def read():
        for path in (text, binary, arrays):
            load_word_vectors(path, words, "zeros")

    return [text, binary, arrays], read


def caffe(folder, rng):
    path = folder / "net.npz"
    np.savez(path, **{"conv1/weight": rng.normal(size=(2, 3, 3, 3)), "conv1/bias": np.zeros(2)})
    return [path], lambda: load_caffe_weights(path)


def spectra(folder, rng):
    def write(relative, **arrays):
        path = folder / relative
        path.parent.mkdir()
        if path.suffix == ".npy":
            np.save(path, arrays["lights"])
        else:
            np.savez(path, **arrays)

    grid = np.arange(400.0, 721.0, 10)
    values = rng.uniform(0.1, 1, (2, len(grid)))
    write(
        "camspec_jiang2013/camspec.npz",
        names=np.array(["a", "b"]),
        wavelengths_nm=grid,
        sensitivities=rng.uniform(0, 1, (2, 3, len(grid))),
    )
    write("sfu_illuminants/measured_with_sources.illum.npy", lights=rng.uniform(0.1, 1, (3, 101)))
    write("munsell_matte_1269/munsell380_800_1nm.npz", wavelengths_nm=grid, reflectance=values)
    kinds = ("vrhel", "nickerson", "krinov", "macbeth")
    arrays = {f"sur_{kind}": values for kind in kinds} | {f"sur_{kind}_wl": grid for kind in kinds}
    write("psychtoolbox_spectra/psychtoolbox_spectra.npz", **arrays)
    found = sorted(path for path in folder.rglob("*.np?"))
    return found, lambda: measured_library(reflectance_count=1)


def raw(folder, rng):
    path = folder / "photo.dng"
    image = rng.uniform(0, 1, (32, 40, 3))
    matrix = np.array([[0.9, -0.2, -0.1], [-0.5, 1.3, 0.2], [-0.1, 0.2, 0.6]])
    write_dng(path, image, color_matrix=matrix, as_shot_neutral=(0.6, 1, 0.7))
    return [path], lambda: read_raw(path)


def tables(folder, rng):
    json_path, csv_path = folder / "some.json", folder / "some.csv"
    json_path.write_text(json.dumps({"matrix": rng.normal(size=(3, 3)).tolist(), "é": [None]}))
    csv_path.write_text('a,b\n"1,2",3\né,5\n')

    def read():
        read_json(json_path, "Again.")
        read_csv(csv_path, "Again.")

    return [json_path, csv_path], read


def torch_state(folder, rng):
    pickled = state(rows=tensor("1", 12, (3, 4), (4, 1)), part=tensor("1", 12, (2, 2), (4, 1), 5))
    path = write(folder / "state.pth", pickled, {"1": rng.normal(size=12).astype("<f4")})
    return [path], lambda: read_torch_state(path, "Again.")


def user_images(folder, rng):
    """A csv and its files, and an npz."""
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
    """Four files, of which two are compressed."""
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


def every_photograph(found):
    for camera in found.values():
        for index in range(len(camera.names)):
            camera.read_image(index)


def constancy_thumbnails(folder, rng):
    path = folder / "mine.npz"
    images, lights = rng.uniform(0, 1, (3, 8, 9, 3)), rng.uniform(0.1, 1, (3, 3))
    np.savez(path, images=images, illuminant_rgb=lights, names=np.array(["a_1", "a_2", "é_1"]))
    return [path], lambda: every_photograph(thumbnail_set(path))


def picture(rng):
    return rng.integers(2_100, 4_000, (16, 24, 3), np.uint16)


def cube_plus_release(folder, rng):
    truth, path = folder / "cube+_gt.txt", folder / "1.PNG"
    truth.write_text("0.3 0.5 0.2\n")
    path.write_bytes(imagecodecs.png_encode(picture(rng)))
    return [truth, path], lambda: every_photograph(cube_plus(folder))


def gehler_release(folder, rng):
    truth, path = folder / "real_illum_568.mat", folder / "png" / "8D5U5524.png"
    chart = folder / "8D5U5524_macbeth.txt"
    path.parent.mkdir()
    scipy.io.savemat(truth, {"real_rgb": rng.uniform(0.1, 1, (1, 3))})
    path.write_bytes(imagecodecs.png_encode(picture(rng)))
    chart.write_text("24 16\n2 2\n2 6\n6 2\n6 6\n")
    return [truth, path, chart], lambda: every_photograph(gehler_shi(folder))


def intel_release(folder, rng):
    path = folder / "Canon_5DSR" / "field" / "a_001.tiff"
    path.parent.mkdir(parents=True)
    path.write_bytes(imagecodecs.tiff_encode(picture(rng)))
    path.with_suffix(".wp").write_text("0.3,0.5,0.2")
    return [path, path.with_suffix(".wp")], lambda: every_photograph(intel_tau(folder))


def folds(folder, rng):
    """Published splits of six images, in all layouts."""
    parts, cells = np.array([1, 2, 3, 3, 2, 1]), {}
    for name in ("te_split", "tr_split"):
        cells[name] = np.empty((1, 3), object)
        for fold in range(3):
            chosen = (parts == fold + 1) == (name == "te_split")
            cells[name][0, fold] = 1 + np.flatnonzero(chosen)[None]
    files = [folder / name for name in ("indices.mat", "splits.mat", "folds.txt")]
    scipy.io.savemat(files[0], {"indices": parts[:, None]})
    scipy.io.savemat(files[1], cells)
    files[2].write_text(" ".join(map(str, parts)))
    return files, lambda: [read_folds(path, 6) for path in files]


def user_pairs(folder, rng):
    """A homography and the places of charts, as users write them."""
    paths = [folder / "phone.json", folder / "charts.json"]
    corners = [[1, 1], [8, 1], [8, 5], [1, 5]]
    paths[0].write_text(json.dumps({"main": corners, "second": corners}))
    paths[1].write_text(json.dumps({"a.dng": corners}))
    (folder / "a.dng").write_bytes(b"")
    return paths, lambda: (read_homography(paths[0]), given_charts(folder))


def releases(folder, rng):
    """Texts that data sets are prepared from; what is prepared of a damaged one is whole."""
    texts = {name: folder / name for name in ("cameras.txt", "illuminants.illum.gz", "munsell.asc")}
    rows = "\n".join("\t".join(map(str, row)) for row in rng.random((3, 33)).round(5))
    texts["cameras.txt"].write_text(f"somewhere\n400nm-720nm, step 10nm\n---\n\nCanon\n{rows}")
    numbers = "\n".join(map(repr, rng.random(102 * 101).tolist()))
    texts["illuminants.illum.gz"].write_bytes(gzip.compress(f"# spectra\n{numbers}".encode()))
    np.savetxt(texts["munsell.asc"], rng.random((3, 421)), "%.4f")

    def read():
        for name, path in texts.items():
            data = DATA_SETS[name.split(".")[0]]._replace(original=None)
            data.prepare(path, folder / data.folder, data, False)
            assert not data.missing(folder)
            shutil.rmtree(folder / data.folder)

    return list(texts.values()), read


def manifest(folder, rng):
    path = folder / MANIFEST
    entry = {"bytes": 3, "sha256": "00" * 32, "source": "é"}
    path.write_text(json.dumps({"files": {"a.npz": entry, "b.npz": entry}}))
    return [path], lambda: read_manifest(folder)


READERS: dict[str, Reader] = {
    reader.__name__: reader
    for reader in (
        *(pickles, npy_objects, npz, sealed, mat, s20, core50_zip, core50_prepared),
        *(tiny_imagenet, vrd, nus_release, nus_thumbnails, facts, photographs, word_vectors),
        *(caffe, spectra, raw, tables, torch_state, user_images, idx, constancy_thumbnails),
        *(cube_plus_release, gehler_release, intel_release, releases, manifest),
        *(folds, user_pairs),
    )
}

PIECES = (
    *(b"\x00" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\x80", b"9" * 30),
    *(b"-1", b"1e300", b"nan", b"true", b'"', b",", b"\n", b"[" * 600, b"{", b"\xff\xfe", b"PK"),
    *(b"(1, 2)", b"|O", b"<f8", b"h\x00", b"]", b"R", b"b", b"."),
)


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes flipped, cut, doubled, or replaced by pieces that mean something."""
    changed = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        start = int(rng.integers(len(changed) + 1))
        # Headers are where most is decided.
        start = start % 200 if rng.random() < 0.4 else start
        length = int(rng.integers(1, 40))
        piece = PIECES[rng.integers(len(PIECES))]
        match int(rng.integers(6)):
            case 0 if changed:
                for place in rng.integers(0, len(changed), rng.integers(1, 9)):
                    changed[place] ^= 1 << int(rng.integers(8))
            case 1:
                del changed[start:]
            case 2:
                del changed[start : start + length]
            case 3:
                changed[start:start] = changed[start : start + length] * int(rng.integers(1, 5))
            case 4:
                changed[start : start + len(piece)] = piece
            case _:
                changed[start:start] = piece
    return bytes(changed)


def mutate(path: Path, rng: np.random.Generator) -> None:
    """A file, or a member of an archive that is closed again as if nothing were."""
    if zipfile.is_zipfile(path) and rng.random() < 0.7:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        names = list(members)
        chosen = names[rng.integers(len(names))]
        members[chosen] = mutated(members[chosen], rng)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    else:
        path.write_bytes(mutated(path.read_bytes(), rng))


def problem(read: Read) -> str | None:
    """What is wrong with how a reader took a file."""
    signal.alarm(SECONDS)
    try:
        read()
    except DataError as error:
        message = str(error)
        if "\n" in message or len(message) > SHOWN:
            return f"a message of {len(message)} characters or several lines: {message[:300]!r}"
    # All that a reader lets through, running out of memory and AssertionErrors included.
    except BaseException:
        return traceback.format_exc()
    finally:
        signal.alarm(0)
    return None


def hang(number: int, frame: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def fuzz(name: str, seed: int, count: int) -> None:
    """Ends the process where a case fails."""
    place = Path(tempfile.gettempdir())
    for case in range(count):
        rng = np.random.default_rng((seed, case))
        # Written first, so that a crash shows by which case.
        (place / "case.txt").write_text(f"{name}, seed {seed}, case {case}")
        with tempfile.TemporaryDirectory(dir=place) as folder:
            os.environ["EVERLIGHT_DATA"] = folder
            files, read = READERS[name](Path(folder), rng)
            if case == 0:
                read()
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            mutate(files[rng.integers(len(files))], rng)
            found = problem(read)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        if found is None and grown > MEMORY:
            found = f"{grown / 1e6:.0f} MB of memory"
        if found is not None:
            sys.exit(f"{name}, seed {seed}, case {case}: {found}")
    print(f"{name}: {count} cases, {grown / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, hang)
    for reader in sys.argv[3:]:
        fuzz(reader, int(sys.argv[1]), int(sys.argv[2]))
