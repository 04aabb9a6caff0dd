"""Interim."""

from pathlib import Path
from typing import NamedTuple

from everlight_data.images.cifar100 import load_cifar100
from everlight_data.images.digits import load_digits
from everlight_data.images.image_set import ImageSet, first_classes, first_per_class, shrink_images
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32
from everlight_data.procedural.world import World, load_procedural


class ImageRequest(NamedTuple):
    data: str
    side: int | None = None
    classes: int | None = None
    per_class: tuple[int, int] | None = None
    test_every: int = 5
    test_data: Path | None = None
    seed: int = 0


class LoadedImages(NamedTuple):
    images: ImageSet
    note: str


def load_images(request: ImageRequest) -> LoadedImages:
    if request.data == "digits":
        images = load_digits()
        images = images._replace(images=images.images[..., :1])
        return LoadedImages(images, f"{images.name} of 8×8 pixels")
    if request.data == "procedural":
        classes = request.classes or 20
        subclasses = -(-classes // 10)
        images = load_procedural(
            World(classes // subclasses, subclasses, seed=request.seed), *request.per_class
        )
    elif request.data == "tiny-imagenet":
        images = load_tiny_imagenet_32(range(request.classes or 100))
    else:
        images = first_classes(load_cifar100(), request.classes or 100)
    if request.per_class:
        images = first_per_class(images, *request.per_class)
    if request.side:
        images = shrink_images(images, request.side)
    side, classes = images.images.shape[1], len(images.class_names)
    return LoadedImages(images, f"{images.name}: {classes} classes at {side}×{side} pixels")
