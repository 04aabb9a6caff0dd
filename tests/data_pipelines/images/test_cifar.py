"""The official files of CIFAR-10 and CIFAR-100, where they lie, and the real images."""

import hashlib
import io
import os
import pickle
import re
import tarfile

import numpy as np
import pytest

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.originals import Original
from everlight_data.images import cifar10, cifar100
from everlight_data.images.cifar10 import load_cifar10
from everlight_data.images.cifar100 import CLASSES, load_cifar100
from everlight_data.images.published_forms.cifar_batches import read_batches
from everlight_data.images.published_forms.prepared_sets import load_published
from everlight_data.registry import STORED_SETS
from everlight_experiments import cli
from tests.data_pipelines.images.published_copies import (
    LABELS,
    NAMES,
    assert_is_the_set,
    class_folders,
    data_set,
    drawn,
    pickled,
    prepared,
    published,
    rows,
    write,
)
from tests.data_pipelines.prepared import zipped

# Bounds of the parts of a release: CIFAR-10's training images are in five files.
PARTS = {cifar100: (0, 7, 11), cifar10: (0, 2, 3, 4, 6, 7, 11)}


@pytest.fixture
def images(rng):
    return drawn(rng)


def official(module, images):
    """Return a release's files as the publisher wrote them, with the images of the made set."""
    release = module.RELEASE
    meta = {release.names.decode(): list(NAMES), "coarse_label_names": ["fish", "fruit"]}
    contents = {release.meta: pickled(meta)}
    bounds = PARTS[module]
    for name, start, end in zip(release.members[:-1], bounds, bounds[1:], strict=False):
        content = {release.labels.decode(): LABELS[start:end], "batch_label": f"{name} of 1"}
        content |= {"filenames": ["a.png"] * (end - start), "data": rows(images[start:end])}
        contents[name] = pickled(content)
    return contents


