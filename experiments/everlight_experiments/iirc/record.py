"""IIRC as a benchmark: data, nets and training of the paper at each preset."""

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Literal, NamedTuple, get_args

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Int, UInt8

from everlight.continual.base import Setup, TaskSequence
from everlight.continual.engine.flax_setup import StoredImages, StreamedImages, flax_setup
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import SequenceResult
from everlight.continual.objectives.many_labels import binary_objective, multi_hot
from everlight.metrics.multilabel import class_type_scores, class_types, task_score_matrix
from everlight.models import MLP
from everlight.models.augmentation import crop_and_flip
from everlight.models.heads import HeadKind
from everlight.models.resnet import ReducedResNet, ResNet50
from everlight.scenarios.iirc import Hierarchy, Setting, TaskConfiguration, iirc
from everlight.scenarios.shapes import same_shapes
from everlight_data.errors import DataError
from everlight_data.images.cifar100 import IIRC_CHANNELS, load_cifar100
from everlight_data.images.iirc_metadata import (
    Metadata,
    OfficialName,
    draw_configuration,
    official_metadata,
    procedural_metadata,
    superclasses_first,
    tiny_imagenet_metadata,
)
from everlight_data.images.image_set import Channels, ImageSet, first_per_class, shrink_images
from everlight_data.images.imagenet import ImageFiles
from everlight_data.images.jpeg_store import JpegStore
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32, tiny_imagenet_names
from everlight_data.procedural.world import World, load_procedural
from everlight_experiments.common.checkpoint import checksums_of
from everlight_experiments.common.plan_settings import changed_plan
from everlight_experiments.common.sequences import store_images
from everlight_experiments.common.settings import Count, Preset, Rate
from everlight_experiments.common.streaming import channels, stream
from everlight_experiments.continual.benchmark import (
    Arrays,
    Begin,
    Benchmark,
    Draw,
    RunData,
    Scores,
)
from everlight_experiments.continual.features import (
    AS_THEY_COME,
    Features,
    load_features,
    stored_features,
)
from everlight_experiments.continual.methods import METHODS, Method, Needs, Trains
from everlight_experiments.continual.plan import (
    Dtype,
    StrategiesRun,
    computed_in,
    in_replay_batches,
    without_unset,
)
from everlight_experiments.iirc.streaming import fingerprint, load_imagenet

LABELS = 2
"""Of a sample, at most."""
MOMENTUM, WEIGHT_DECAY = 0.9, 1e-5
SCENARIO = "incomplete labels"
CLASS_TYPES = ("superclasses", "subclasses", "classes without one")
CHANNELS: Mapping[str, Channels] = dict.fromkeys(
    ("iirc_cifar100", "incremental_cifar100"), IIRC_CHANNELS
)
"""By which the authors normalise a data set in memory; others are by their own training images."""
MOST_ORDERS = 10
"""Task configurations that are drawn where none are published, for any strategies."""

PAPER_METHODS: dict[str, Method] = {
    **{
        name: METHODS[name]
        for name in (
            *("joint", "incremental joint", "ER-infinite", "ER-balanced"),
            *("iCaRL-CNN", "iCaRL-norm"),
        )
    },
    "LUCIR": METHODS["LUCIR"]._replace(hyperparameters=(5.0,)),
    "BiC": METHODS["BiC"],
    "A-GEM": METHODS["A-GEM"],
    "finetune": METHODS["naive"]._replace(name="finetune"),
}
# And LUCIR that holds features less, and BiC's other stages 1 and 2.
FORMS: dict[str, Method] = PAPER_METHODS | {
    "LUCIR-0.5": METHODS["LUCIR"]._replace(name="LUCIR-0.5", hyperparameters=(0.5,)),
    **{name: METHODS[name] for name in METHODS if name.startswith("BiC-")},
}
WITH_EXEMPLARS = tuple(
    name for name, row in FORMS.items() if "exemplars_per_class" in row.given(Needs(1, 1, 1))
)
DataSet = Literal["procedural", "tiny-imagenet"] | OfficialName


