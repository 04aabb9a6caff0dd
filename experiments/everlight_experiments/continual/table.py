"""The table of benchmarks, and the general ones: images whose classes come in tasks."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import jax.numpy as jnp
import optax
import tyro

from everlight.checks import Between
from everlight.continual import Protocol, StoredImages
from everlight.models import MLP, PlainCNN, ReducedResNet
from everlight_data.errors import DataError
from everlight_data.images.cifar100 import load_cifar100
from everlight_data.images.digits import load_digits
from everlight_data.images.image_set import ImageSet, first_classes, first_per_class, shrink_images
from everlight_data.images.tfds_sets import load_tfds
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32
from everlight_data.procedural.world import World, load_procedural
from everlight_experiments.cl_metrics.record import icifar
from everlight_experiments.common.sequences import store_images
from everlight_experiments.common.settings import Count, Preset
from everlight_experiments.continual.benchmark import Benchmark, Net, Training, head_or, of_classes
from everlight_experiments.continual.features import (
    LITE0,
    Features,
    features_alone,
    linear_net,
    load_features,
    stored_features,
)
from everlight_experiments.continual.own_images import load_own_images
from everlight_experiments.continual.plan import (
    Plan,
    StrategiesRun,
    computed_in,
    in_replay_batches,
    planned,
    without_unset,
)
from everlight_experiments.core50.record import core50_benchmark
from everlight_experiments.facts.record import facts_benchmark
from everlight_experiments.iirc.record import iirc_benchmark

MOMENTUM = 0.9

Side = Annotated[int, Between(8, 512)]


@dataclasses.dataclass(frozen=True)
class ContinualRun(StrategiesRun):
    """Train any strategies on one benchmark or on your own images."""

    benchmark: tyro.conf.Positional[str] = ""
    """Name of the benchmark: digits, procedural, tiny-imagenet, cifar100, icifar, iirc,
    core50-ni, core50-nc, core50-nic, facts, or images for your own."""
    images: Path | None = None
    """Path of your own images, for the benchmark images: a folder with one sub-folder per class,
    a .csv of file and label, or an .npz."""
    data: str | None = None
    """Image set prepared by TensorFlow Datasets (TFDS) as array_record, tfds:NAME, instead of
    --images."""
    methods: tuple[str, ...] | None = ("joint", "EWC", "ER", "DER++", "nearest mean")
    """Names of methods from the list above, in quotes where they contain spaces. None is every
    method that the benchmark supports. The baseline naive always runs."""
    preset: Preset = "demo"
    """Size of the benchmark, which is another for each (table in docs/guide/runner.md); digits and
    images have one size."""
    tasks: Count | None = None
    """Number of tasks into which the classes are split as equally as possible. None is the
    benchmark's own value."""
    side: Side | None = None
    """Side of the images in pixels. None is the preset's; for your own images it is 32, or 224 for
    features."""
    test_every: Annotated[int, Between(2, 1000)] = 5
    """Every N-th image of each class of your own images is a test image."""


class Size(NamedTuple):
    """How much of a data set a preset takes."""

    classes: int
    per_class: tuple[int, int]
    """At most so many training and test images of each."""
    side: int


SIZES: dict[Preset, Size] = {
    "demo": Size(20, (100, 50), 16),
    "small": Size(100, (200, 50), 16),
    "paper": Size(100, (500, 100), 32),
}
PICTURES = Plan(
    tasks=5,
    epochs=5,
    batch_size=16,
    online_batch=10,
    learning_rate=0.01,
    exemplars_per_class=20,
    chosen="The learning rate (0.005, 0.01, 0.02 or 0.05) is that with the highest accuracy of "
    "joint and ER-balanced on validation seeds of the procedural world. Epochs, batch size and "
    "memory size were not tuned.",
)
ON_FEATURES = PICTURES._replace(
    learning_rate=0.001,
    chosen="The learning rate (0.0003, 0.001 or 0.003) and the epochs (2, 5 or 15) have the "
    "highest accuracy of joint and ER-balanced on a validation seed of Tiny-ImageNet's first 100 "
    "classes. Batch size and memory size were not tuned.",
)
DIGITS = Plan(
    tasks=5,
    epochs=10,
    batch_size=16,
    online_batch=10,
    learning_rate=0.02,
    exemplars_per_class=10,
    chosen="The learning rate (0.005, 0.01, 0.02, 0.05 or 0.1) and the epochs (3, 10 or 30) have "
    "the highest accuracy of joint and ER-balanced on validation seeds. Batch size and memory size "
    "were not tuned.",
)
HIDDEN = 100
OWN_SIDE, TRUNK_SIDE = 32, 224
"""Of a user's images; the second as EfficientNet-Lite0 was trained."""
TFDS = "tfds:"


