"""Every data set prepared from what its owner publishes: made up here, and as it lies at hand."""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import zipfile
from collections import namedtuple
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import scipy.io
from scipy.ndimage import gaussian_filter

from everlight_data import preparing
from everlight_data.color.nus import load_same_scene_pairs
from everlight_data.color.s20 import load_s20
from everlight_data.color.thumbnails_release import NUS_FOLDERS, same_scenes
from everlight_data.data_sets import DATA_SETS
from everlight_data.errors import DataError
from everlight_data.facts import releases
from everlight_data.facts.vrd import PREDICATES
from everlight_data.facts.word_vectors import load_word_vectors
from everlight_data.images import cifar100, tiny_imagenet_release
from everlight_data.images.core50 import load_core50
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32
from everlight_data.locations import data_root
from everlight_data.preparing import MANIFEST, Original, copies, prepare_files
from everlight_experiments import cli


@pytest.fixture(scope="module")
def at_hand():
    """`at_hand("s20_two_camera/...")` is real data, wherever a test makes EVERLIGHT_DATA point."""
    outside = data_root()

    def find(relative):
        if outside is None or not (outside / relative).exists():
            pytest.skip(f"{relative} is needed below EVERLIGHT_DATA")
        return outside / relative

    return find


@pytest.fixture
def root(tmp_path, monkeypatch):
    place = tmp_path / "data"
    monkeypatch.setenv("EVERLIGHT_DATA", str(place))
    return place


def prepare(root, name, source):
    """As the command does, but that sources made in tests are not the originals."""
    data = DATA_SETS[name]._replace(original=None)
    data.prepare(source, root / data.folder, data, False)
    return root / data.folder


def arrays(path):
    with np.load(path) as found:
        return {name: found[name] for name in found.files}


def assert_same_arrays(path, expected, names=None):
    found, wanted = arrays(path), arrays(expected)
    for name in names or wanted:
        np.testing.assert_array_equal(found[name], wanted[name])
        assert found[name].dtype == wanted[name].dtype


