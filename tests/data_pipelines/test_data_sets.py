"""Every data set is prepared from what its owner publishes: made-up files and available ones."""

import gzip
import itertools
import json
import shutil
import zipfile
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import scipy.io

from everlight_data.errors import DataError
from everlight_data.images import tiny_imagenet, tiny_imagenet_64
from everlight_data.images.core50.prepared import load_core50
from everlight_data.images.published_forms.prepared_sets import prepare_images
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32
from everlight_data.registry import ORDER, STORED_SETS
from everlight_experiments import cli
from tests.data_pipelines.prepared import arrays, assert_same_arrays, prepare, zipped

# ---- Spectra


def test_cameras_are_those_of_the_text(root, tmp_path, rng):
    values = rng.random((2, 3, 33)).round(5)
    lines = ["http://somewhere", "400nm-720nm, step 10nm", "---------", ""]
    for name, rows in zip(("Canon 1D", "SONY NEX-5N"), values, strict=True):
        lines += [name, *("\t".join(map(str, row)) for row in rows)]
    (tmp_path / "camspec_database.txt").write_text("\n".join(lines))
    result = arrays(prepare(root, "cameras", tmp_path / "camspec_database.txt") / "camspec.npz")
    assert result["names"].tolist() == ["Canon 1D", "SONY NEX-5N"]
    np.testing.assert_array_equal(result["sensitivities"], values)
    np.testing.assert_array_equal(result["wavelengths_nm"], range(400, 730, 10))


def test_illuminants_are_those_of_the_text_packed_or_not(root, tmp_path, rng):
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
        result = arrays(prepare(root, "munsell", source) / "munsell380_800_1nm.npz")
        np.testing.assert_array_equal(result["reflectance"], spectra.astype(np.float32))
        np.testing.assert_array_equal(result["wavelengths_nm"], range(380, 801))


def test_psychtoolbox_s_files_give_rows_and_their_wavelengths(root, tmp_path, rng):
    spectra = {}
    for name in ("vrhel", "nickerson", "krinov", "macbeth"):
        spectra[name] = rng.random((2, 5))
        sampling = {f"S_{name}": [[390, 4, 5]], f"sur_{name}": spectra[name].T}
        scipy.io.savemat(tmp_path / f"sur_{name}.mat", sampling)
    result = arrays(prepare(root, "psychtoolbox", tmp_path) / "psychtoolbox_spectra.npz")
    for name, values in spectra.items():
        np.testing.assert_array_equal(result[f"sur_{name}"], values)
        np.testing.assert_array_equal(result[f"sur_{name}_wl"], [390, 394, 398, 402, 406])


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ([[390, 2.5, 5]], r"S_krinov is \[390\.0, 2\.5, 5\.0\], not three whole numbers"),
        ([[390, 4, 4]], "S_krinov states 4 wavelengths, sur_krinov 5"),
        ([[390, 4]], "S_krinov is .*, not three whole numbers"),
    ],
)
def test_wavelengths_that_are_not_whole_are_refused(root, tmp_path, sampling, message):
    """A step of 2.5 nm was read as 2."""
    for name in ("vrhel", "nickerson", "krinov", "macbeth"):
        stated = sampling if name == "krinov" else [[390, 4, 5]]
        arrays = {f"S_{name}": stated, f"sur_{name}": np.ones((5, 2))}
        scipy.io.savemat(tmp_path / f"sur_{name}.mat", arrays)
    with pytest.raises(DataError, match=message):
        prepare(root, "psychtoolbox", tmp_path)


def test_published_texts_give_the_available_data(root, real_data):
    published = real_data("camspec_jiang2013/camspec_database.txt")
    cli.main(["data", "prepare", "cameras", str(published)])
    assert_same_arrays(root / "camspec_jiang2013/camspec.npz", published.parent / "camspec.npz")
    published = real_data("sfu_illuminants/measured_with_sources.illum")
    cli.main(["data", "prepare", "illuminants", str(published)])
    name = "sfu_illuminants/measured_with_sources.illum.npy"
    np.testing.assert_array_equal(np.load(root / name), np.load(real_data(name)))


