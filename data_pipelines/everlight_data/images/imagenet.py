"""Row of ImageNet; `iirc.imagenet` lists its files."""

from everlight_data.sets.data_set import DataSet

DATA_SETS = {
    "imagenet": DataSet(
        "ImageNet (ILSVRC 2012): <wnid>/*.JPEG in the folders train and val",
        files=("imagenet/train", "imagenet/val"),
        owner="image-net.org",
        source="tasks 1 and 2, unpacked; val images sorted into class folders by the ground truth",
        bytes=144_000_000_000,
    )
}
