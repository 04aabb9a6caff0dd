"""ImageNet's listing: its order split by split against the authors' loader, and what it refuses."""

import os

import pytest

from data_pipelines.iirc_metadata import imagenet_listing
from everlight.scenarios.iirc import iirc
from experiments.iirc.streaming import load_imagenet
from tests.scenarios.test_iirc import Theirs, compare

SMALL = ("n02012849", "n03710637")


@pytest.fixture
def package():
    return pytest.importorskip("iirc.datasets_loader")


def make(root, sizes):
    """Files of no content; sizes: wnid to (train, val)."""
    for wnid, counts in sizes.items():
        for split, count in zip(("train", "val"), counts, strict=True):
            folder = root / "imagenet" / split / wnid
            folder.mkdir(parents=True)
            for number in range(count):
                # Without leading zeros, as in ImageNet: 10 stands before 2.
                (folder / f"{wnid}_{number}.JPEG").touch()


@pytest.fixture
def whole(tmp_path, monkeypatch, rng):
    """All 998 classes, of very unequal size."""
    sizes = zip(
        rng.choice([3, 4, 6, 40], 998, p=[0.4, 0.3, 0.2, 0.1]), rng.integers(1, 3, 998), strict=True
    )
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    make(tmp_path, dict(zip(imagenet_listing(), sizes, strict=True)))
    return tmp_path


def test_splits_are_the_package_s_sample_by_sample(package, whole):
    for benchmark in ("iirc_imagenet_full", "iirc_imagenet_lite"):
        files, (hierarchy, configurations, fraction) = load_imagenet(benchmark, 1)
        assert files.remarks == ()
        place = {os.fsdecode(name): index for index, name in enumerate(files.images)}
        splits, shares = package._get_dataset(benchmark, str(whole / "imagenet"))
        tasks, numbers = package._get_tasks_configuration(benchmark, 0)
        # The package lists classes that lite never learns, under labels that no task has.
        splits = {
            name: [(path, told) for path, told in content if any(one in numbers for one in told)]
            for name, content in splits.items()
        }

        def index_of(split, path, place=place):
            return place[os.path.relpath(path, whole / "imagenet")]

        theirs = Theirs(splits, shares, tasks, "IIRC", index_of)
        given = (files.train_labels, files.test_labels, files.class_names, hierarchy)
        ours = iirc(*given, configurations[0], "incomplete", fraction)
        assert ours.class_names == tuple(numbers)
        compare(ours, theirs)