# ---- Image sets


WNIDS = ("n02", "n01")


@pytest.fixture
def tiny_zip(tmp_path, monkeypatch):
    """Write a zip of two classes of three images, of which two and one are taken."""
    monkeypatch.setattr(tiny_imagenet, "CUTS", (0, 2, 3))
    files = {
        "wnids.txt": "\n".join(WNIDS),
        "words.txt": "n01\tgoldfish, Carassius auratus\nn02\tbus\nn03\tcar",
        "val/val_annotations.txt": "val_10.JPEG\tn01\t0\t1\t2\t3\nval_9.JPEG\tn02\t0\t1\t2\t3\n",
    }
    names = [f"train/{wnid}/images/{wnid}_{k}.JPEG" for wnid in WNIDS for k in (10, 2, 0)]
    names += ["val/images/val_9.JPEG", "val/images/val_10.JPEG"]
    files |= {name: jpeg(place) for place, name in enumerate(names)}
    members = {f"tiny-imagenet-200/{name}": content for name, content in files.items()}
    return zipped(tmp_path / "tiny.zip", members)


def pattern(place):
    """Return a smooth image, which JPEG preserves; image 0 is grey."""
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
    result = load_tiny_imagenet_32()
    assert result.train_labels.tolist() == [0, 0, 1, 1, 0, 1]
    assert result.test_labels.tolist() == [1, 0]
    # Places 0 to 2 of the zip are n02's images, 3 to 5 n01's: 10, 2 and 0 each.
    for image, place in zip(result.images, (5, 4, 2, 1, 3, 0, 6, 7), strict=True):
        expected = pattern(place).astype(float).reshape(32, 2, 32, 2, -1).mean((1, 3))
        np.testing.assert_allclose(image, np.broadcast_to(expected, (32, 32, 3)), atol=8)
        assert np.abs(image - expected).mean() < 2


def test_tiny_imagenet_at_its_size_has_all_images_in_the_order_of_numbers(
    root, tiny_zip, monkeypatch
):
    """Both forms of a source are read; the reference decoder is another one."""
    order = (5, 4, 3, 2, 1, 0, 6, 7)
    with zipfile.ZipFile(tiny_zip) as archive:
        archive.extractall(tiny_zip.parent / "above")
    decoded = np.stack(
        [
            np.broadcast_to(imagecodecs.jpeg8_decode(jpeg(place)).reshape(64, 64, -1), (64, 64, 3))
            for place in order
        ]
    )
    pixels = decoded[:6] / 255
    known = tiny_imagenet_64.PUBLISHED._replace(
        train_counts=(3, 3),
        test_counts=(1, 1),
        statistics=(pixels.mean((0, 1, 2)), pixels.std((0, 1, 2))),
    )
    monkeypatch.setattr(tiny_imagenet_64, "PUBLISHED", known)
    row = STORED_SETS["tiny-imagenet-64"]
    row = row._replace(prepare=prepare_images(known, tiny_imagenet_64._read_release))
    monkeypatch.setitem(STORED_SETS, "tiny-imagenet-64", row)
    for source in (tiny_zip, tiny_zip.parent / "above"):
        shutil.rmtree(root, ignore_errors=True)
        prepare(root, "tiny-imagenet-64", source)
        result = tiny_imagenet_64.load_tiny_imagenet_64()
        assert result.name == "Tiny-ImageNet"
        assert result.class_names == ("goldfish, Carassius auratus", "bus")
        assert result.train_labels.tolist() == [0, 0, 0, 1, 1, 1]
        assert result.test_labels.tolist() == [1, 0]
        np.testing.assert_allclose(result.images, decoded, atol=2)
    (tiny_zip.parent / "above/tiny-imagenet-200/train/n01/images/n01_2.JPEG").unlink()
    shutil.rmtree(root)
    with pytest.raises(
        DataError, match=r"it has 2 training images of 'goldfish, .*', not 3\. Down"
    ):
        prepare(root, "tiny-imagenet-64", tiny_zip.parent / "above")


