"""The record that the runner takes, and the table of benchmarks that fill it."""

import dataclasses
import functools
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
import tyro

from data_pipelines.errors import DataError
from data_pipelines.images.cifar100 import load_cifar100
from data_pipelines.images.digits import load_digits
from data_pipelines.images.image_set import ImageSet, first_classes, first_per_class, shrink_images
from data_pipelines.images.tfds_sets import load_tfds
from data_pipelines.images.tiny_imagenet import load_tiny_imagenet_32
from data_pipelines.procedural.world import World, load_procedural
from everlight.checks import Between
from everlight.continual import StoredImages, TaskSequence
from everlight.models import MLP, PlainCNN
from everlight.models.heads import HeadKind
from everlight.scenarios import class_incremental, same_shapes, tested_on_validation
from experiments.common.sequences import store_images
from experiments.common.settings import Count, Scale
from experiments.continual.methods import Trains
from experiments.continual.own_images import load_own_images
from experiments.continual.plan import Plan, StrategiesRun, planned

MOMENTUM = 0.9
VALID = 0.1
"""Share of each class's training images that choose strengths, and more where that is none."""

Use = Literal["reported", "tuning"]


class Benchmark(NamedTuple):
    """Data, net and plan; the same methods run on all of them."""

    name: str
    note: str
    """The data actually used, said in every report."""
    images: ImageSet
    stored: StoredImages
    """The same as nets read them."""
    net: Callable[[Trains, HeadKind], nn.Module]
    layers: tuple[str, ...]
    """Of the net below its head, in order."""
    net_note: str
    plan: Plan
    sequence: Callable[[int, Use], TaskSequence]
    """From the number of an order of classes, and whether it is tested on validation samples, to
    tasks; all of one shape, whichever are asked for."""

    @property
    def classes(self) -> int:
        """Of all tasks."""
        return len(self.images.class_names)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Gradient descent with momentum."""
        return optax.sgd(self.plan.rate, momentum=MOMENTUM)

    @property
    def reach(self) -> float:
        """So far does a constant gradient carry in the end, as implicit steps on penalties need."""
        return self.plan.rate / (1 - MOMENTUM)

    @property
    def checksums(self) -> list[int]:
        """Of images, training labels, test labels and, where those are learnt from, features."""
        data = self.images
        content = [np.ascontiguousarray(data.images), data.train_labels, data.test_labels]
        if self.stored.images.ndim == 2:
            content.append(np.asarray(self.stored.images))
        return [zlib.crc32(array.tobytes()) for array in content]

    @property
    def facts(self) -> dict:
        """What tells it from any other: plan, net and data."""
        return {
            "benchmark": self.name,
            "net": self.net_note,
            "data": self.checksums,
            **self.plan._asdict(),
        }


Side = Annotated[int, Between(8, 512)]


@dataclasses.dataclass(frozen=True)
class ContinualRun(StrategiesRun):
    """Any strategies on any benchmark, on a folder of your own images too."""

    benchmark: tyro.conf.Positional[str] = ""
    """digits, procedural, tiny-imagenet, cifar100, or images for your own."""
    images: Path | None = None
    """Your own: a folder with one sub-folder a class, a .csv of file and label, or an .npz."""
    data: str | None = None
    """tfds:NAME, in place of --images: an image set that TFDS prepared as array_record."""
    features: str | None = None
    """In the place of images: efficientnet-lite0 computes its own, FILE.npz holds some with
    labels."""
    methods: tuple[str, ...] | None = ("joint", "EWC", "ER", "DER++", "nearest mean")
    """Names of the table of methods, each in quotes; None is all. naive is always among them."""
    scale: Scale = "demo"
    """How much of procedural, tiny-imagenet and cifar100 is taken: 20 classes of 100 training
    images at 16 pixels, 100 of 200, or 100 of 500 at 32."""
    tasks: Count | None = None
    """Into which the classes are cut, as equal as it goes."""
    side: Side | None = None
    """Of the images, in pixels; of your own, which may be of any size, 32, for features 224."""
    test_every: Annotated[int, Between(2, 1000)] = 5
    """Of your own images each so-manieth of a class is a test image."""


class Size(NamedTuple):
    """How much of a data set a scale takes."""

    classes: int
    per_class: tuple[int, int]
    """At most so many training and test images of each."""
    side: int


SIZES: dict[Scale, Size] = {
    "demo": Size(20, (100, 50), 16),
    "cpu": Size(100, (200, 50), 16),
    "paper": Size(100, (500, 100), 32),
}
PICTURES = Plan(tasks=5, epochs=5, batch_size=16, online_batch=10, rate=0.02, exemplars=20)
DIGITS = Plan(tasks=5, epochs=10, batch_size=16, online_batch=10, rate=0.02, exemplars=10)
HIDDEN = 100
OWN_SIDE, TRUNK_SIDE = 32, 224
"""Of a user's images; the second as EfficientNet-Lite0 was trained."""
TFDS = "tfds:"


def digits(settings: StrategiesRun) -> Benchmark:
    """Handwritten digits of 8x8, which ship with scikit-learn."""
    images = load_digits()
    values = jnp.asarray(images.images[..., :1])
    train = values[: len(images.train_labels)]
    stored = StoredImages(values, jnp.mean(train)[None], jnp.std(train)[None])
    layers, net_note = ("hidden1", "hidden2"), f"two hidden layers of {HIDDEN} units"

    def net(trains: Trains, head: HeadKind) -> nn.Module:
        return MLP(10, (HIDDEN, HIDDEN) if trains == "net" else (), head, plan.dtype)

    plan = planned(DIGITS, settings)
    note = f"{images.name} of 8×8 pixels"
    return assemble("digits", note, images, stored, net, layers, net_note, plan)


