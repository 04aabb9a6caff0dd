"""ImageNet's listing: its order split by split against the authors' loader, and what it refuses."""

import os
from functools import partial
from itertools import product

import numpy as np
import pytest

from everlight.scenarios.iirc import iirc
from everlight_data.errors import DataError, MissingDataError
from everlight_data.iirc.metadata import imagenet_listing
from everlight_data.iirc.sets import IIRCRequest, load_iirc
from everlight_data.images.imagenet import leave_out, list_imagenet
from everlight_data.sets.image_set import PerClass
from tests.scenarios.iirc_reference import Reference, compare

SIZES = ("full", "lite")
full_listing = partial(imagenet_listing, "iirc_imagenet_full")


@pytest.fixture
def package():
    return pytest.importorskip("iirc.datasets_loader")


def make(root, sizes):
    """Create empty files; `sizes` maps a wnid to (train, val)."""
    for wnid, counts in sizes.items():
        for split, count in zip(("train", "val"), counts, strict=True):
            folder = root / "imagenet" / split / wnid
            folder.mkdir(parents=True)
            for number in range(count):
                # Names have no leading zeros, as in ImageNet: 10 stands before 2.
                (folder / f"{wnid}_{number}.JPEG").touch()


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """Create all 1,000 classes, of very unequal sizes."""
    rng = np.random.default_rng(7)
    training = rng.choice([3, 4, 6, 40], 1000, p=[0.4, 0.3, 0.2, 0.1])
    sizes = zip(training, rng.integers(1, 3, 1000), strict=True)
    root = tmp_path_factory.mktemp("whole")
    wnids = sorted(imagenet_listing("incremental_imagenet_full"))
    make(root, dict(zip(wnids, sizes, strict=True)))
    return root


BENCHMARKS = [f"{kind}_imagenet_{size}" for kind in ("iirc", "incremental") for size in SIZES]
QUICK = {*(("iirc_imagenet_" + size, 0) for size in SIZES)}
QUICK |= {("incremental_imagenet_full", 0), ("incremental_imagenet_lite", 3)}


@pytest.mark.parametrize(
    ("benchmark", "number"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
        for case in product(BENCHMARKS, range(5))
    ],
)
def test_splits_are_the_package_s_sample_by_sample(package, full, monkeypatch, benchmark, number):
    monkeypatch.setenv("EVERLIGHT_DATA", str(full))
    # The request exceeds every class's number of images.
    request = IIRCRequest(benchmark, 224, PerClass(100, 100), number + 1)
    files, (hierarchy, configurations, fraction) = load_iirc(request)
    assert files.remarks == ()
    place = {os.fsdecode(name): index for index, name in enumerate(files.images)}
    splits, shares = package._get_dataset(benchmark, str(full / "imagenet"))
    tasks, numbers = package._get_tasks_configuration(benchmark, number)
    # The package lists classes that lite never learns, under labels that no task has.
    splits = {
        name: [
            (path, sample_names)
            for path, sample_names in content
            if any(one in numbers for one in sample_names)
        ]
        for name, content in splits.items()
    }
    kind = "IIRC" if hierarchy else "CIL"
    relative = partial(os.path.relpath, start=full / "imagenet")
    reference = Reference(splits, shares, tasks, kind, lambda _, path: place[relative(path)])
    inputs = (files.train_labels, files.test_labels, files.class_names, hierarchy)
    actual = iirc(*inputs, configurations[number], "incomplete", fraction)
    assert actual.class_names == tuple(numbers)
    compare(actual, reference)


def sizes_of(*wnids, train=3, val=2):
    return dict.fromkeys(wnids, (train, val))


FOUR = ("n01440764", "n01443537", "n01484850", "n02085620")


@pytest.fixture
def few(tmp_path, monkeypatch):
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    make(tmp_path, sizes_of(*FOUR[:3]))
    return tmp_path / "imagenet"


def test_some_classes_need_no_other_folder_as_the_listing_states(few):
    files = list_imagenet(full_listing(), FOUR[:2])
    assert files.images.dtype.kind == "S"
    assert set(files.class_names) == set(FOUR[:2])
    split = np.array([name.split(b"/")[:2] for name in files.images])
    np.testing.assert_array_equal(split[:, 0], [b"train"] * 6 + [b"val"] * 4)
    labels = np.concatenate([files.train_labels, files.test_labels])
    wnids = [files.class_names[label].encode() for label in labels]
    np.testing.assert_array_equal(wnids, split[:, 1])
    assert all((few / os.fsdecode(name)).exists() for name in files.images)
    (remark,) = files.remarks
    assert "2 classes are listed without the other 996" in remark


def test_missing_folders_are_named_and_counted(few):
    with pytest.raises(MissingDataError, match=r"train lacks n02085620: 3 of 4 folders"):
        list_imagenet(full_listing(), FOUR)
    message = r"train lacks (n\d+, ){4}n\d+ and 990 more: 3 of 998"
    with pytest.raises(MissingDataError, match=message):
        list_imagenet(full_listing())


def test_a_class_that_the_benchmark_does_not_list_is_refused(few):
    """The two that have no place in the hierarchy are classes of the other benchmarks alone."""
    expected = {FOUR[0], "n02012849", "n03710637"}
    with pytest.raises(DataError, match=r"lists no class n02012849, n03710637; .* its 998"):
        list_imagenet(imagenet_listing("iirc_imagenet_lite"), expected)
    with pytest.raises(MissingDataError, match=r"train lacks n0\d+, n0\d+: 1 of 3 folders"):
        list_imagenet(imagenet_listing("incremental_imagenet_lite"), expected)


def test_a_missing_or_unsorted_val_is_named(few):
    (few / "val").rename(few / "elsewhere")
    with pytest.raises(MissingDataError, match=r"val does not exist\. .* sorted into class"):
        list_imagenet(full_listing(), FOUR[:3])
    (few / "val").mkdir()
    (few / "val" / "ILSVRC2012_val_00000001.JPEG").touch()
    with pytest.raises(MissingDataError, match=r"val lacks .*: 0 of 3 folders.* sorted into"):
        list_imagenet(full_listing(), FOUR[:3])


def test_an_empty_folder_and_a_strange_file_are_named(few):
    strange = few / "val" / FOUR[1] / "list.txt"
    strange.touch()
    with pytest.raises(DataError, match=r"n01443537/list.txt is not a .JPEG file"):
        list_imagenet(full_listing(), FOUR[:3])
    for path in strange.parent.iterdir():
        path.unlink()
    with pytest.raises(DataError, match="val/n01443537 is empty"):
        list_imagenet(full_listing(), FOUR[:3])


def test_files_left_out_are_counted_and_named(few):
    files = list_imagenet(full_listing(), FOUR[:2])
    left = leave_out(files, [1, 8])
    stored = np.delete(np.arange(10), [1, 8])
    np.testing.assert_array_equal(left.images, files.images[stored])
    np.testing.assert_array_equal(left.train_labels, files.train_labels[[0, 2, 3, 4, 5]])
    np.testing.assert_array_equal(left.test_labels, files.test_labels[[0, 1, 3]])
    assert left.remarks[:-1] == files.remarks
    assert left.remarks[-1].startswith("2 of 10 files cannot be decoded and are left out: train/")
    assert os.fsdecode(files.images[8]) in left.remarks[-1]
    assert leave_out(files, []) is files