def packed(release, contents):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in contents.items():
            entry = tarfile.TarInfo(f"{release.folder}/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def trusted(release, contents):
    """Return the release with the hashes of these files, and its archive."""
    known = {name: Original(None, hashlib.md5(part).hexdigest()) for name, part in contents.items()}
    archive = packed(release, contents)
    known[release.archive] = Original(len(archive), hashlib.md5(archive).hexdigest())
    return release._replace(originals=known), archive


@pytest.mark.parametrize("module", [cifar10, cifar100])
@pytest.mark.parametrize("form", ["archive", "renamed", "beside", "folder", "above", "zip", "both"])
def test_the_official_files_come_in_their_order(tmp_path, images, module, form):
    contents = official(module, images)
    release, archive = trusted(module.RELEASE, contents)
    inner = {f"{release.folder}/{name}": content for name, content in contents.items()}
    source = tmp_path / "source"
    if form in ("archive", "renamed"):
        name = release.archive if form == "archive" else "mine.tar.gz"
        source = write(source, {name: archive}) / name
    elif form == "beside":
        write(source, {f"a/{release.archive}": archive, "a/readme.html": b"x"})
    elif form == "zip":
        source = zipped(tmp_path / "s.zip", inner)
    elif form == "both":
        write(source, class_folders(images[::-1]) | inner)
    else:
        write(source, contents if form == "folder" else inner)
    known = published(images)
    row = data_set(known, lambda opened: read_batches(opened, release))
    printed = prepared(row, source, tmp_path / "fruit")
    assert printed.endswith("-ubyte: Fruit")
    result = load_published(tmp_path / "fruit", known)
    assert result.name == "Fruit"
    assert_is_the_set(result, images)


@pytest.mark.parametrize("packed_as", [".zip", "folder"])
def test_class_folders_are_taken_where_no_official_file_is(tmp_path, images, packed_as):
    """A zip of class folders was refused because the official archive was not in it."""
    files = class_folders(images, numbered=True)
    source = write(tmp_path / "s", files) if packed_as == "folder" else tmp_path / "s.zip"
    if packed_as == ".zip":
        zipped(source, files)
    known = published(images)
    row = data_set(known, lambda opened: read_batches(opened, cifar100.RELEASE))
    prepared(row, source, tmp_path / "fruit")
    assert_is_the_set(load_published(tmp_path / "fruit", known), images)


@pytest.mark.parametrize("name", ["train", "test", "meta"])
def test_a_missing_or_changed_file_is_named(tmp_path, images, name):
    contents = official(cifar100, images)
    release, _ = trusted(cifar100.RELEASE, contents)
    row = data_set(published(images), lambda opened: read_batches(opened, release))
    source = write(tmp_path / "source", contents)
    path = source / name
    path.write_bytes(path.read_bytes()[:-2] + b"!.")
    result, digest = hashlib.md5(path.read_bytes()).hexdigest(), release.originals[name].digest
    with pytest.raises(DataError, match=rf"{name} has md5 {result}, expected {digest}: .* Downl"):
        prepared(row, source, tmp_path / "fruit")
    path.unlink()
    with pytest.raises(DataError, match=rf"source: {name} was not found\. Download"):
        prepared(row, source, tmp_path / "fruit")


def test_a_pickle_that_calls_something_is_refused_even_with_the_right_md5(tmp_path, images):
    witness = tmp_path / "witness"

    class Attack:
        def __reduce__(self):
            return os.system, (f"touch {witness}",)

    contents = official(cifar100, images) | {"test": pickle.dumps({b"data": Attack()}, 2)}
    release, archive = trusted(cifar100.RELEASE, contents)
    source = write(tmp_path / "source", {release.archive: archive})
    row = data_set(published(images), lambda opened: read_batches(opened, release))
    with pytest.raises(DataError, match=r"source: test names posix\.system"):
        prepared(row, source, tmp_path / "fruit")
    assert not witness.exists()


# ---- The data sets themselves


@pytest.mark.parametrize("module", [cifar10, cifar100])
def test_another_archive_than_the_published_one_is_refused(root, tmp_path, module, images):
    archive = packed(module.RELEASE, official(module, images))
    source = write(tmp_path / "source", {module.RELEASE.archive: archive})
    (name,) = module.DATA_SETS
    expected = {cifar10: "170,498,071", cifar100: "169,001,437"}[module]
    for place in (source, source / module.RELEASE.archive):
        with pytest.raises(SystemExit, match=f"expected {expected}: it is truncated or not the"):
            cli.main(["data", "prepare", name, str(place)])


@pytest.mark.parametrize(
    ("place", "load", "name"),
    [
        ("cifar-100-python", load_cifar100, "cifar100"),
        ("cifar-100-python.tar.gz", load_cifar100, "cifar100"),
        ("tensorflow_datasets/cifar100/3.0.2", load_cifar100, "cifar100"),
        ("cifar-10-batches-py", load_cifar10, "cifar10"),
        ("cifar-10-python.tar.gz", load_cifar10, "cifar10"),
    ],
)
def test_a_release_that_is_there_comes_with_the_command_that_prepares_it(
    root, capsys, place, load, name
):
    (root / place).mkdir(parents=True)
    command = f"everlight data prepare {name} {root / place}"
    with pytest.raises(MissingDataError) as caught:
        load()
    assert str(caught.value) == (
        f"{root / name} does not exist, and {root / place} is not read as it is. Run `{command}` "
        "once."
    )
    cli.main(["data", "list"])
    assert f"preparation: {command}\n" in capsys.readouterr().out


@pytest.mark.parametrize("is_set", [True, False])
def test_a_missing_set_names_its_forms_and_owner(root, monkeypatch, is_set):
    if not is_set:
        monkeypatch.delenv("EVERLIGHT_DATA")
    with pytest.raises(MissingDataError) as caught:
        load_cifar100()
    for part in (
        "EVERLIGHT_DATA",
        "`everlight data prepare` from cifar-100-python.tar.gz (or folders train/CLASS and",
        "TFDS's cifar100",
        "184.4 MB",
        "cs.toronto.edu/~kriz",
    ):
        assert part in str(caught.value)


def test_the_classes_are_those_of_the_release():
    """The release's `meta` has 100 names in the order of labels, which is alphabetical."""
    assert len(set(CLASSES)) == 100
    assert list(CLASSES) == sorted(CLASSES)
    assert [CLASSES[label] for label in (0, 19, 49, 99)] == ["apple", "cattle", "mountain", "worm"]
    assert cifar10.CLASSES[6] == "frog"
    assert cifar10.CLASSES[3] == "cat"


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_real_images_are_whole(real_data, name):
    """Means and deviations are those that are known, here from sums of squares in integers."""
    real_data(f"{name}/train-images-idx4-ubyte")
    module = {"cifar10": cifar10, "cifar100": cifar100}[name]
    result = STORED_SETS[name].load(None)
    classes = len(module.CLASSES)
    assert result.images.shape == (60_000, 32, 32, 3)
    np.testing.assert_array_equal(np.bincount(result.train_labels), [50_000 // classes] * classes)
    np.testing.assert_array_equal(np.bincount(result.test_labels), [10_000 // classes] * classes)
    assert re.fullmatch(r"CIFAR-100?( in the order of .*, not of the official files)?", result.name)
    pixels = result.images[:50_000].reshape(-1, 3)
    sums = pixels.sum(0, dtype=np.int64)
    squares = np.array(
        [np.square(pixels[:, c], dtype=np.int32).sum(dtype=np.int64) for c in range(3)]
    )
    means = sums / len(pixels) / 255
    expected = {
        "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    }[name]
    np.testing.assert_allclose(means, expected[0], atol=6e-5)
    deviations = np.sqrt(squares / len(pixels) / 255**2 - means**2)
    np.testing.assert_allclose(deviations, expected[1], atol=6e-5)
