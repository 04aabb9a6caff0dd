"""Reader of Fashion-MNIST (Xiao et al. 2017)."""

from everlight_data.formats.originals import Original
from everlight_data.images.published_forms.idx_folders import FILES, PUBLISHED_AS, load_idx
from everlight_data.sets.data_set import DataSet
from everlight_data.sets.image_set import ImageSet

# fmt: off
CLASSES = (
    "T-shirt or top", "trouser", "pullover", "dress", "coat",
    "sandal", "shirt", "sneaker", "bag", "ankle boot",
)
# fmt: on
SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
"""SHA-256 of the unpacked files of Debian's package dataset-fashion-mnist. Compressed files are not
compared, since their gzip headers differ from the published ones."""


def load_fashion_mnist() -> ImageSet:
    """Load Fashion-MNIST: 60,000 training and 10,000 test images of 28x28 in one channel.

    Raises:
      MissingDataError: `fashion_mnist` below EVERLIGHT_DATA is missing, or lacks a file.
      DataError: as for `load_idx`, or a file is another one than the published.
    """
    originals = {file: Original(None, digest) for file, digest in SHA256.items()}
    return load_idx(DATA_SETS["fashion-mnist"].locate(), "Fashion-MNIST", CLASSES, originals)


DATA_SETS = {
    "fashion-mnist": DataSet(
        "Fashion-MNIST: 60,000 training and 10,000 test images of 28x28",
        files=tuple(f"fashion_mnist/{file}.gz" for file in FILES),
        owner="Xiao et al. 2017 (github.com/zalandoresearch/fashion-mnist), MIT",
        source=PUBLISHED_AS,
        size_bytes=31_000_000,
        alternatives=tuple(f"fashion_mnist/{file}" for file in FILES),
        load=lambda _: load_fashion_mnist(),
    )
}
