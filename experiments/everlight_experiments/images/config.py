"""Configurations of benchmarks of images with one class each: every field is an option.

A configuration is data x tasks x network x optimizer x protocol x memory x metrics. Presets:
  demo: 20 classes of 100 training images at 16 pixels, minutes on two cores;
  small: 100 classes of 200 training images at 16 pixels;
  paper: 100 classes of 500 training images at 32 pixels.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from everlight.checks import Between, UnitInterval
from everlight.continual import Protocol
from everlight.continual.methods.method import Method
from everlight.models import networks
from everlight_data.images.published_forms.idx_folders import is_idx_folder
from everlight_data.images.user_files.user_images import TFDS
from everlight_data.registry import IMAGE_SETS
from everlight_experiments.continual.benchmarks.config import (
    UNNAMED,
    BenchmarkConfig,
    Dtype,
    Features,
    Side,
    unread_of_protocol,
)
from everlight_experiments.continual.benchmarks.statements import (
    NOTHING_TUNED,
    Statement,
    Statements,
)
from everlight_experiments.run_folder.options import Count, Rate

_NETWORKS = "; ".join(f"{row.form} ({row.meaning})" for row in networks().values())
_NET_HELP = (
    f"Network: {_NETWORKS}; or FILE.py:NAME, a function from the number of classes to a linen "
    "module, or from it and rngs to an NNX module, or from it and key to an Equinox module."
)
Criterion = Literal["final accuracy", "accuracy over all times (A)"]
Pixels = Literal["channels", "unit"]
Augmentation = Literal["none", "crop-and-flip"]
Initialization = Literal["own", "xavier"]
LossClasses = Literal["seen", "all"]
Stream = Literal["classes", "split-domains", "permuted", "rotated", "permuted-labels"]
DIVIDING: tuple[Stream, ...] = ("classes", "split-domains")
"""Streams that divide the classes among the tasks; in the others every task has all classes."""
FIVE_EPOCHS = Protocol(epochs=5, batch_size=16, select="last")
FEATURES_CHOSEN = (
    Statement(
        "among 0.0003, 0.001 and 0.003, the one with the highest accuracy of joint and ER-balanced "
        "on a validation seed of Tiny-ImageNet's first 100 classes.",
        ("features-learning-rate",),
    ),
    Statement("among 2, 5 and 15, by the same accuracy.", ("epochs",)),
    Statement("not tuned.", ("batch-size", "buffer-size", "exemplars-per-class")),
)

_ONLINE_PASS = "with --setting online, which has one pass in batches of --online-batch"
_UNREAD_ONLINE = {
    part.name.replace("_", "-"): f"{_ONLINE_PASS}; leave it out"
    for part in fields(Protocol)
    if part.name not in ("evaluate_steps", "boundaries")
} | {"batch-size": "with --setting online; give --online-batch"}


_LENGTH_AND_MILESTONES = (
    *("epochs", "first-epochs", "epoch-steps"),
    *("milestones", "milestone-factor"),
)


@dataclass(frozen=True)
class Unevenness:
    """Long-tailed, blurry and recurring classes; test sets stay as they are."""

    imbalance: Annotated[float, Between(1, 1_000_000)] = 1.0
    """Long-tailed classes: ratio of the training images of the most to the least frequent class.
    The numbers of images fall exponentially with the number of the class (Cao et al. 2019), as far
    as all classes have enough; 1 keeps all images."""
    blurry: Annotated[float, Between(0, 0.9)] = 0.0
    """Blurry task boundaries: fraction of the training images of each task that the other tasks
    get, in equal parts (blurry M of Bang et al. 2021; 0.1 is M = 10 per cent). The accuracy on a
    task is that on the classes of its own, whichever tasks train on them."""
    recurring: UnitInterval = 0.0
    """Recurring classes: probability with which a class of an earlier task comes again in each
    later task (Hemati et al. 2023), each time with other training images. The accuracy on a task is
    that on the classes that it brings, whichever tasks train on them."""

    @property
    def shared(self) -> dict[str, float]:
        """Values above 0 of the options with which several tasks train on one class."""
        values = {"blurry": self.blurry, "recurring": self.recurring}
        return {name: value for name, value in values.items() if value}


@dataclass(frozen=True)
class MethodSettings:
    """Settings of one method; None is the benchmark's."""

    learning_rate: Rate | None = None
    replay_batch_size: Count | None = None
    weight_decay: UnitInterval | None = None
    arguments: Mapping[str, float | str | bool] | None = None
    epochs: Count | None = None
    net: str | None = None