@dataclass(frozen=True)
class Plan:
    """What a preset changes."""

    data: DataSet
    side: int
    """Images are shrunk to this, by means of blocks; ImageNet's are cropped."""
    blocks: int | None
    """Of each stage of the reduced net: 5 is ResNet-32; None is ResNet-50."""
    protocol: Protocol
    configurations: int
    methods: tuple[str, ...] = tuple(PAPER_METHODS)
    learning_rate: Rate = 1.0
    learning_rates: Mapping[str, float] = field(default_factory=dict)
    """Of methods that have another."""
    joint_epochs: int | None = None
    """Of joint's only task; None is as many as of any first task."""
    exemplars_per_class: int = 20
    """Of every class, where a method keeps any."""
    replay_batch_size: Count | None = None
    """Samples that methods draw from memory per step; None is as many as a step has."""
    ablation: tuple[int, ...] = ()
    """Other numbers of exemplars that methods are trained with (appendix E)."""
    ablated: tuple[str, ...] = WITH_EXEMPLARS
    """Of the methods those that are; the paper's is ER."""
    per_class: tuple[int, int] = (500, 100)
    """At most so many training and test images of each class."""
    superclasses: int | None = None
    """Of Tiny-ImageNet, the first so many, with as many classes that have none; None is all."""
    dtype: Dtype = "float32"
    remat: bool = False
    """Whether ResNet-50's blocks are computed again in the backward pass instead of held."""
    chosen: str = "as published, or not chosen"
    """How the settings were chosen, for the report."""


FEATURES_RATE = 0.01
"""Of a linear head on features."""
SCHEDULE = {"plateau_factor": 0.1, "plateau_patience": 10}
PLANS: Mapping[Preset, Plan] = {
    "demo": Plan(
        data="procedural",
        side=16,
        blocks=1,
        protocol=Protocol(epochs=10, first_epochs=20, batch_size=32, **SCHEDULE),
        configurations=2,
        methods=("incremental joint", "ER-balanced", "iCaRL-CNN", "LUCIR", "finetune"),
        learning_rate=0.3,
        per_class=(100, 50),
        chosen="The learning rate (0.03, 0.1, 0.3 or 1) has the highest pw-JS of joint, "
        "ER-balanced and iCaRL-norm on post-task validation of validation configurations. Sizes "
        "and epochs are limited by the demo's time.",
    ),
    "small": Plan(
        data="tiny-imagenet",
        side=16,
        blocks=1,
        protocol=Protocol(epochs=15, first_epochs=30, batch_size=32, **SCHEDULE),
        configurations=3,
        learning_rate=0.3,
        joint_epochs=43,
        ablation=(50, 100),
        per_class=(250, 50),
        superclasses=5,
        chosen="The learning rate (0.1, 0.3 or 1) has the highest pw-JS of joint, ER-balanced and "
        "iCaRL-norm on post-task validation of a validation configuration. The number of classes "
        "was set after test scores of the first configuration had been seen. The rest is limited "
        "by two cores.",
    ),
    "paper": Plan(
        data="iirc_cifar100",
        side=32,
        blocks=5,
        protocol=Protocol(epochs=140, first_epochs=280, batch_size=128, **SCHEDULE),
        configurations=10,
        joint_epochs=400,
        ablation=(50, 100, 200),
        ablated=("ER-balanced",),
    ),
}
PAPER_IMAGENET = Plan(
    data="iirc_imagenet_lite",
    side=224,
    blocks=None,
    protocol=Protocol(epochs=100, first_epochs=200, batch_size=128, **SCHEDULE),
    configurations=5,
    learning_rate=0.1,
    learning_rates={"iCaRL-CNN": 0.5, "A-GEM": 0.5},
    joint_epochs=180,
    per_class=(1300, 50),
)
"""In place of the preset's where `data` is one of ImageNet's."""


class Data(NamedTuple):
    """Images with the hierarchy and the orders in which their classes are learnt."""

    images: ImageSet | ImageFiles
    metadata: Metadata

    @property
    def classes(self) -> int:
        """Coarse and fine."""
        return len(self.images.class_names) + len(self.metadata.hierarchy)


