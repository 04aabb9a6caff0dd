"""MNIST: its four files read as they are, and other forms prepared."""

import gzip
import hashlib

import numpy as np
import pytest

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.idx import idx_bytes
from everlight_data.formats.originals import Original
from everlight_data.images import mnist
from everlight_data.images.mnist import load_mnist
from everlight_experiments import cli
from tests.data_pipelines.images.published_copies import (
    LABELS,
    NAMES,
    TRAIN,
    assert_is_the_set,
    class_folders,
    drawn,
    published,
    write,
)

COUNT = len(TRAIN)


@pytest.fixture
def images(rng):
    return drawn(rng, 8, 1)


@pytest.fixture
def files(images):
    """Return the four files of the made set."""
    labels = np.array(LABELS, np.uint8)
    contents = (images[:COUNT, ..., 0], labels[:COUNT], images[COUNT:, ..., 0], labels[COUNT:])
    return dict(zip(mnist.FILES, map(idx_bytes, contents), strict=True))


@pytest.fixture
def known(monkeypatch, images, files):
    """Replace MNIST's row by one of the made set."""
    originals = {
        name: Original(None, hashlib.sha256(content).hexdigest()) for name, content in files.items()
    }
    known = published(images, name="MNIST", originals=originals)
    monkeypatch.setattr(mnist, "PUBLISHED", known)
    preparation = mnist.prepare_images(known, mnist._read_idx_files)
    monkeypatch.setattr(mnist, "_PREPARE", preparation)
    return known


def prepare(source):
    cli.main(["data", "prepare", "mnist", str(source)])


@pytest.mark.usefixtures("known")
def test_numbered_files_with_the_known_hashes_are_in_the_official_order(root, tmp_path, images):
    prepare(write(tmp_path / "source", class_folders(images, numbered=True)))
    assert load_mnist().name == "MNIST"
    assert_is_the_set(load_mnist(), images)


@pytest.mark.usefixtures("known")
def test_another_order_is_named(root, tmp_path, images):
    prepare(write(tmp_path / "source", class_folders(images)))
    assert (
        load_mnist().name == "MNIST in the order of class and file name, not of the official files"
    )


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.usefixtures("known")
def test_the_four_files_are_read_and_not_mixed_with_others(root, tmp_path, images, files, end):
    packed = {f"{name}{end}": gzip.compress(file) if end else file for name, file in files.items()}
    write(root / "mnist", packed)
    assert_is_the_set(load_mnist(), images)
    source = write(tmp_path / "source", class_folders(images))
    with pytest.raises(SystemExit, match="has IDX files already, which are read as they are"):
        prepare(source)
    assert {path.name for path in (root / "mnist").iterdir()} == set(packed)


@pytest.mark.usefixtures("known")
def test_files_of_another_set_are_refused(root, images, files):
    other = {**files, mnist.FILES[2]: idx_bytes(255 - images[COUNT:, ..., 0])}
    write(root / "mnist", other)
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte has sha256 .*, expected"):
        load_mnist()


@pytest.mark.usefixtures("known")
def test_a_copy_of_another_order_without_its_list_of_classes_is_refused(root, tmp_path, images):
    prepare(write(tmp_path / "source", class_folders(images)))
    (root / "mnist" / "classes.json").unlink()
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte has sha256 .*, expected"):
        load_mnist()


@pytest.mark.usefixtures("known")
def test_the_four_files_of_another_folder_are_compared_with_their_hashes(
    root, tmp_path, images, files, capsys
):
    packed = {f"MNIST/raw/{name}.gz": gzip.compress(content) for name, content in files.items()}
    prepare(write(tmp_path / "source", packed))
    assert load_mnist().name == "MNIST"
    assert_is_the_set(load_mnist(), images)
    labels = np.array(TRAIN, np.uint8)
    labels[[0, 5]] = labels[[5, 0]]
    packed[f"MNIST/raw/{mnist.FILES[1]}.gz"] = gzip.compress(idx_bytes(labels[::-1]))
    (root / "mnist" / mnist.FILES[0]).unlink()
    with pytest.raises(SystemExit, match=r"train-labels-idx1-ubyte\.gz has sha256 .*, expected"):
        prepare(write(tmp_path / "other", packed))
    # The interrupted set is neither read nor listed as present.
    with pytest.raises(
        MissingDataError, match=r"mnist lacks train-images-idx3-ubyte\. Prepare MNI"
    ):
        load_mnist()
    cli.main(["data", "list"])
    assert "mnist: incomplete, train-images-idx3-ubyte missing" in capsys.readouterr().out


def test_a_prepared_set_of_other_classes_is_refused(root, tmp_path, images, known):
    prepare(write(tmp_path / "source", class_folders(images)))
    (root / "mnist" / "manifest.json").unlink()
    classes = root / "mnist" / "classes.json"
    classes.write_text(classes.read_text().replace(NAMES[0], "pear"))
    with pytest.raises(DataError, match="is not MNIST: it has the class 'pear' in place of 'apple"):
        load_mnist()


def test_the_real_images_are_whole(real_data):
    real_data("mnist")
    result = load_mnist()
    assert result.images.shape == (70_000, 28, 28, 1)
    train = result.images[:60_000].astype(np.float64) / 255
    assert train.mean() == pytest.approx(0.1307, abs=5e-5)
    assert train.std() == pytest.approx(0.3081, abs=5e-5)
