"""Reader of toy stripes: an `.npz` of grey images, whose class is the number of stripes."""

from everlight_data.formats.arrays import read_npz, take
from everlight_data.locations import locate
from everlight_data.sets.data_set import DataSet
from everlight_data.sets.image_set import ImageSet, every_nth, split_off

FILE = "toy_stripes/stripes.npz"


def load_toy_stripes() -> ImageSet:
    """Load the stripes; every fifth image of a class is a test image.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged.
    """
    path, way_out = locate(FILE, "the toy's author", "1 kB"), "Download it again."
    images, labels = take(read_npz(path, way_out), path, ("images", "labels"), way_out)
    names = tuple(f"{number} stripes" for number in range(4))
    return split_off("toy stripes", images[..., None], labels, every_nth(labels, 5), names)


DATA_SETS = {
    "toy-stripes": DataSet(
        "toy stripes: grey images of 8x8 in four classes",
        files=(FILE,),
        owner="the toy's author",
        source="stripes.npz",
        bytes=1_000,
        load=lambda _: load_toy_stripes(),
    )
}