def load_data(plan: Plan, seed: int) -> Data:
    """The plan's images at their size, and its task configurations."""
    if plan.data == "procedural":
        world = World(4, 3, seed=seed)
        images = load_procedural(world, *plan.per_class)
        metadata = procedural_metadata(world, plan.configurations)
    elif plan.data == "tiny-imagenet":
        images, metadata = _tiny_imagenet(plan)
    elif is_imagenet(plan.data):
        files, metadata = load_imagenet(plan.data, plan.configurations)
        return Data(first_per_class(files, *plan.per_class), metadata)
    else:
        images, metadata = load_cifar100(), official_metadata(plan.data)
    return Data(shrink_images(first_per_class(images, *plan.per_class), plan.side), metadata)


def is_imagenet(data: DataSet) -> bool:
    """Whether the images are ImageNet's files, which are streamed."""
    return data in get_args(OfficialName) and "imagenet" in data


def open_store(plan: Plan, data: Data, memory_limit: int) -> JpegStore | None:
    """Where the files are read from; None where the images are all in memory."""
    images = data.images
    if isinstance(images, ImageSet):
        return None
    return JpegStore(images.folder, images.images, plan.side, memory_limit)


def _tiny_imagenet(plan: Plan) -> Data:
    metadata = tiny_imagenet_metadata(plan.configurations)
    if plan.superclasses is None:
        return Data(load_tiny_imagenet_32(), metadata)
    hierarchy = dict(list(metadata.hierarchy.items())[: plan.superclasses])
    grouped = set(chain.from_iterable(metadata.hierarchy.values()))
    names = tiny_imagenet_names()
    single = [name for name in names if name not in grouped][: plan.superclasses]
    wanted = [*chain.from_iterable(hierarchy.values()), *single]
    images = load_tiny_imagenet_32([names.index(name) for name in wanted])
    first = superclasses_first(plan.superclasses)
    orders = tuple(
        draw_configuration(images.class_names, hierarchy, first, number)
        for number in range(plan.configurations)
    )
    return Data(images, Metadata(hierarchy, orders, metadata.valid_fraction))


def iirc_begin(
    plan: Plan,
    classes: int,
    tasks: int,
    store: JpegStore | None = None,
    on_features: bool = False,
) -> Begin:
    """What strategies are made from: SGD with momentum, crops and mirrors, BCE over seen classes.

    Args:
      plan: of the preset.
      classes: coarse and fine.
      tasks: of a configuration.
      store: where images are read that are not in memory; there they crop and mirror themselves.
      on_features: a linear head learns from features, which have nothing to crop.
    """

    def net(trains: Trains, head: HeadKind) -> nn.Module:
        if trains == "head" or on_features:
            return MLP(classes, (), head)
        if plan.blocks is None:
            return ResNet50(classes, head, plan.dtype, plan.remat)
        return ReducedResNet(classes, plan.blocks, head, plan.dtype)

    def begin(scenario: str, method: Method, data: RunData) -> tuple[Setup, Needs]:
        images: StoredImages | StreamedImages = data.shared
        if store is not None:
            images = stream(store, data.shared)
        rate = plan.learning_rates.get(method.name, plan.learning_rate)
        optimizer = optax.chain(
            optax.add_decayed_weights(WEIGHT_DECAY), optax.sgd(rate, momentum=MOMENTUM)
        )
        augment = None if on_features or store is not None else crop_and_flip
        module = net(method.trains, method.head)
        setup = flax_setup(module, images, binary_objective(), optimizer, augment)
        own = 1 if method.setting == "joint" else tasks
        reach = rate / (1 - MOMENTUM)
        return setup, Needs(
            own,
            classes,
            plan.exemplars_per_class,
            reach=reach,
            labels=LABELS,
            replay_batch_size=plan.replay_batch_size,
        )

    return begin


def iirc_protocol(plan: Plan, method: Method) -> Protocol:
    """With the method's choice of epoch; joint's only task may have its own length."""
    protocol = plan.protocol
    if method.setting == "joint" and plan.joint_epochs is not None:
        protocol = replace(protocol, first_epochs=plan.joint_epochs)
    return replace(protocol, select=method.select)


