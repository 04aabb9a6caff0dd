"""Copies of a published set: class folders, a prepared TFDS set, and what is refused."""

import io
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from everlight_data.errors import DataError, MissingDataError
from everlight_data.images.published_forms.prepared_sets import (
    CLASSES_FILE,
    channel_constants,
    load_published,
)
from everlight_data.sets import preparing
from tests.data_pipelines.images.published_copies import (
    NAMES,
    TRAIN,
    assert_is_the_set,
    by_name,
    class_folders,
    constants,
    data_set,
    drawn,
    png,
    prepared,
    published,
    write,
    write_tfds,
)
from tests.data_pipelines.prepared import zipped
from tests.refusals import refused


@pytest.fixture
def images(rng):
    return drawn(rng, 8)


@pytest.fixture
def known(images):
    return published(images)


def refused_set(known, source, folder):
    """Return the line that refuses a source, from which no file is written."""
    line = refused(None, lambda: prepared(data_set(known), source, folder), DataError)
    assert not list(folder.glob("*-ubyte"))
    return line


@pytest.mark.parametrize("form", ["folder", "zip", "zip with a folder on top"])
def test_class_folders_come_in_the_order_of_classes_and_names(tmp_path, images, known, form):
    files = class_folders(images)
    if form == "folder":
        # Notes of file systems and editors are no images.
        notes = {"train/apple/.DS_Store": b"x", "train/apple/._h_s_000000.png": b"x"}
        hidden = {"train/.ipynb_checkpoints/x.png": b"x", "README.md": b"x"}
        source = write(tmp_path / "source", files | notes | hidden)
    else:
        top = "fruit-main/" if "top" in form else ""
        members = {f"{top}{name}": content for name, content in files.items()}
        source = zipped(tmp_path / "s.zip", members | {"__MACOSX/train/apple/a.png": b"x"})
    printed = prepared(data_set(known), source, tmp_path / "fruit")
    order = "Fruit in the order of class and file name, not of the official files"
    assert printed.endswith(f": {order}")
    assert printed.startswith("created classes.json, train-images-idx4-ubyte, ")
    result = load_published(tmp_path / "fruit", known)
    assert result.name == "Fruit in the order of class and file name, not of the official files"
    assert_is_the_set(result, images, by_name())


def test_numbered_files_come_in_the_order_of_their_numbers(tmp_path, images, known):
    source = write(tmp_path / "source", class_folders(images, numbered=True))
    printed = prepared(data_set(known), source, tmp_path / "fruit")
    assert printed.endswith("Fruit in the order of file numbers, not of the official files")
    assert_is_the_set(load_published(tmp_path / "fruit", known), images)


def test_numbers_in_one_part_alone_or_twice_are_names(tmp_path, images, known):
    files = class_folders(images, numbered=True)
    twice = {name: content for name, content in files.items() if name != "train/apple/1.png"}
    twice["train/apple/00.png"] = files["train/apple/1.png"]
    named = class_folders(images)
    named = {name: content for name, content in named.items() if name.startswith("train")} | {
        name: content for name, content in files.items() if name.startswith("test")
    }
    for place, content in enumerate((twice, named)):
        source = write(tmp_path / f"source{place}", content)
        printed = prepared(data_set(known), source, tmp_path / f"fruit{place}")
        assert "in the order of class and file name" in printed


def test_a_palette_or_a_gray_png_has_its_colors(tmp_path, images):
    """Each image has eight colours, which a palette stores exactly."""
    images = images // 128 * 255
    files = class_folders(images)
    for name, content in files.items():
        picture = Image.open(io.BytesIO(content)).quantize(8)
        stream = io.BytesIO()
        picture.save(stream, "PNG")
        files[name] = stream.getvalue()
    source = write(tmp_path / "source", files)
    prepared(data_set(published(images)), source, tmp_path / "fruit")
    assert_is_the_set(load_published(tmp_path / "fruit", published(images)), images, by_name())


def test_gray_sets_take_pngs_of_equal_channels_and_no_others(tmp_path, rng):
    images = drawn(rng, 8, 1)
    known = published(images)
    source = write(tmp_path / "source", class_folders(np.repeat(images, 3, axis=3)))
    prepared(data_set(known), source, tmp_path / "fruit")
    assert (tmp_path / "fruit" / "train-images-idx3-ubyte").exists()
    assert_is_the_set(load_published(tmp_path / "fruit", known), images, by_name())
    (source / "train/apple/g_s_000001.png").write_bytes(png(drawn(rng, 8)[0]))
    message = refused_set(known, source, tmp_path / "other")
    assert re.search(r"g_s_000001\.png is an image of \(8, 8, 3\), not \(8, 8, 1\)\. Down", message)