def zipped(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


# ---- Spectra


def test_cameras_are_those_of_the_text(root, tmp_path, rng):
    values = rng.random((2, 3, 33)).round(5)
    lines = ["http://somewhere", "400nm-720nm, step 10nm", "---------", ""]
    for name, rows in zip(("Canon 1D", "SONY NEX-5N"), values, strict=True):
        lines += [name, *("\t".join(map(str, row)) for row in rows)]
    (tmp_path / "camspec_database.txt").write_text("\n".join(lines))
    found = arrays(prepare(root, "cameras", tmp_path / "camspec_database.txt") / "camspec.npz")
    assert found["names"].tolist() == ["Canon 1D", "SONY NEX-5N"]
    np.testing.assert_array_equal(found["sensitivities"], values)
    np.testing.assert_array_equal(found["wavelengths_nm"], range(400, 730, 10))


def test_lights_are_those_of_the_text_packed_or_not(root, tmp_path, rng):
    spectra = rng.random((102, 101))
    text = "# 102 spectra\n" + "\n".join(map(repr, spectra.ravel().tolist()))
    (tmp_path / "measured_with_sources.illum.gz").write_bytes(gzip.compress(text.encode()))
    folder = prepare(root, "illuminants", tmp_path / "measured_with_sources.illum.gz")
    np.testing.assert_array_equal(np.load(folder / "measured_with_sources.illum.npy"), spectra)


def test_munsell_is_the_same_from_text_and_from_matlab(root, tmp_path, rng):
    spectra = rng.random((3, 421)).round(4)
    text, matlab = tmp_path / "munsell380_800_1.asc", tmp_path / "munsell380_800_1.mat"
    np.savetxt(text, spectra, "%.4f")
    scipy.io.savemat(matlab, {"munsell": spectra.T, "S": ["a", "b", "c"]})
    for source in (text, matlab):
        shutil.rmtree(root, ignore_errors=True)
        found = arrays(prepare(root, "munsell", source) / "munsell380_800_1nm.npz")
        np.testing.assert_array_equal(found["reflectance"], spectra.astype(np.float32))
        np.testing.assert_array_equal(found["wavelengths_nm"], range(380, 801))


def test_psychtoolbox_s_files_give_rows_and_their_wavelengths(root, tmp_path, rng):
    spectra = {}
    for name in ("vrhel", "nickerson", "krinov", "macbeth"):
        spectra[name] = rng.random((2, 5))
        sampling = {f"S_{name}": [[390, 4, 5]], f"sur_{name}": spectra[name].T}
        scipy.io.savemat(tmp_path / f"sur_{name}.mat", sampling)
    found = arrays(prepare(root, "psychtoolbox", tmp_path) / "psychtoolbox_spectra.npz")
    for name, values in spectra.items():
        np.testing.assert_array_equal(found[f"sur_{name}"], values)
        np.testing.assert_array_equal(found[f"sur_{name}_wl"], [390, 394, 398, 402, 406])


def test_the_published_texts_at_hand_give_what_is_at_hand(root, at_hand):
    published = at_hand("camspec_jiang2013/camspec_database.txt")
    cli.main(["data", "prepare", "cameras", str(published)])
    assert_same_arrays(root / "camspec_jiang2013/camspec.npz", published.parent / "camspec.npz")
    published = at_hand("sfu_illuminants/measured_with_sources.illum")
    cli.main(["data", "prepare", "illuminants", str(published)])
    name = "sfu_illuminants/measured_with_sources.illum.npy"
    np.testing.assert_array_equal(np.load(root / name), np.load(at_hand(name)))


# ---- Colour images


@pytest.fixture
def thumbnails(tmp_path, rng):
    """Two images a camera, as the repository has them; one camera's are another shape's numbers."""
    for camera, folder in {**NUS_FOLDERS, "b": "Cube+"}.items():
        for name in (f"{camera}_0002", f"{camera}_0001"):
            image = rng.random((64, 64, 3)).astype(np.float32)
            image[3, 5] = 0
            for part, array in (
                ("data", image / image.max()),
                ("labels", np.array([0.3, 0.5, 0.2])),
            ):
                path = tmp_path / "clone" / "dataset" / folder / f"numpy_{part}" / f"{name}.npy"
                path.parent.mkdir(parents=True, exist_ok=True)
                np.save(path, array)
    return tmp_path / "clone"


def test_thumbnails_keep_their_numbers_to_16_bits_and_their_lights(root, thumbnails):
    nus = prepare(root, "nus-thumbnails", thumbnails)
    assert {path.stem for path in nus.glob("*.npz")} == set(NUS_FOLDERS)
    found = arrays(nus / "SonyA57.npz")
    assert found["names"].tolist() == ["SonyA57_0001", "SonyA57_0002"]
    published = np.load(thumbnails / "dataset/NUS-Sony/numpy_data/SonyA57_0002.npy")
    np.testing.assert_allclose(found["images_u16"][1] / 65535, published, atol=0.5001 / 65535)
    np.testing.assert_allclose(found["illuminant_rgb"] * np.sqrt(0.38), [[0.3, 0.5, 0.2]] * 2)
    cube = arrays(prepare(root, "cube-plus-thumbnails", thumbnails) / "Canon550D.npz")
    np.testing.assert_array_equal(cube["illuminant_rgb"], [[0.3, 0.5, 0.2]] * 2)


def test_pairs_of_one_scene_are_found_by_their_neighbours_too(rng):
    """Two stretches of twelve scenes in another order, by a camera of other exposure and noise."""

    def draw(count):
        drawn = gaussian_filter(rng.random((count, 64, 64, 3)), (0, 4, 4, 0))
        return np.clip((drawn - 0.5) * 10 + 0.5, 0.02, 1)

    main = draw(25)
    main[:, :8, :8] = 0
    order = [*range(12, 24), *range(12)]
    second = main[order] * 0.4 + 0.02 * rng.random((24, 64, 64, 3))
    second = np.concatenate([second, draw(2)])
    places, alike = same_scenes(main, second)
    found = {tuple(pair) for pair in places.tolist()}
    assert found <= {(order[j], j) for j in range(24)}
    assert len(found) >= 22  # At the ends of stretches there are few neighbours.
    # Without noise the exposure alone changes little, and nothing in who is whose partner.
    places, unchanged = same_scenes(main, main * 0.4)
    np.testing.assert_array_equal(places, np.stack([np.arange(25)] * 2, axis=1))
    assert alike.max() < 0.95 < unchanged.min()


def test_pairs_are_nearly_those_at_hand(at_hand):
    """The list at hand was made by another similarity, and 10 of its 172 are not found."""
    folder = at_hand("nus8_64x64/NikonD5200.npz").parent
    main, second = (arrays(folder / f"{camera}.npz") for camera in ("NikonD5200", "Canon1DsMkIII"))
    own = np.char.startswith(main["names"], "NikonD5200")
    images = (main["images_u16"][own] / 65535, second["images_u16"] / 65535)
    places, _ = same_scenes(*images)
    found = {(main["names"][own][i], second["names"][j]) for i, j in places}
    listed = load_same_scene_pairs(folder)
    expected = set(zip(listed.main, listed.second, strict=True))
    assert len(found & expected) >= 160
    assert len(found - expected) <= 3


def test_a_thumbnail_without_its_light_is_named(root, thumbnails):
    (thumbnails / "dataset/NUS-Fuji/numpy_labels/FujifilmXM1_0002.npy").unlink()
    with pytest.raises(DataError, match=r"NUS-Fuji/numpy_labels/FujifilmXM1_0002\.npy"):
        prepare(root, "nus-thumbnails", thumbnails)


def test_s20_is_what_its_owners_published(root, at_hand):
    folder = at_hand("s20_two_camera/Metadata_Image_Pairs.zip").parent
    cli.main(["data", "prepare", "s20", str(folder)])
    for found, expected in zip(load_s20(), load_s20(folder), strict=True):
        np.testing.assert_array_equal(found, expected)


# ---- Image sets


def test_cifar100_is_unpacked_as_it_is(root, tmp_path, monkeypatch):
    contents = {"train": b"1", "test": b"22", "meta": b"333"}
    source = tmp_path / "source" / "cifar-100-python.tar.gz"
    source.parent.mkdir()
    with tarfile.open(source, "w:gz") as archive:
        for name, content in contents.items():
            entry = tarfile.TarInfo(f"cifar-100-python/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    for place in (source, source.parent):
        with pytest.raises(
            DataError, match="expected 169,001,437: it is truncated or another file"
        ):
            prepare(root, "cifar100", place)
    packed = source.read_bytes()
    known = Original(len(packed), hashlib.md5(packed).hexdigest())
    monkeypatch.setattr(cifar100, "ORIGINAL", known)
    folder = prepare(root, "cifar100", source)
    assert {name: (folder / name).read_bytes() for name in contents} == contents


WNIDS = ("n02", "n01")


@pytest.fixture
def tiny_zip(tmp_path, monkeypatch):
    """Two classes of three images, one grey; of which two and one are taken."""
    monkeypatch.setattr(tiny_imagenet_release, "CUTS", (0, 2, 3))
    files = {
        "wnids.txt": "\n".join(WNIDS),
        "words.txt": "n01\tgoldfish, Carassius auratus\nn02\tbus\nn03\tcar",
        "val/val_annotations.txt": "val_10.JPEG\tn01\t0\t1\t2\t3\nval_9.JPEG\tn02\t0\t1\t2\t3\n",
    }
    for place, name in enumerate(
        [f"train/{wnid}/images/{wnid}_{k}.JPEG" for wnid in WNIDS for k in (10, 2, 0)]
        + ["val/images/val_9.JPEG", "val/images/val_10.JPEG"]
    ):
        files[name] = jpeg(place)
    return zipped(
        tmp_path / "tiny.zip", {f"tiny-imagenet-200/{name}": files[name] for name in files}
    )


def pattern(place):
    """Smooth, so that a JPEG keeps it, and grey for one of them."""
    rows, columns = np.mgrid[:64, :64]
    image = np.stack([rows + columns, 2 * rows, 200 - columns], axis=-1) + 5 * place
    return image.astype(np.uint8) if place else image[..., :1].astype(np.uint8)


def jpeg(place):
    return imagecodecs.jpeg8_encode(pattern(place), level=98)


def test_tiny_imagenet_is_shrunk_by_blocks_in_the_order_of_numbers(root, tiny_zip):
    folder = prepare(root, "tiny-imagenet", tiny_zip)
    assert json.loads((folder / "classes.json").read_text()) == {
        "wnids": ["n01", "n02"],
        "names": ["goldfish, Carassius auratus", "bus"],
    }
    found = load_tiny_imagenet_32()
    assert found.train_labels.tolist() == [0, 0, 1, 1, 0, 1]
    assert found.test_labels.tolist() == [1, 0]
    # Places in the zip: n02's images are 0 to 2 there, n01's 3 to 5, each 10, 2 and 0.
    for image, place in zip(found.images, (5, 4, 2, 1, 3, 0, 6, 7), strict=True):
        expected = pattern(place).astype(float).reshape(32, 2, 32, 2, -1).mean((1, 3))
        np.testing.assert_allclose(image, np.broadcast_to(expected, (32, 32, 3)), atol=8)
        assert np.abs(image - expected).mean() < 2


def test_a_training_class_with_too_few_images_is_told(root, tiny_zip, monkeypatch):
    monkeypatch.setattr(tiny_imagenet_release, "CUTS", (0, 2, 4))
    with pytest.raises(DataError, match="3 images of n01, not 4 or more"):
        prepare(root, "tiny-imagenet", tiny_zip)


def test_core50_is_prepared_by_the_same_command(root, tmp_path, capsys):
    for frame in range(3):
        path = tmp_path / "release" / "s3" / "o7" / f"C_03_07_{frame:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(imagecodecs.png_encode(np.full((128, 128, 3), frame, np.uint8)))
    source = str(tmp_path / "release")
    with pytest.raises(SystemExit, match=r"is incomplete, 3 of 164866 frames.*--partial"):
        cli.main(["data", "prepare", "core50", source])
    cli.main(["data", "prepare", "core50", source, "--partial"])
    assert "3 of 164,866 frames, 1 objects in 1 sessions" in capsys.readouterr().out
    images = load_core50(partial=True).images
    np.testing.assert_array_equal(images[:, 5, 5, 1], [0, 1, 2])


# ---- Facts


def test_the_owners_annotations_give_the_same_facts(root, tmp_path, at_hand):
    path = at_hand("vrd_spo_facts/vrd_annotations.zip")
    with zipfile.ZipFile(path) as archive:
        members = {
            f"json_dataset/{name.split('/')[-1]}": archive.read(name)
            for name in archive.namelist()
            if "annotations_" in name or name.startswith("all/")
        }
    prepare(root, "vrd", zipped(tmp_path / "json_dataset.zip", members))
    assert_same_annotations(root / "vrd_spo_facts" / path.name, path)


def assert_same_annotations(found, expected):
    with zipfile.ZipFile(found) as one, zipfile.ZipFile(expected) as other:
        for name in one.namelist():
            assert json.loads(one.read(name)) == json.loads(other.read(name))
        assert len(one.namelist()) == 3


ANNOTATIONS = {
    **dict.fromkeys(("annotations_train.json", "annotations_test.json"), "{}"),
    "objects.json": json.dumps(["traffic light", "dog"]),
    "predicates.json": json.dumps(PREDICATES),
}


def word2vec(path, vectors):
    content = f"{len(vectors)} {len(next(iter(vectors.values())))}\n".encode()
    for word, vector in vectors.items():
        content += word.encode() + b" " + np.asarray(vector, "<f4").tobytes()
    path.write_bytes(content)
    return path


def test_other_predicates_are_refused(root, tmp_path):
    source = zipped(tmp_path / "a.zip", ANNOTATIONS | {"predicates.json": '["on"]'})
    with pytest.raises(DataError, match="does not list the 70 predicates"):
        prepare(root, "vrd", source)


def test_names_of_several_words_lie_between_them(root, tmp_path, rng):
    prepare(root, "vrd", zipped(tmp_path / "json_dataset.zip", ANNOTATIONS))
    words = {word for name in PREDICATES for word in name.split()} - {"of", "to"}
    vectors = {word: rng.normal(size=4) * rng.uniform(1, 5) for word in {*words, "light", "dog"}}
    vectors["traffic"] = 7 * np.array([1.0, 0, 0, 0])
    vectors["light"] = 3 * np.array([0, 1.0, 0, 0])
    source = word2vec(tmp_path / "news.bin", vectors)
    path = prepare(root, "vrd-vectors", source) / "vrd_word_embeddings.npz"
    names = ["traffic light", "dog", "adjacent to"]
    found = load_word_vectors(path, names).vectors
    np.testing.assert_allclose(found[0], [np.sqrt(0.5), np.sqrt(0.5), 0, 0], rtol=1e-6)
    for row, word in ((1, "dog"), (2, "adjacent")):
        expected = vectors[word] / np.linalg.norm(vectors[word])
        np.testing.assert_allclose(found[row], expected, rtol=1e-5)


def test_names_made_of_words_at_hand_have_the_vectors_at_hand(root, tmp_path, at_hand):
    table = arrays(at_hand("vrd_spo_facts/vrd_word_embeddings.npz"))
    own = {
        name: vector
        for kind in ("objects", "predicates")
        for name, vector in zip(table[kind].tolist(), table[f"{kind}_gnews"], strict=True)
    }
    names = [name for name in own if " " in name and all(word in own for word in name.split())]
    assert len(names) >= 2
    prepare(
        root,
        "vrd",
        zipped(
            tmp_path / "a.zip",
            ANNOTATIONS | {"objects.json": json.dumps(table["objects"].tolist())},
        ),
    )
    # Words that only names of several words have get any vector.
    missing = {word for name in own for word in name.split()} - set(own)
    scaled = {name: 2.5 * vector for name, vector in own.items() if " " not in name}
    source = word2vec(tmp_path / "n.bin", scaled | dict.fromkeys(missing, own["dog"]))
    path = prepare(root, "vrd-vectors", source) / "vrd_word_embeddings.npz"
    found = load_word_vectors(path, names).vectors
    np.testing.assert_allclose(found, [own[name] for name in names], atol=2e-7)


def test_glove_keeps_the_most_frequent_words(root, tmp_path, rng, monkeypatch):
    monkeypatch.setattr(releases, "GLOVE_WORDS", 3)
    vectors = rng.normal(size=(4, 50)).round(5)
    lines = [
        " ".join([word, *map(str, row)])
        for word, row in zip(("the", ",", "naïve", "rare"), vectors, strict=True)
    ]
    source = zipped(tmp_path / "glove.6B.zip", {"glove.6B.50d.txt": "\n".join(lines), "b.txt": ""})
    path = prepare(root, "glove", source) / "glove6b_50d_subset.npz"
    found = load_word_vectors(path, ["naïve", "the"])
    np.testing.assert_array_equal(found.vectors, vectors[[2, 0]].astype(np.float16))
    assert arrays(path)["words"].tolist() == ["the", ",", "naïve"]


# ---- The mechanism


@pytest.fixture
def two_files(tmp_path):
    """A source of one file, and a recipe that counts what it makes of it."""
    source = tmp_path / "source.txt"
    source.write_bytes(b"content")
    made = []

    def recipe(published):
        ((name, _),) = published.files()

        def make(copy):
            made.append(copy)
            return published.read(name, 100) + copy.encode()

        return {copy: lambda copy=copy: make(copy) for copy in ("a", "b")}

    def run():
        return prepare_files(source, tmp_path / "out", recipe, "Get it again.", 1000)

    return run, made, tmp_path / "out"


def test_what_is_whole_is_not_made_again(two_files):
    run, made, folder = two_files
    assert run() == ["a", "b"]
    assert run() == []
    assert made == ["a", "b"]
    entry = json.loads((folder / MANIFEST).read_text())["files"]["b"]
    digest = hashlib.sha256(b"contentb").hexdigest()
    assert entry == {"bytes": 8, "sha256": digest, "source": "source.txt"}
    (folder / "a").write_bytes(b"contentA")
    (folder / "b").unlink()
    assert run() == ["a", "b"]
    assert (folder / "a").read_bytes() == b"contenta"


def test_stopped_it_goes_on_with_what_is_not_made(two_files, monkeypatch):
    run, made, folder = two_files
    write = preparing._write_manifest

    def stop(*arguments):
        write(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(preparing, "_write_manifest", stop)
    with pytest.raises(KeyboardInterrupt):
        run()
    monkeypatch.setattr(preparing, "_write_manifest", write)
    (folder / "b.unfinished").write_bytes(b"half")
    assert run() == ["b"]
    assert made == ["a", "b"]
    assert {path.name for path in folder.iterdir()} - {".lock"} == {"a", "b", MANIFEST}


def test_a_disk_that_is_too_small_is_told_before_anything_is_made(two_files, monkeypatch):
    run, made, _ = two_files
    usage = namedtuple("usage", "free")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(1_000_500))
    with pytest.raises(DataError, match=r"out: 1\.0 MB are needed in .*out, but 1\.0 MB are free"):
        run()
    assert made == []


def test_a_damaged_manifest_is_named(two_files):
    run, _, folder = two_files
    run()
    (folder / MANIFEST).write_text("{")
    with pytest.raises(DataError, match=r"manifest\.json is damaged.*Delete it and prepare again"):
        run()


@pytest.mark.parametrize(
    ("original", "message"),
    [
        (Original(8, "0" * 64), "has 7 bytes, expected 8: it is truncated or another file"),
        (Original(7, "0" * 64), "has sha256 ed7002b4.*, expected 0000.*: it is damaged"),
        (Original(7, "0" * 32), "has md5 9a0364b9.*, expected 0000.*: it is damaged"),
    ],
)
def test_another_file_than_the_published_one_is_refused(two_files, tmp_path, original, message):
    with pytest.raises(DataError, match=message):
        prepare_files(
            tmp_path / "source.txt", tmp_path / "out", copies(99, {}), "Again.", 9, original
        )
    with pytest.raises(DataError, match=message):
        prepare_files(tmp_path, tmp_path / "out", copies(99, {"source.txt": original}), "Again.", 9)
    assert not list((tmp_path / "out").glob("*.txt"))


@pytest.mark.parametrize("name", [name for name, data in DATA_SETS.items() if data.prepare])
def test_no_source_fit_for_it_is_one_line_and_leaves_nothing(root, tmp_path, name, capsys):
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK\x03\x04" + bytes(50))
    for source in (tmp_path / "nowhere", tmp_path / "empty", broken):
        with pytest.raises(SystemExit) as caught:
            cli.main(["data", "prepare", name, str(source)])
        assert str(caught.value.code).startswith("error: ")
        assert "\n" not in str(caught.value.code)
    left = [path for path in root.rglob("*") if path.is_file() and path.name != ".lock"]
    assert not left


def test_partial_is_for_core50_only(root, tmp_path):
    with pytest.raises(SystemExit, match="--partial works for core50 only"):
        cli.main(["data", "prepare", "glove", str(tmp_path), "--partial"])


def test_the_list_says_what_is_there_and_what_is_not(root, tmp_path, capsys):
    rows = np.ones((3, 33))
    text = "\n".join(["---", "A camera", *(" ".join(map(str, row)) for row in rows)])
    (tmp_path / "c.txt").write_text(text)
    folder = prepare(root, "cameras", tmp_path / "c.txt")
    (root / "tiny_imagenet_32x32").mkdir()
    (root / "tiny_imagenet_32x32" / "classes.json").write_text("{}")
    (root / "cifar-100-python.tar.gz").write_text("")
    cli.main(["data", "list"])
    said = capsys.readouterr().out
    assert "cameras: present\n" in said
    assert "tiny-imagenet: incomplete, train_0.npz, train_1.npz, val.npz missing\n" in said
    assert "cifar100: present\n" in said
    assert "core50: missing\n" in said
    assert "preparation: everlight data prepare core50 SOURCE" in said
    with (folder / "camspec.npz").open("ab") as stream:
        stream.write(b"x")
    cli.main(["data", "list"])
    assert "cameras: altered since it was prepared: camspec.npz" in capsys.readouterr().out


def test_the_guide_has_every_data_set():
    guide = Path("docs/guide/data.md").read_text()
    for name, data in DATA_SETS.items():
        assert f"| `{name}` |" in guide
        assert data.folder in guide
