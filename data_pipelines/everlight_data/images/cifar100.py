"""Reader of CIFAR-100 (Krizhevsky 2009)."""

from everlight_data.formats.originals import Original
from everlight_data.images.published_forms.cifar_batches import CifarRelease, cifar_data_set
from everlight_data.images.published_forms.prepared_sets import (
    PublishedSet,
    load_published,
    locate_published,
)
from everlight_data.sets.image_set import ChannelStatistics, ImageSet

# fmt: off
CLASSES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle",
    "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle",
    "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup",
    "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house",
    "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion", "lizard", "lobster", "man",
    "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange", "orchid",
    "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy",
    "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal",
    "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar",
    "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor",
    "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman",
    "worm",
)
# fmt: on
PUBLISHED = PublishedSet(
    name="CIFAR-100",
    shape=(32, 32, 3),
    class_names=CLASSES,
    train_counts=(500,) * 100,
    test_counts=(100,) * 100,
    statistics=((0.50707516, 0.48654887, 0.44091784), (0.26733429, 0.25643846, 0.27615047)),
)
RELEASE = CifarRelease(
    "CIFAR-100",
    archive="cifar-100-python.tar.gz",
    folder="cifar-100-python",
    train=("train",),
    test="test",
    meta="meta",
    labels=b"fine_labels",
    names=b"fine_label_names",
    originals={
        "cifar-100-python.tar.gz": Original(169_001_437, "eb9058c3a382ffc7106e4002c42a8d85"),
        "train": Original(None, "16019d7e3df5f24257cddd939b257f8d"),
        "test": Original(None, "f0ef6b0ae62326f3e7ffdfab6717acfc"),
        "meta": Original(None, "7973b15100ade9c7d40fb424638fde48"),
    },
)
IIRC_STATISTICS: ChannelStatistics = (0.5071, 0.4866, 0.4409), (0.2009, 0.1984, 0.2023)
"""Mean and deviation by which IIRC's authors normalize.

Over all training pixels the deviations are greater, 0.267 for red.
"""


def load_cifar100() -> ImageSet:
    """Load CIFAR-100 with its 100 fine labels: 50,000 training and 10,000 test images of 32x32.

    If the samples are not in the official order, the name of the set has their order.

    Raises:
      MissingDataError: `cifar100` below EVERLIGHT_DATA is missing, or lacks a file.
      DataError: a file is damaged, or is not of this set.
    """
    return load_published(locate_published("cifar100", DATA_SETS["cifar100"]), PUBLISHED)


DATA_SETS = {"cifar100": cifar_data_set("cifar100", PUBLISHED, RELEASE, load_cifar100)}
