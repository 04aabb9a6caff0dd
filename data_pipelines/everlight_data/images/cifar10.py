"""Reader of CIFAR-10 (Krizhevsky 2009)."""

from everlight_data.formats.originals import Original
from everlight_data.images.published_forms.cifar_batches import CifarRelease, cifar_data_set
from everlight_data.images.published_forms.prepared_sets import (
    PublishedSet,
    load_published,
    locate_published,
)
from everlight_data.sets.image_set import ImageSet

# fmt: off
CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)
# fmt: on
PUBLISHED = PublishedSet(
    name="CIFAR-10",
    shape=(32, 32, 3),
    class_names=CLASSES,
    train_counts=(5000,) * 10,
    test_counts=(1000,) * 10,
    statistics=((0.49139968, 0.48215841, 0.44653091), (0.24703223, 0.24348513, 0.26158784)),
)
RELEASE = CifarRelease(
    "CIFAR-10",
    archive="cifar-10-python.tar.gz",
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    labels=b"labels",
    names=b"label_names",
    originals={
        "cifar-10-python.tar.gz": Original(170_498_071, "c58f30108f718f92721af3b95e74349a"),
        "data_batch_1": Original(None, "c99cafc152244af753f735de768cd75f"),
        "data_batch_2": Original(None, "d4bba439e000b95fd0a9bffe97cbabec"),
        "data_batch_3": Original(None, "54ebc095f3ab1f0389bbae665268c751"),
        "data_batch_4": Original(None, "634d18415352ddfa80567beed471001a"),
        "data_batch_5": Original(None, "482c414d41f54cd18b22e5b47cb7c3cb"),
        "test_batch": Original(None, "40351d587109b95175f43aff81a1287e"),
        "batches.meta": Original(None, "5ff9c542aee3614f3951f8cda6e48888"),
    },
)


def load_cifar10() -> ImageSet:
    """Load CIFAR-10: 50,000 training and 10,000 test images of 32x32.

    If the samples are not in the official order, the name of the set has their order.

    Raises:
      MissingDataError: `cifar10` below EVERLIGHT_DATA is missing, or lacks a file.
      DataError: a file is damaged, or is not of this set.
    """
    return load_published(locate_published("cifar10", DATA_SETS["cifar10"]), PUBLISHED)


DATA_SETS = {"cifar10": cifar_data_set("cifar10", PUBLISHED, RELEASE, load_cifar10)}