@pytest.mark.parametrize(
    ("name", "added", "message"),
    [
        ("words.txt", "\nn01\tcarp", r"words\.txt lists n01 twice"),
        ("val/val_annotations.txt", "val_9.JPEG\tn02\t0\n", "lists val_9.JPEG twice"),
        ("val/val_annotations.txt", "val_8.JPEG\tn02\t0\n", "lists from 1 to 2 images per class"),
    ],
)
def test_lists_with_repeated_or_missing_lines_are_refused(
    root, tmp_path, tiny_zip, name, added, message
):
    with zipfile.ZipFile(tiny_zip) as archive:
        files = {entry: archive.read(entry) for entry in archive.namelist()}
    files[f"tiny-imagenet-200/{name}"] += added.encode()
    with pytest.raises(DataError, match=message):
        prepare(root, "tiny-imagenet", zipped(tmp_path / "other.zip", files))


def test_a_training_class_with_too_few_images_is_named(root, tiny_zip, monkeypatch):
    monkeypatch.setattr(tiny_imagenet, "CUTS", (0, 2, 4))
    with pytest.raises(DataError, match="3 images of n01, not 4 or more"):
        prepare(root, "tiny-imagenet", tiny_zip)


def test_core50_is_prepared_where_the_runs_look(root, tmp_path, capsys, monkeypatch):
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
    monkeypatch.delenv("EVERLIGHT_DATA")
    with pytest.raises(SystemExit, match=r"EVERLIGHT_DATA is not set.* in <folder>/core50"):
        cli.main(["data", "prepare", "core50", source, "--partial"])


# ---- The command


@pytest.mark.parametrize("name", [name for name, data in STORED_SETS.items() if data.prepare])
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


def test_the_list_has_present_and_missing_sets(root, tmp_path, capsys):
    rows = np.ones((3, 33))
    text = "\n".join(["---", "A camera", *(" ".join(map(str, row)) for row in rows)])
    (tmp_path / "c.txt").write_text(text)
    folder = prepare(root, "cameras", tmp_path / "c.txt")
    (root / "tiny_imagenet_32x32").mkdir()
    (root / "tiny_imagenet_32x32" / "classes.json").write_text("{}")
    (root / "mnist").mkdir()
    (root / "mnist" / "train-images-idx3-ubyte.gz").write_text("")
    (root / "fashion_mnist").mkdir()
    for name, end in itertools.product(("images-idx3", "labels-idx1"), ("", ".gz")):
        part = "t10k" if end else "train"
        (root / "fashion_mnist" / f"{part}-{name}-ubyte{end}").write_text("")
    cli.main(["data", "list"])
    printed = capsys.readouterr().out
    assert "cameras: present\n" in printed
    assert "tiny-imagenet: incomplete, train_0.npz, train_1.npz, val.npz missing\n" in printed
    labels = "train-labels-idx1-ubyte"
    tests = "t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte"
    assert f"\nmnist: incomplete, {labels}, {tests} missing\n" in printed
    assert "\nfashion-mnist: present\n" in printed
    assert "core50: missing\n" in printed
    assert "preparation: everlight data prepare core50 SOURCE" in printed
    with (folder / "camspec.npz").open("ab") as stream:
        stream.write(b"x")
    cli.main(["data", "list"])
    assert "cameras: altered since it was prepared: camspec.npz" in capsys.readouterr().out


def test_the_guide_has_every_published_data_set():
    guide = Path("docs/pages/guide/data.md").read_text()
    for name in STORED_SETS.keys() & {*ORDER}:
        assert f"| `{name}` |" in guide
        assert STORED_SETS[name].folder in guide
