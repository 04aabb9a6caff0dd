"""Reader of MNIST (LeCun et al. 1998)."""

from everlight_data.images.published_forms.idx_folders import FILES, PUBLISHED_AS, load_idx
from everlight_data.sets.data_set import DataSet
from everlight_data.sets.image_set import ImageSet


def load_mnist() -> ImageSet:
    """Load MNIST: 60,000 training and 10,000 test images of 28x28 in one channel.

    Raises:
      MissingDataError: `mnist` below EVERLIGHT_DATA is missing, or lacks a file.
      DataError: as for `load_idx`.
    """
    return load_idx(DATA_SETS["mnist"].locate(), "MNIST", tuple("0123456789"))


DATA_SETS = {
    "mnist": DataSet(
        "MNIST: 60,000 training and 10,000 test images of 28x28",
        files=tuple(f"mnist/{file}.gz" for file in FILES),
        owner="LeCun et al. 1998 (yann.lecun.com/exdb/mnist) or a mirror",
        source=PUBLISHED_AS,
        size_bytes=12_000_000,
        alternatives=(f"mnist/{FILES[0]}",),
        load=lambda _: load_mnist(),
    )
}