def procedural(settings: ContinualRun) -> Benchmark:
    """The procedural world; no data needed."""
    size = SIZES[settings.scale]
    subclasses = -(-size.classes // 10)
    world = World(size.classes // subclasses, subclasses, seed=settings.seed)
    images = load_procedural(world, *size.per_class)
    return of_pictures("procedural", _resized(images, settings, size), settings)


def tiny_imagenet(settings: ContinualRun) -> Benchmark:
    """Tiny-ImageNet at 32x32."""
    size = SIZES[settings.scale]
    images = load_tiny_imagenet_32(range(size.classes))
    return of_pictures("tiny-imagenet", _resized(images, settings, size), settings)


def cifar100(settings: ContinualRun) -> Benchmark:
    """CIFAR-100."""
    size = SIZES[settings.scale]
    images = first_classes(load_cifar100(), size.classes)
    return of_pictures("cifar100", _resized(images, settings, size), settings)


def own_images(settings: ContinualRun) -> Benchmark:
    """A user's own."""
    side = settings.side or (TRUNK_SIDE if settings.features else OWN_SIDE)
    if settings.data is not None:
        return of_pictures("images", load_tfds(settings.data.removeprefix(TFDS), side), settings)
    if settings.images is None:
        raise DataError(
            "the benchmark 'images' needs --images: a folder with one sub-folder a class, a .csv "
            "of file and label, or an .npz with images and labels; or --data tfds:NAME"
        )
    images, note = load_own_images(settings.images, side, settings.test_every)
    return of_pictures("images", images, settings, note)


BENCHMARKS: dict[str, Callable[[ContinualRun], Benchmark]] = {
    "digits": digits,
    "procedural": procedural,
    "tiny-imagenet": tiny_imagenet,
    "cifar100": cifar100,
    "images": own_images,
}


def of_pictures(
    name: str, images: ImageSet, settings: StrategiesRun, note: str | None = None
) -> Benchmark:
    """A benchmark of colour images, learnt by a small convolutional net."""
    side, classes = images.images.shape[1], len(images.class_names)
    shape = PlainCNN(classes) if side >= 32 else PlainCNN(classes, (16, 32), 64)
    widths = ", ".join(map(str, shape.channels))
    net_note = f"convolutions of {widths} channels and {shape.hidden} hidden units"

    def net(trains: Trains, head: HeadKind) -> nn.Module:
        if trains == "head":
            return MLP(classes, (), head)
        return shape.clone(head=head, dtype=plan.dtype)

    plan = planned(PICTURES, settings)
    said = note or f"{images.name}: {classes} classes at {side}×{side} pixels"
    stored = store_images(images)
    return assemble(name, said, images, stored, net, shape.layers, net_note, plan)


def _resized(images: ImageSet, settings: ContinualRun, size: Size) -> ImageSet:
    chosen = first_per_class(images, *size.per_class)
    # A trunk has its own size, to which it enlarges small images.
    largest = chosen.images.shape[1] if settings.features else size.side
    return shrink_images(chosen, settings.side or largest)


def assemble(
    name: str,
    note: str,
    images: ImageSet,
    stored: StoredImages,
    net: Callable[[Trains, HeadKind], nn.Module],
    layers: tuple[str, ...],
    net_note: str,
    plan: Plan,
) -> Benchmark:
    """The record of its parts.

    Raises:
      DataError: more tasks than classes.
    """
    classes = len(images.class_names)
    if plan.tasks > classes:
        raise DataError(f"--tasks {plan.tasks} of {classes} classes; give {classes} or fewer")
    sequence = _sequences(images, plan.tasks)
    return Benchmark(name, note, images, stored, net, layers, net_note, plan, sequence)


def _sequences(images: ImageSet, tasks: int) -> Callable[[int, Use], TaskSequence]:
    classes = len(images.class_names)
    counts = np.bincount(images.train_labels, minlength=classes)
    # Every class has one that validates, whatever rounding makes of one over its size.
    fraction = max(VALID, (1 + 1e-6) / counts.min())

    def ordered(order: np.ndarray) -> TaskSequence:
        cut = [part.tolist() for part in np.array_split(order, tasks)]
        return class_incremental(images.train_labels, images.test_labels, cut, classes, fraction)

    # The largest classes first make the largest task that any order can have.
    largest = ordered(np.argsort(-counts, kind="stable"))
    shapes = largest, tested_on_validation(largest)

    @functools.cache
    def sequence(order: int, use: Use) -> TaskSequence:
        drawn = ordered(np.random.default_rng(order).permutation(classes))
        if use == "tuning":
            drawn = tested_on_validation(drawn)
        return _not_validating(same_shapes([drawn, *shapes])[0])

    return sequence


def _not_validating(sequence: TaskSequence) -> TaskSequence:
    """Nothing is chosen by validation within a task, which would train GDumb's nets for it."""
    valid = sequence.tasks.valid
    none = valid._replace(mask=jnp.zeros_like(valid.mask))
    return sequence._replace(tasks=sequence.tasks._replace(valid=none))