def test_a_set_of_tfds_comes_in_its_order(tmp_path, images, known):
    folder = write_tfds(tmp_path, images)
    for place, source in enumerate((folder, folder.parent)):
        printed = prepared(data_set(known), source, tmp_path / f"out{place}")
        assert printed.endswith("Fruit in the order of TFDS, not of the official files")
        result = load_published(tmp_path / f"out{place}", known)
        order = [
            int(np.flatnonzero((images == image).all((1, 2, 3))).item()) for image in result.images
        ]
        assert sorted(order[: len(TRAIN)]) == list(range(len(TRAIN)))
        assert_is_the_set(result, images, order)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    message = refused_set(known, zipped(tmp_path / "tfds.zip", files), tmp_path / "fruit2")
    assert message.endswith("tfds.zip holds a set of TFDS. Unpack it and give its folder.")
    shutil.copytree(folder, folder.with_name("3.0.3"))
    message = refused_set(known, folder.parent, tmp_path / "fruit2")
    assert message.endswith("holds 2 sets of TFDS. Give the folder of one.")


def changed(images, change):
    files = class_folders(images)
    change(files)
    return files


def deep(image):
    stream = io.BytesIO()
    Image.fromarray(image[..., 0].astype(np.uint16) * 256).save(stream, "PNG")
    return stream.getvalue()


FIRST = "train/apple/g_s_000001.png"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files.pop(FIRST), "it has 2 training images of 'apple', not 3"),
        (lambda files: files.pop("test/baby/k_s_000008.png"), "0 test images of 'baby', not 1"),
        (lambda files: files.update({FIRST: b"x"}), r"g_s_000001\.png is damaged or not .*Unident"),
        (lambda files: files.update({FIRST: files[FIRST][:-30]}), r"g_s_000001\.png is damaged"),
        (
            lambda files: files.update({"train/pear/a.png": files[FIRST]}),
            r"train/pear is not one of the 3 classes apple, aquarium_fish, baby \.\.\. baby\. Name",
        ),
        (
            lambda files: [
                files.update({f"val{name[4:]}": files.pop(name)})
                for name in list(files)
                if name.startswith("test")
            ],
            r"has no images test/CLASS/FILE\.png\. Name the folder of its test images test\.",
        ),
        (
            lambda files: files.clear(),
            "has none of these: the files of Fruit; in a folder or zip, images train/CLASS",
        ),
    ],
)
def test_what_is_not_the_set_is_refused(tmp_path, images, known, change, message):
    source = write(tmp_path / "source", changed(images, change) | {"README": b"x"})
    assert re.search(message, refused_set(known, source, tmp_path / "fruit"))


def test_images_of_other_sizes_depths_and_levels_are_refused(tmp_path, images, known, rng):
    source = write(tmp_path / "source", class_folders(images))
    first = source / FIRST
    complete = first.read_bytes()
    first.write_bytes(png(drawn(rng, 9)[0]))
    assert "is an image of (9, 9, 3), not (8, 8, 3). Download" in refused_set(
        known, source, tmp_path / "fruit"
    )
    first.write_bytes(deep(images[1]))
    assert "has 16 bits per channel" in refused_set(known, source, tmp_path / "fruit")
    # One level of one pixel changes the mean by 1 / (255 * 7 * 64), 9e-6.
    first.write_bytes(png(images[1] ^ (np.arange(192).reshape(8, 8, 3) == 0)))
    message = refused_set(known, source, tmp_path / "fruit")
    assert re.search(r"source is not Fruit: it has training pixels of mean and deviation", message)
    assert message.endswith("lossy copy has. Download fruit.tar.gz again: somebody.")
    first.write_bytes(complete)
    message = refused_set(known._replace(shape=(8, 8, 1)), source, tmp_path / "fruit")
    assert "an image of (8, 8, 3), not (8, 8, 1)" in message


def test_a_set_of_tfds_with_other_classes_is_refused(tmp_path, images, known):
    folder = write_tfds(tmp_path, images)
    other = known._replace(class_names=("apple", "pear", "baby"))
    message = refused_set(other, folder, tmp_path / "out")
    assert "it has the class 'aquarium_fish' in place of 'pear'" in message
    two = known._replace(class_names=NAMES[:2], train_counts=(3, 2), test_counts=(2, 1))
    assert "it has 3 classes, not 2" in refused_set(two, folder, tmp_path / "out")
    large = known._replace(shape=(16, 16, 3))
    assert "images of (8, 8, 3), not (16, 16, 3)" in refused_set(large, folder, tmp_path / "out")


def test_the_constants_are_exact(rng):
    images = drawn(rng, 8)
    result = channel_constants(images[: len(TRAIN)])
    np.testing.assert_allclose(result, constants(images), rtol=0, atol=1e-14)