def digits(settings: StrategiesRun) -> Benchmark:
    """Handwritten digits of 8x8, which ship with scikit-learn."""
    images = load_digits()
    note = f"{images.name} of 8×8 pixels"
    if settings.features is not None:
        return on_features("digits", note, images, settings)
    values = jnp.asarray(images.images[..., :1])
    train = values[: len(images.train_labels)]
    stored = StoredImages.of(values, jnp.mean(train)[None], jnp.std(train)[None])
    plan = _without_blocks(planned(DIGITS, settings))
    net = Net(
        head_or(MLP(10, (HIDDEN, HIDDEN), dtype=plan.dtype), 10),
        ("hidden1", "hidden2"),
        f"two hidden layers of {HIDDEN} units{computed_in(plan.dtype)}",
    )
    return of_plan("digits", note, images, stored, net, plan, settings)


def procedural(settings: ContinualRun) -> Benchmark:
    """The procedural world; no data needed."""
    size = SIZES[settings.preset]
    subclasses = -(-size.classes // 10)
    world = World(size.classes // subclasses, subclasses, seed=settings.seed)
    images = load_procedural(world, *size.per_class)
    return of_pictures("procedural", _resized(images, settings, size), settings)


def tiny_imagenet(settings: ContinualRun) -> Benchmark:
    """Tiny-ImageNet at 32x32."""
    size = SIZES[settings.preset]
    images = load_tiny_imagenet_32(range(size.classes))
    return of_pictures("tiny-imagenet", _resized(images, settings, size), settings)


def cifar100(settings: ContinualRun) -> Benchmark:
    """CIFAR-100."""
    size = SIZES[settings.preset]
    images = first_classes(load_cifar100(), size.classes)
    return of_pictures("cifar100", _resized(images, settings, size), settings)


def own_images(settings: ContinualRun) -> Benchmark:
    """A user's own."""
    side = settings.side or (TRUNK_SIDE if settings.features else OWN_SIDE)
    if settings.data is not None:
        return of_pictures("images", load_tfds(settings.data.removeprefix(TFDS), side), settings)
    if settings.images is None and settings.features not in (None, LITE0):
        features, images, note = features_alone(settings.features, settings.test_every)
        return _learnt_from(features, "images", note, images, settings)
    if settings.images is None:
        raise DataError(
            "the benchmark 'images' needs --images: a folder with one sub-folder per class, a .csv "
            "of file and label, or an .npz with images and labels; or --data tfds:NAME"
        )
    images, note = load_own_images(settings.images, side, settings.test_every)
    return of_pictures("images", images, settings, note)


GENERAL: dict[str, Callable[[ContinualRun], Benchmark]] = {
    "digits": digits,
    "procedural": procedural,
    "tiny-imagenet": tiny_imagenet,
    "cifar100": cifar100,
    "images": own_images,
}
"""Whose plan is `Plan`."""
BENCHMARKS: dict[str, Callable[[ContinualRun], Benchmark]] = {
    **GENERAL,
    "icifar": icifar,
    "iirc": iirc_benchmark,
    "core50-ni": partial(core50_benchmark, "NI"),
    "core50-nc": partial(core50_benchmark, "NC"),
    "core50-nic": partial(core50_benchmark, "NIC"),
    "facts": facts_benchmark,
}


def of_pictures(
    name: str, images: ImageSet, settings: StrategiesRun, note: str | None = None
) -> Benchmark:
    """A benchmark of colour images, learnt by a small convolutional net."""
    side, classes = images.images.shape[1], len(images.class_names)
    said = note or f"{images.name}: {classes} classes at {side}×{side} pixels"
    if settings.features is not None:
        return on_features(name, said, images, settings)
    plan = planned(PICTURES, settings)
    net = _net_of_pictures(side, classes, plan)
    return of_plan(name, said, images, store_images(images), net, plan, settings)


def _net_of_pictures(side: int, classes: int, plan: Plan) -> Net:
    if plan.blocks:
        deep = ReducedResNet(classes, plan.blocks, dtype=plan.dtype)
        said = f"reduced ResNet of {6 * plan.blocks + 2} layers{computed_in(plan.dtype)}"
        return Net(head_or(deep, classes), (), said)
    shape = PlainCNN(classes) if side >= 32 else PlainCNN(classes, (16, 32), 64)
    widths = ", ".join(map(str, shape.channels))
    return Net(
        head_or(shape.clone(dtype=plan.dtype), classes),
        shape.layers,
        f"convolutions of {widths} channels and {shape.hidden} hidden units"
        f"{computed_in(plan.dtype)}",
    )


def on_features(name: str, note: str, images: ImageSet, settings: StrategiesRun) -> Benchmark:
    """The benchmark learnt from features of its images by a linear head.

    Raises:
      DataError: as `load_features`.
    """
    # Refused before anything is computed.
    _without_blocks(planned(ON_FEATURES, settings))
    features = load_features(settings.features, images, settings.runs)
    return _learnt_from(features, name, note, images, settings)


def _learnt_from(
    features: Features, name: str, note: str, images: ImageSet, settings: StrategiesRun
) -> Benchmark:
    stored = stored_features(features, slice(len(images.train_labels)))
    net = linear_net(features, len(images.class_names))
    plan = _without_blocks(planned(ON_FEATURES, settings))
    return of_plan(name, note, images, stored, net, plan, settings)


def _without_blocks(plan: Plan) -> Plan:
    """The plan, refused where it asks for a net of pictures."""
    if plan.blocks:
        raise DataError("--plan.blocks is for networks that learn from pixels")
    return plan


def _resized(images: ImageSet, settings: ContinualRun, size: Size) -> ImageSet:
    chosen = first_per_class(images, *size.per_class)
    # A trunk has its own size, to which it enlarges small images.
    largest = chosen.images.shape[1] if settings.features else size.side
    return shrink_images(chosen, settings.side or largest)


def of_plan(
    name: str,
    note: str,
    images: ImageSet,
    stored: StoredImages,
    net: Net,
    plan: Plan,
    settings: StrategiesRun,
) -> Benchmark:
    """The record of its parts, learnt by gradient descent with momentum.

    Raises:
      DataError: more tasks than classes, or a memory of less than a sample per class.
    """
    held, each = plan.buffer_size, ""
    if held is None:
        held = plan.exemplars_per_class * len(images.class_names)
        each = f" ({plan.exemplars_per_class} per class)"
    memory = f"replay memory of {held:,} samples in total{each}"
    every_task = f"{plan.epochs} epochs per task in batches of {plan.batch_size}"
    one_pass = f"online one pass in batches of {plan.online_batch}"
    lengths = [every_task] if set(settings.scenarios) - {"online"} else []
    lengths += [one_pass] if "online" in settings.scenarios else []
    training = Training(
        plan.tasks,
        Protocol(epochs=plan.epochs, batch_size=plan.batch_size, select="last"),
        plan.online_batch,
        optax.sgd(plan.learning_rate, momentum=MOMENTUM),
        plan.exemplars_per_class,
        f"SGD with learning rate {plan.learning_rate:g} and momentum {MOMENTUM:g}; "
        f"{'; '.join(lengths)}; {memory}{in_replay_batches(plan.replay_batch_size)}",
        plan.chosen,
        # So far does a constant gradient carry in the end, as implicit steps on penalties need.
        reach=plan.learning_rate / (1 - MOMENTUM),
        replay_batch_size=plan.replay_batch_size,
        buffer_size=plan.buffer_size,
    )
    every = without_unset(plan._asdict())
    facts = {key: value for key, value in every.items() if key != "chosen"}
    scenarios = settings.scenarios
    benchmark = of_classes(name, note, images, stored, net, training, scenarios, facts)
    return benchmark._replace(plan=plan)