@dataclass(frozen=True)
class Config(BenchmarkConfig):
    """Data, tasks, network, optimizer, protocol, memory and metrics of a benchmark."""

    # Checksums stand for the data, `config_of` puts a method's settings in their place.
    not_identifying: ClassVar[tuple[str, ...]] = (
        *("data", "test_data", "first_class", "pretrained"),
        *("features", "features_learning_rate", "features_chosen"),
        *("criterion", "grids", "method_settings", "chosen"),
    )
    data: str = ""
    """Image set: digits, fashion-mnist, mnist, procedural, tiny-imagenet, tiny-imagenet-64,
    cifar10, cifar100; tfds:NAME; or your own, a folder with one sub-folder per class, a .csv of
    file and label, an .npz, or a folder of IDX files."""
    test_data: Path | None = None
    """Path of your own test set, in any of the forms of --data and with the same class names; None
    splits off test images of --data (--test-every)."""
    test_every: Annotated[int, Between(2, 1000)] = 5
    """Every N-th image of each class of your own images is a test image."""
    classes: Count | None = None
    """Number of classes, the first ones; None is all."""
    first_class: Annotated[int, Between(0, 100_000)] = 0
    """Number of classes that are left out before the first one, such as those of pretraining."""
    per_class: tuple[Count, Count] | None = None
    """Largest number of training and of test images per class; None is all."""
    side: Side | None = None
    """Side of the images in pixels; None is the set's own, and 32 for your photographs."""
    pixels: Pixels = "channels"
    """Normalization: channels subtracts each channel's training mean and divides by its standard
    deviation, unit divides by 255."""
    normalization: Literal["first-task"] | None = None
    """Training images whose mean and standard deviation normalize images and features: first-task
    takes those of the first task of each seed. None takes those of all tasks, which is optimistic,
    since no learner has the later tasks beforehand."""
    features: Features = None
    tasks: tuple[Count, ...] = (5,)
    """Number of tasks of as equal sizes as possible, or the number of classes of every task."""
    order: Literal["seeded", "natural"] = "seeded"
    """Order of the classes: seeded is another one for every seed, natural is that of the labels."""
    cycles: Count = 1
    """Number of passes over the tasks; above 1 classes recur, each time with other images."""
    unevenness: Annotated[Unevenness, UNNAMED] = Unevenness()
    stream: Stream = "classes"
    """Difference between tasks: classes brings new classes in every task. The others are
    domain-incremental, with the same labels in every task: split-domains divides the classes, and
    labels each by its position in its task; permuted has other orders of the pixels of all classes,
    rotated other angles from 0 up to 180 degrees, permuted-labels other labels of the same
    images."""
    stream_draws: Literal["shared", "seeded"] = "shared"
    """Permutations or angles of --stream: shared has the same for all seeds, with angles in equal
    steps; seeded draws others for every seed, with angles in no order, as the literature does."""
    label_noise: UnitInterval = 0.0
    """Fraction of the training and validation images whose label is another class, drawn uniformly;
    test labels stay."""
    shots: Count | None = None
    """Training images per class in every task after the first (few-shot); None is all."""
    net: Annotated[str, tyro.conf.arg(help=_NET_HELP)] = "cnn"
    pretrained: Path | None = None
    """Layers with which the network begins, except its head: an .npz of a vision transformer of
    Google's release for --net vit; an .npz or the folder of an orbax checkpoint of the same --net,
    with arrays by name (docs/pages/guide/networks.md); or the folder of a run of the same --net
    with --keep-nets, of which it is naive's of the first seed after the last task. None draws all
    layers."""
    dropout: tuple[UnitInterval, ...] = ()
    """Dropout of --net small-cnn after both blocks and the dense layer."""
    augmentation: Augmentation = "none"
    """Random change of every training image in every step: crop-and-flip shifts it by up to four
    pixels and flips it, the usual augmentation of CIFAR."""
    initialization: Initialization = "own"
    """Initial weights: own are those of the network, xavier draws its kernels from the uniform
    distribution of Glorot and Bengio."""
    loss_classes: LossClasses = "seen"
    """Classes in the loss: seen are those of the tasks so far, all includes those still to come.
    The loss of DER, DER++ and DER++-MKD has all in both cases, as their authors' has, unless
    --method-arguments states otherwise, as in DER:loss_over=seen."""
    optimizer: str = "sgd:momentum=0.9"
    """Optimizer: any of optax by name, with arguments, as in adam:b1=0.8,b2=0.99."""
    learning_rate: Rate = 0.01
    """Learning rate of the optimizer."""
    weight_decay: UnitInterval = 0.0
    """Coefficient of the parameters that is added to every gradient."""
    features_learning_rate: Rate = 0.001
    """Learning rate of a linear head on --features, which replaces --learning-rate."""
    protocol: Annotated[Protocol, UNNAMED] = FIVE_EPOCHS
    compute_budget: Count | None = None
    """Operations per task, counted in training steps of naive finetuning: a method whose steps take
    more of them has fewer steps, in one epoch. None is the number of epochs."""
    online_batch: Count = 10
    """Samples per step in the online setting, which has one pass."""
    validation_fraction: Annotated[float, Between(0, 0.9)] = 0.1
    """Fraction of each class's training images that selects hyper-parameters and epochs; these
    images are not trained on."""
    exemplars_per_class: Count = 20
    """Stored samples per class. A memory that is not divided by class holds this number times the
    number of classes."""
    buffer_size: Count | None = None
    """Total number of stored samples, instead of --exemplars-per-class."""
    replay_batch_size: Count | None = None
    """Samples that methods with a replay batch, such as ER, draw per step; None is the batch
    size."""
    ema_decay: Annotated[float, Between(0, 0.999_999)] | None = None
    """Decay per step of a moving average of the weights (EMA) that predicts instead of the last
    weights; None predicts by these."""
    dtype: Dtype = "float32"
    metrics: tuple[str, ...] = ()
    """Metrics in addition to accuracy: accuracy by class, confusion; task-masked accuracy (among
    the classes of each sample's task, of the same training); diagnostics of plasticity after every
    task: dormant units, dead units, effective rank, stable rank, weight norm."""
    criterion: Criterion = "final accuracy"
    """Value on the validation seeds that selects hyper-parameters."""
    method_settings: tyro.conf.Suppress[Mapping[str, MethodSettings]] = field(default_factory=dict)
    """Settings of methods that differ from the benchmark's."""
    arguments: tyro.conf.Suppress[Mapping[str, float | str | bool]] = field(default_factory=dict)
    """Arguments of the strategy that replace those of the registry."""
    grids: tyro.conf.Suppress[Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    """Grids of methods that differ from the table's."""
    chosen: Statements = NOTHING_TUNED
    """Statements on the choice of these values; options that the user gives are left out."""
    features_chosen: Statements = FEATURES_CHOSEN
    """The same of a linear head on --features."""

    @property
    def replaced_by_features(self) -> tuple[str, ...]:
        """Options of the network and its inputs, and the side of images that have their own."""
        sizes = ("side",) if self.data in IMAGE_SETS else ()
        return ("net", "dropout", "pixels", "dtype", "learning-rate", *sizes)

    def unread(
        self, benchmark: str = "", settings: Collection[str] = (), has_rows: bool = False
    ) -> dict[str, str]:
        """Return the options that features, other options or the settings replace, as the base."""
        named = self.data in IMAGE_SETS or self.data.startswith(TFDS)
        fixed_tests = named or (self.data and is_idx_folder(Path(self.data)))
        reasons = {
            f"with --data {self.data}, which has its own test images; leave it out": (
                ("test-every",) if fixed_tests else ()
            ),
            "with --test-data; leave it out": ("test-every",) if self.test_data else (),
            f"with --stream {self.stream}, whose tasks have all classes; leave it out": (
                () if self.stream in DIVIDING else ("order",)
            ),
            "with --buffer-size; give that, or --buffer-size None": (
                () if self.buffer_size is None else ("exemplars-per-class",)
            ),
            "with --compute-budget, in whose place it stands; leave one of them out": (
                () if self.compute_budget is None else _LENGTH_AND_MILESTONES
            ),
            "without --setting online; leave it out, or give that setting": (
                () if "online" in settings else ("online-batch",)
            ),
        }
        unread = super().unread(benchmark, settings, has_rows) | unread_of_protocol(self.protocol)
        if {*settings} == {"online"}:
            unread |= _UNREAD_ONLINE
        by_option = {option: reason for reason, names in reasons.items() for option in names}
        return unread | by_option

    @property
    def task_sizes(self) -> tuple[int, ...] | None:
        """Number of classes of every task; None for as equal sizes as possible."""
        return None if len(self.tasks) == 1 else self.tasks

    @property
    def number_of_tasks(self) -> int:
        """Number of tasks of one cycle."""
        return self.tasks[0] if self.task_sizes is None else len(self.task_sizes)

    @property
    def sequence_length(self) -> int:
        """Number of tasks of all cycles."""
        return self.number_of_tasks * self.cycles


def config_of(config: Config, method: Method) -> Config:
    """Return the configuration with the settings of a method, or of the row that it varies."""
    changes = asdict(config.method_settings.get(method.row_name, MethodSettings()))
    protocol, epochs = config.protocol, changes.pop("epochs")
    if epochs is not None:
        protocol = replace(protocol, epochs=epochs)
    values = {key: value for key, value in changes.items() if value is not None}
    return replace(config, protocol=protocol, **values)


DIGITS = Config(
    data="digits",
    net="mlp:100,100",
    learning_rate=0.02,
    protocol=Protocol(epochs=10, batch_size=16, select="last"),
    exemplars_per_class=10,
    chosen=(
        Statement(
            "among 0.005, 0.01, 0.02, 0.05 and 0.1, the one with the highest accuracy of joint and "
            "ER-balanced on validation seeds.",
            ("learning-rate",),
        ),
        Statement("among 3, 10 and 30, by the same accuracy.", ("epochs",)),
        Statement("not tuned.", ("batch-size", "buffer-size", "exemplars-per-class")),
    ),
)
PICTURES = Config(
    chosen=(
        Statement(
            "among 0.005, 0.01, 0.02 and 0.05, the one with the highest accuracy of joint and "
            "ER-balanced on validation seeds of the procedural world.",
            ("learning-rate",),
        ),
        Statement("not tuned.", ("epochs", "batch-size", "buffer-size", "exemplars-per-class")),
    ),
)
_SIZES = {
    "demo": {"classes": 20, "per_class": (100, 50), "side": 16},
    "small": {"classes": 100, "per_class": (200, 50), "side": 16},
    "paper": {"classes": 100, "per_class": (500, 100), "side": 32},
}


IDX = replace(
    PICTURES,
    net="mlp:256,256",
    optimizer="sgd",
    learning_rate=0.03,
    protocol=Protocol(epochs=1, batch_size=10, select="last"),
    buffer_size=500,
    chosen=(
        Statement(
            "those of Buzzega et al. 2020 (ICPR) for ER with 200 stored samples.",
            ("optimizer", "learning-rate", "batch-size"),
        ),
        Statement("that of the batch; the paper has 128.", ("replay-batch-size",)),
        *NOTHING_TUNED,
    ),
)
CONFIGS: dict[str, dict[str, Config]] = {
    "digits": dict.fromkeys(_SIZES, DIGITS),
    "fashion-mnist": dict.fromkeys(_SIZES, replace(IDX, data="fashion-mnist")),
    "mnist": dict.fromkeys(_SIZES, replace(IDX, data="mnist")),
    **{
        data: {preset: replace(PICTURES, data=data, **size) for preset, size in _SIZES.items()}
        for data in ("procedural", "tiny-imagenet", "cifar100")
    },
    "cifar10": {
        preset: replace(PICTURES, data="cifar10", per_class=size["per_class"], side=size["side"])
        for preset, size in _SIZES.items()
    },
    "tiny-imagenet-64": {
        preset: replace(PICTURES, data="tiny-imagenet-64", **{**size, "side": 64})
        for preset, size in _SIZES.items()
    },
    "images": dict.fromkeys(_SIZES, PICTURES),
}
"""Configurations by benchmark and preset."""
