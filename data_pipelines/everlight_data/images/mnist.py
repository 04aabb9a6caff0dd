"""Reader of MNIST (LeCun et al. 1998)."""

from pathlib import Path

from everlight_data.errors import DataError
from everlight_data.formats.originals import Original
from everlight_data.images.published_forms.idx_folders import FILES, is_idx_folder, load_idx
from everlight_data.images.published_forms.prepared_sets import (
    CLASSES_FILE,
    PublishedSet,
    load_published,
    locate_published,
    prepare_images,
)
from everlight_data.sets.data_set import DataSet, PreparationRequest
from everlight_data.sets.image_set import ImageSet
from everlight_data.sets.preparing import Source, matching

SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""SHA-256 of the unpacked files."""
PUBLISHED = PublishedSet(
    name="MNIST",
    shape=(28, 28, 1),
    class_names=tuple("0123456789"),
    train_counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    test_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    statistics=((0.13066048,), (0.30810780,)),
    originals={file: Original(None, digest) for file, digest in SHA256.items()},
)


def load_mnist() -> ImageSet:
    """Load MNIST: 60,000 training and 10,000 test images of 28x28 in one channel.

    If the samples are not in the official order, the name of the set has their order. The
    publisher's four files are compared with their hashes and read as they are.

    Raises:
      MissingDataError: `mnist` below EVERLIGHT_DATA is missing, or lacks a file.
      DataError: a file is damaged, or is not of this set.
    """
    folder = locate_published("mnist", DATA_SETS["mnist"])
    if (folder / CLASSES_FILE).exists():
        return load_published(folder, PUBLISHED)
    return _load_originals(folder)


def _load_originals(folder: Path) -> ImageSet:
    """Return the images of the publisher's four files, which are compared with their hashes."""
    return load_idx(folder, PUBLISHED.name, PUBLISHED.class_names, PUBLISHED.originals)


def _read_idx_files(source: Source) -> ImageSet | None:
    """Return the images of a source's four files; None if it has none of them."""
    paths = matching(source, lambda path: path.rpartition("/")[2].removesuffix(".gz") in FILES)
    if not paths:
        return None
    if not source.path.is_dir():
        raise DataError(f"{source.path}: give the folder of the four files, unpacked from a zip.")
    return _load_originals((source.path / paths[0]).parent)


def _prepare(row: DataSet, request: PreparationRequest) -> str:
    """Prepare the set in a folder without the publisher's files, which are read as they are."""
    if not (request.folder / CLASSES_FILE).exists() and is_idx_folder(request.folder):
        raise DataError(
            f"{request.folder} has IDX files already, which are read as they are. To prepare MNIST "
            f"from {request.source}, move them away."
        )
    return _PREPARE(row, request)


_PREPARE = prepare_images(PUBLISHED, _read_idx_files)
DATA_SETS = {
    "mnist": DataSet(
        "MNIST: 60,000 training and 10,000 test images of 28x28",
        files=tuple(f"mnist/{file}" for file in FILES),
        owner="LeCun et al. 1998 (yann.lecun.com/exdb/mnist) or a mirror",
        source="its four .gz files (or folders train/CLASS and test/CLASS, or TFDS's mnist)",
        size_bytes=55_000_000,
        prepare=_prepare,
        alternatives=tuple(f"mnist/{file}.gz" for file in FILES),
        releases=("MNIST/raw", "tensorflow_datasets/mnist/3.0.1"),
        load=lambda _: load_mnist(),
    )
}