def record(
    plan: Plan,
    data: Data,
    seed: int,
    store: JpegStore | None = None,
    choosing: bool = False,
    features: Features | None = None,
) -> Benchmark:
    """The benchmark; a draw is a task configuration.

    Args:
      plan: of the preset; its configurations are those that there are.
      data: of the plan.
      seed: of the run.
      store: where images are read that are not in memory.
      choosing: whether the post-task validation of the last configurations chooses hyperparameters.
      features: of the images, from which a linear head learns in their place.

    Raises:
      DataError: blocks computed again of a net that has no such setting.
    """
    if plan.remat and plan.blocks is not None:
        raise DataError("--plan.remat is for ResNet-50, which ImageNet's data have")
    images, metadata = data
    orders = metadata.configurations[: plan.configurations]
    tasks, classes = len(orders[0].tasks), data.classes
    if features is not None:
        shared = stored_features(features, slice(len(images.train_labels)))
    else:
        shared = store_images(images, CHANNELS.get(plan.data)) if store is None else channels()
    learner = net_name(plan) if features is None else f"a linear head on {features.note}"
    augmented = "" if features else ", crops and mirrors"

    @functools.cache
    def sequences(setting: Setting) -> tuple[list[TaskSequence], list[TaskSequence]]:
        made = [
            iirc(
                images.train_labels,
                images.test_labels,
                images.class_names,
                metadata.hierarchy,
                order,
                setting,
                metadata.valid_fraction,
            )
            for order in orders
        ]
        tuning = [each.post_task for each in made] if choosing else []
        found = same_shapes([*(each.sequence for each in made), *tuning])
        return found[: len(made)], found[len(made) :]

    def sequence(scenario: str, method: Method, draw: Draw) -> TaskSequence:
        tested, choosing = sequences(method.setting)
        return choosing[-1 - draw.number] if draw.use == "tuning" else tested[draw.number]

    def scores(scenario: str, arrays: Arrays, sequence: TaskSequence) -> Scores:
        predicted = jnp.asarray(unpack(arrays["predicted"], classes))
        labels = multi_hot(sequence.test.labels, classes)
        seen = jnp.cumsum(sequence.tasks.classes, axis=0) > 0
        means = task_score_matrix(predicted, labels, sequence.test_member, seen)
        over_time = np.asarray(means.union.precision_weighted_jaccard)
        matrix = np.asarray(means.by_task.precision_weighted_jaccard)
        if len(over_time) == tasks:
            return Scores(over_time, matrix)
        # What learns everything at once knows no tasks.
        return Scores(
            np.concatenate([np.full(tasks - 1, np.nan), over_time]),
            np.full((tasks, tasks), np.nan),
        )

    def by_type(draw: Draw, arrays: Arrays, sequence: TaskSequence) -> dict[str, float]:
        superclass = superclass_numbers(metadata.hierarchy, orders[draw.number])
        found = class_type_scores(
            jnp.asarray(unpack(arrays["predicted"], classes)[-1]),
            multi_hot(sequence.test.labels, classes),
            jnp.any(sequence.tasks.classes, axis=0),
            class_types(jnp.asarray(superclass)),
        ).precision_weighted_jaccard
        return dict(zip(CLASS_TYPES, found.tolist(), strict=True))

    # What else the run trains is nothing to a sequence.
    facts = {
        name: value
        for name, value in without_unset(asdict(plan)).items()
        if name not in ("methods", "configurations", "ablation", "ablated", "chosen")
    }
    others = "".join(f" ({rate:g} for {name})" for name, rate in plan.learning_rates.items())
    if store is not None:
        facts["files"] = fingerprint(images)
    content = [images.images, images.train_labels, images.test_labels]
    if features is not None:
        content.append(features.values)
        facts["features"] = checksums_of(features.values)
    return Benchmark(
        name="iirc",
        note=f"{images.name}, {plan.side}×{plan.side} pixels: {sizes(data)}; {tasks} tasks",
        measure="pw-JS",
        scenarios=(SCENARIO,),
        draws="task configuration",
        training=f"{learner}, SGD at {plan.learning_rate:g}{others} with momentum, restarted "
        f"at every task{augmented}; {plan.exemplars_per_class} exemplars per class"
        f"{in_replay_batches(plan.replay_batch_size)}; {epochs(plan)}",
        chosen=plan.chosen,
        facts=lambda scenario, method: facts | {"seed": seed},
        checksums=checksums_of(*content),
        offers=lambda scenario: frozenset(
            ("class scores", "several labels", "own classes", "chosen classes", "named head")
        ),
        shared=lambda scenario, method: shared,
        begin=iirc_begin(plan, classes, tasks, store, features is not None),
        protocol=lambda scenario, method: iirc_protocol(plan, method),
        sequence=sequence,
        keep=_keep,
        scores=scores,
        by_type=by_type,
        store=store,
    )