# ---- Preparing again


def stop_after(monkeypatch, files):
    """Interrupt the preparation after some files."""
    note = preparing._manifest_entry
    left = [files]

    def counted_entry(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return note(*arguments)

    monkeypatch.setattr(preparing, "_manifest_entry", counted_entry)
    return lambda: monkeypatch.setattr(preparing, "_manifest_entry", note)


@pytest.mark.parametrize("files", range(5))
def test_an_interruption_never_mixes_two_orders(tmp_path, images, known, monkeypatch, files):
    named = write(tmp_path / "named", class_folders(images))
    numbered = write(tmp_path / "numbered", class_folders(images, numbered=True))
    folder, row = tmp_path / "fruit", data_set(known)
    go_on = stop_after(monkeypatch, files)
    with pytest.raises(KeyboardInterrupt):
        prepared(row, named, folder)
    if files < 4:
        with pytest.raises(MissingDataError, match=r"fruit lacks .*-ubyte\. Prepare Fruit again"):
            load_published(folder, known)
    go_on()
    printed = prepared(row, numbered, folder)
    assert printed.startswith("created classes.json, train-images-idx4-ubyte, train-labels-")
    assert_is_the_set(load_published(folder, known), images)


@pytest.mark.parametrize("files", range(1, 5))
def test_an_altered_set_is_made_whole_from_another_source(
    tmp_path, images, known, monkeypatch, files
):
    named = write(tmp_path / "named", class_folders(images))
    numbered = write(tmp_path / "numbered", class_folders(images, numbered=True))
    folder, row = tmp_path / "fruit", data_set(known)
    prepared(row, named, folder)
    labels = folder / "train-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:-1])
    # A source that cannot be read leaves what there is.
    with pytest.raises(DataError, match="has none of these"):
        prepared(row, write(tmp_path / "none", {"a": b""}), folder)
    assert (folder / CLASSES_FILE).exists()
    go_on = stop_after(monkeypatch, files)
    with pytest.raises(KeyboardInterrupt):
        prepared(row, numbered, folder)
    if files < 4:
        with pytest.raises(MissingDataError, match=r"fruit lacks .*-ubyte\. Prepare Fruit again"):
            load_published(folder, known)
    go_on()
    prepared(row, numbered, folder)
    assert_is_the_set(load_published(folder, known), images)
    printed = prepared(row, named, folder)
    assert printed == (
        "already prepared, nothing to do: Fruit in the order of file numbers, not of the official "
        f"files; to take another source, delete {folder} first"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"names": ["apple", "aquarium_fish", "baby"], "order": "x"}', "order 'x' is not one of"),
        ('{"names": ["apple", "aquarium_fish"], "order": "TFDS"}', r"label 2 .* 2 classes"),
        ('{"names": ["a", "b", "c"], "order": "TFDS"}', "the class 'a' in place of 'apple'"),
        ('{"names": "abc", "order": "TFDS"}', "names is not a list of text"),
        ('{"names": [1, 2, 3], "order": "TFDS"}', "names is not a list of text"),
        ('{"order": "TFDS"}', r"KeyError"),
        ("[]", r"classes\.json is damaged"),
        ("{", r"classes\.json is damaged"),
    ],
)
def test_a_list_of_classes_that_is_not_one_is_refused(tmp_path, images, known, content, message):
    folder = tmp_path / "fruit"
    prepared(data_set(known), write(tmp_path / "source", class_folders(images)), folder)
    (folder / preparing.MANIFEST).unlink()
    (folder / CLASSES_FILE).write_text(content)
    refused(message, lambda: load_published(folder, known), DataError)


@pytest.mark.parametrize("file", ["t10k-images-idx4-ubyte", "train-labels-idx1-ubyte"])
def test_a_prepared_file_that_lost_its_values_is_refused(tmp_path, images, known, file):
    folder = tmp_path / "fruit"
    prepared(data_set(known), write(tmp_path / "source", class_folders(images)), folder)
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[:-8] + bytes(8))
    message = rf"{file} is damaged: .*manifest\.json .*\. Prepare Fruit again"
    refused(message, lambda: load_published(folder, known), DataError)


def test_a_prepared_set_of_other_counts_is_refused(tmp_path, images, known):
    folder = tmp_path / "fruit"
    prepared(data_set(known), write(tmp_path / "source", class_folders(images)), folder)
    assert json.loads((folder / CLASSES_FILE).read_text())["order"] == "class and file name"
    other = known._replace(train_counts=(2, 3, 2))
    with pytest.raises(DataError, match=r"3 training images of 'apple', not 2\. Prepare Fruit ag"):
        load_published(folder, other)
