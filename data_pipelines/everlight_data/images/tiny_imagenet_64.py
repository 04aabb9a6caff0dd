"""Reader of Tiny-ImageNet (Stanford CS231n) at its 64x64 pixels, with all training images."""

import numpy as np

from everlight_data.images.published_forms.class_folders import read_images
from everlight_data.images.published_forms.prepared_sets import (
    JPEG_TOLERANCE,
    PublishedSet,
    load_published,
    locate_published,
    prepare_images,
)
from everlight_data.images.published_forms.tiny_imagenet_release import (
    OWNER,
    SIDE,
    ZIP,
    release_names,
    release_wnids,
    test_paths,
    training_paths,
)
from everlight_data.sets.data_set import DataSet
from everlight_data.sets.image_set import ImageSet
from everlight_data.sets.preparing import Source, matching

PUBLISHED = PublishedSet(
    name="Tiny-ImageNet",
    shape=(SIDE, SIDE, 3),
    class_names=None,
    train_counts=(500,) * 200,
    test_counts=(50,) * 200,
    statistics=((0.48023694, 0.44806704, 0.39750364), (0.27643643, 0.26886328, 0.28158993)),
    tolerance=JPEG_TOLERANCE,
)


def load_tiny_imagenet_64() -> ImageSet:
    """Load Tiny-ImageNet: 500 training and 50 test images of 64x64 in each of 200 classes.

    Training images are in the order of classes and numbers. The test images are the release's
    validation images.

    Raises:
      MissingDataError: `tiny_imagenet_64x64` below EVERLIGHT_DATA is missing, or lacks a file.
      DataError: a file is damaged, or is not of this set.
    """
    row = DATA_SETS["tiny-imagenet-64"]
    return load_published(locate_published("tiny-imagenet-64", row), PUBLISHED)


def _read_release(source: Source) -> ImageSet | None:
    if not matching(source, lambda path: f"/{path}".endswith("/wnids.txt")):
        return None
    wnids = release_wnids(source)
    trains = training_paths(source, wnids)
    tests = test_paths(source, wnids)
    paths = [path for images in trains.values() for path in images]
    return ImageSet(
        PUBLISHED.name,
        read_images(source, [*paths, *tests.paths], PUBLISHED.shape),
        np.repeat(np.arange(len(wnids), dtype=np.int32), [len(part) for part in trains.values()]),
        np.array(tests.labels, np.int32),
        tuple(release_names(source, wnids)),
    )


DATA_SETS = {
    "tiny-imagenet-64": DataSet(
        "Tiny-ImageNet at 64x64: 500 training and 50 test images per class, 200 classes",
        files=tuple(f"tiny_imagenet_64x64/{file}" for file in PUBLISHED.files),
        owner=OWNER,
        source=f"{ZIP} (or its folder)",
        size_bytes=1_352_000_000,
        prepare=prepare_images(PUBLISHED, _read_release),
        releases=("tiny-imagenet-200", ZIP),
        load=lambda _: load_tiny_imagenet_64(),
    )
}