def _keep(scenario: str, method: Method, result: SequenceResult) -> dict[str, Array]:
    return {"predicted": result.evaluation, "validation": result.validation}


def iirc_benchmark(settings: StrategiesRun) -> Benchmark:
    """The paper's benchmark at a preset, for any methods.

    Raises:
      DataError: more seeds than there are configurations beside those that choose hyperparameters.
    """
    plan = PLANS[settings.preset]
    if settings.features is not None:
        plan = replace(plan, side=AS_THEY_COME, learning_rate=FEATURES_RATE)
    plan = changed_plan(plan, settings.plan)
    official = plan.data in get_args(OfficialName)
    there = PLANS["paper"].configurations if official else MOST_ORDERS
    plan = replace(plan, configurations=there)
    left = there - settings.validation_seeds
    if settings.seeds > left:
        raise DataError(
            f"--seeds {settings.seeds}; iirc has {there} configurations, of which "
            f"--validation-seeds {settings.validation_seeds} take some: give {left} or less"
        )
    data = load_data(plan, settings.seed)
    features = None
    if settings.features is not None:
        if not isinstance(data.images, ImageSet):
            raise DataError("--features is not for ImageNet's files, which are streamed")
        features = load_features(settings.features, data.images, settings.runs)
    found = record(plan, data, settings.seed, None, True, features)
    return found._replace(plan=plan)


def superclass_numbers(
    hierarchy: Hierarchy, configuration: TaskConfiguration
) -> Int[np.ndarray, "c"]:
    """The number of each class's superclass, -1 where it has none."""
    names = list(chain.from_iterable(configuration.tasks))
    parent = {
        member: names.index(name)
        for name, members in hierarchy.items()
        if name in names
        for member in members
    }
    return np.array([parent.get(name, -1) for name in names])


def unpack(predicted: UInt8[np.ndarray, "t m packed"], classes: int) -> Bool[np.ndarray, "t m c"]:
    """The predicted labels, kept as bits, as booleans."""
    return np.unpackbits(predicted, axis=-1, count=classes).astype(bool)


def epochs(plan: Plan) -> str:
    """For the report."""
    protocol = plan.protocol
    joint = f", joint {plan.joint_epochs}" if plan.joint_epochs else ""
    return (
        f"{protocol.epochs_of(1)} epochs per task, {protocol.epochs_of(0)} for the first{joint}, "
        "in "
        f"batches of {protocol.batch_size}; the learning rate falls to a tenth after "
        f"{protocol.plateau_patience} epochs without improved in-task validation"
    )


def net_name(plan: Plan) -> str:
    """For the report."""
    deep = "ResNet-50" if plan.blocks is None else f"reduced ResNet of {6 * plan.blocks + 2} layers"
    return deep + computed_in(plan.dtype)


def sizes(data: Data) -> str:
    """For the report."""
    images, hierarchy = data.images, data.metadata.hierarchy
    per_class = np.bincount(images.train_labels)
    grouped = sum(map(len, hierarchy.values()))
    least, most = per_class.min(), per_class.max()
    each = f"{least}" if least == most else f"{least} to {most}"
    return (
        f"{len(hierarchy)} superclasses of {grouped} classes and {len(per_class) - grouped} "
        f"classes without one; {each} training images per class, "
        f"{data.metadata.valid_fraction:.0%} of them in-task validation and as many left out"
    )
