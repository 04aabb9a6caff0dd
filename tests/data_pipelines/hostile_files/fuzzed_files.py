"""Valid files of every kind, written into a folder, and their readers: `READERS`."""

import gzip
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.io

from everlight.models import VisionTransformer
from everlight_data.color.charts.measured_chart import read_chart_corners
from everlight_data.color.dmcc_thumbnails import load_same_scene_pairs
from everlight_data.color.nus8 import load_official
from everlight_data.color.pairs.view_pairs import read_homography
from everlight_data.color.photographs.published_folds import read_folds
from everlight_data.color.photographs.thumbnails import thumbnail_set
from everlight_data.color.raw_files.calibrations import read_dng_calibration
from everlight_data.color.raw_files.camera_profile import (
    IlluminantMatrices,
    ProfileTag,
    new_profile,
    read_profile,
    write_profile,
)
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.color.s20 import ARCHIVE, FOLDS_FILE, load_s20
from everlight_data.color.spectra.library import measured_library
from everlight_data.color.tuning_files.libcamera import read_tuning, replace_colors
from everlight_data.facts.parts.split_files import Fact, FactSamples, FactSet, read_split
from everlight_data.facts.parts.word_vectors import load_word_vectors
from everlight_data.facts.vrd import PREDICATES, load_vrd
from everlight_data.formats.arrays import read_npz
from everlight_data.formats.matlab import read_mat
from everlight_data.formats.tables import read_csv, read_json
from everlight_data.formats.torch_state import read_torch_state
from everlight_data.formats.unpickle import load_npy_restricted, load_restricted
from everlight_data.pretrained.caffe_weights import load_caffe_weights
from everlight_data.pretrained.vit_weights import load_vit_checkpoint
from everlight_data.registry import STORED_SETS
from everlight_data.sets.data_set import PreparationRequest
from everlight_data.sets.preparing import MANIFEST, read_manifest
from everlight_data.writing import read_sealed, save_sealed
from tests.data_pipelines.color.tuning_files.tuning_text import TUNING
from tests.data_pipelines.facts.parts.split_files import write_split
from tests.data_pipelines.formats.torch_files import state, tensor, write
from tests.data_pipelines.hostile_files import fuzzed_images
from tests.dng_writer import write_dng
from tests.models.released_vit import released_arrays
from tests.nus_files import MAIN, render, write_camera

Read = Callable[[], object]
Reader = Callable[[Path, np.random.Generator], tuple[list[Path], Read]]
"""Writes valid files into a folder; gives those to be mutated, and their readers."""


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
    scipy.io.savemat(folder / FOLDS_FILE, {"idx_parts_no_rep": np.array([[0], [1], [2]])})
    return [folder / ARCHIVE, folder / FOLDS_FILE], lambda: load_s20(folder)


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
    _, images, charts, illuminants = render(rng, 2)
    write_camera(folder, MAIN, images[0], charts[0], illuminants[0])

    def read():
        camera = load_official(folder, MAIN)
        for index in range(2):
            camera.photographs.read_image(index)
            camera.read_chart(index)

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


def vit(folder, rng):
    path = folder / "vit.npz"
    arrays = released_arrays(VisionTransformer(2, 2, 4, 1, 2, 8), 4, rng)
    np.savez(path, **arrays)
    return [path], lambda: load_vit_checkpoint(path)


def spectra(folder, rng):
    def write(relative, **arrays):
        path = folder / relative
        path.parent.mkdir()
        if path.suffix == ".npy":
            np.save(path, arrays["illuminants"])
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
    write(
        "sfu_illuminants/measured_with_sources.illum.npy", illuminants=rng.uniform(0.1, 1, (3, 101))
    )
    write("munsell_matte_1269/munsell380_800_1nm.npz", wavelengths_nm=grid, reflectance=values)
    kinds = ("vrhel", "nickerson", "krinov", "macbeth")
    arrays = {f"sur_{kind}": values for kind in kinds} | {f"sur_{kind}_wl": grid for kind in kinds}
    write("psychtoolbox_spectra/psychtoolbox_spectra.npz", **arrays)
    result = sorted(path for path in folder.rglob("*.np?"))
    return result, lambda: measured_library(reflectance_count=1)


def raw(folder, rng):
    path = folder / "photo.dng"
    image = rng.uniform(0, 1, (32, 40, 3))
    matrix = np.array([[0.9, -0.2, -0.1], [-0.5, 1.3, 0.2], [-0.1, 0.2, 0.6]])
    write_dng(path, image, color_matrix=matrix, as_shot_neutral=(0.6, 1, 0.7))
    return [path], lambda: read_raw(path)


def camera_profile(folder, rng):
    path = folder / "camera.dcp"
    matrices = [0.1 * rng.normal(size=(3, 3)) + np.eye(3) for _ in range(4)]
    both = [IlluminantMatrices(17, *matrices[:2]), IlluminantMatrices(21, *matrices[2:])]
    table = ProfileTag(50982, 11, 300, rng.random(300, np.float32).tobytes())
    profile = new_profile("Camera", "Profile", both)
    write_profile(path, profile._replace(tags=(*profile.tags, table)))
    return [path], lambda: (read_profile(path), read_dng_calibration(path))


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


def folds(folder, rng):
    """Write published splits of six images, in all layouts."""
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
    """Write a homography and the places of charts, as users write them."""
    paths = [folder / "phone.json", folder / "charts.json"]
    corners = [[1, 1], [8, 1], [8, 5], [1, 5]]
    paths[0].write_text(json.dumps({"main": corners, "second": corners}))
    paths[1].write_text(json.dumps({"a.dng": corners}))
    (folder / "a.dng").write_bytes(b"")
    return paths, lambda: (read_homography(paths[0]), read_chart_corners(folder))


def tuning(folder, rng):
    path = folder / "imx1.json"
    path.write_text(TUNING)

    def read():
        tuning = read_tuning(path)
        return replace_colors(tuning, tuning.curve, tuning.matrices)

    return [path], read


def releases(folder, rng):
    """Write texts from which data sets are prepared, always completely or not at all."""
    texts = {name: folder / name for name in ("cameras.txt", "illuminants.illum.gz", "munsell.asc")}
    rows = "\n".join("\t".join(map(str, row)) for row in rng.random((3, 33)).round(5))
    texts["cameras.txt"].write_text(f"somewhere\n400nm-720nm, step 10nm\n---\n\nCanon\n{rows}")
    numbers = "\n".join(map(repr, rng.random(102 * 101).tolist()))
    texts["illuminants.illum.gz"].write_bytes(gzip.compress(f"# spectra\n{numbers}".encode()))
    np.savetxt(texts["munsell.asc"], rng.random((3, 421)), "%.4f")

    def read():
        for name, path in texts.items():
            data = STORED_SETS[name.split(".")[0]]._replace(original=None)
            data.prepare(data, PreparationRequest(path, folder / data.folder))
            assert data.state(folder) == "present"
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
        *(pickles, npy_objects, npz, sealed, mat, s20, vrd, nus_release, nus_thumbnails, facts),
        *(word_vectors, caffe, vit, spectra, raw, tables, torch_state, releases, manifest, folds),
        *(user_pairs, tuning, camera_profile, *fuzzed_images.READERS),
    )
}
