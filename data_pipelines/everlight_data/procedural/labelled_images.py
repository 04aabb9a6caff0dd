"""Row of the procedural world as labelled images; rendering needs JAX."""

from everlight_data.sets.data_set import DataSet, ImageRequest
from everlight_data.sets.image_set import ImageSet, PerClass

CLASSES, PER_CLASS = 20, PerClass(train=100, test=50)
"""Default size: classes, and training and test images per class."""
MAX_CLASSES = 100
"""Largest number of classes without repeated textures or palettes."""


def _load_request(request: ImageRequest) -> ImageSet:
    # JAX is slow to import, and not needed by the stored sets.
    from everlight_data.procedural.render import World
    from everlight_data.procedural.world import load_procedural

    classes = CLASSES if request.classes is None else request.first_class + request.classes
    subclasses = -(-classes // 10)
    # A number of classes that `subclasses` does not divide leaves the last ones over.
    world = World(-(-classes // subclasses), subclasses, seed=request.seed)
    return load_procedural(world, request.per_class or PER_CLASS)


def _class_count(request: ImageRequest) -> int:
    return CLASSES if request.classes is None else MAX_CLASSES


DATA_SETS = {
    "procedural": DataSet(
        "rendered shapes with textures, by a seed", load=_load_request, class_count=_class_count
    )
}
