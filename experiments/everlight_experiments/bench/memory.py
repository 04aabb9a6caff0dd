"""What is largest at the papers' shapes takes beside its arguments, by the compiler; none is run.

    XLA_FLAGS="--xla_backend_optimization_level=0 --xla_disable_hlo_passes=cse_barrier_expander" \
        python -m everlight_experiments.bench.memory

Without the second flag XLA for CPU takes for one what `remat` computes twice.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from everlight.continual import (
    Protocol,
    Samples,
    StoredImages,
    flax_setup,
    lower_step,
    naive,
    softmax_objective,
    validate,
)
from everlight.continual.engine.run import Run
from everlight.continual.engine.tasks import init_learner
from everlight.continual.strategies.exemplars import add_herded_exemplars, empty_exemplars
from everlight.models import MLP, ResNet50
from everlight.scenarios import class_incremental
from everlight_experiments.plan import WORKS

CLASSES = 1_085
"""Of IIRC's ImageNet, superclasses among them."""
FEATURES, SIDE, BATCH = 2_048, 224, 128
SHAPE = jax.ShapeDtypeStruct


def herding(samples: int = 60_000, labels: int = 3) -> jax.stages.Compiled:
    """The exemplars of a task of IIRC's ImageNet, by ResNet-50's features."""
    buffer = jax.eval_shape(lambda: empty_exemplars(20 * CLASSES, labels))
    features = SHAPE((samples, FEATURES), jnp.float32)
    classes = SHAPE((CLASSES,), bool)
    herd = jax.jit(add_herded_exemplars)
    return herd.lower(buffer, _samples(samples, labels), classes, features).compile()


def validation(samples: int = 50_000) -> jax.stages.Compiled:
    """On the validation samples of all tasks, a head over stored features standing for the net."""

    def score(features: jax.Array, samples: Samples, key: jax.Array) -> jax.Array:
        stored = StoredImages.of(features, jnp.zeros(()), jnp.ones(()))
        setup = flax_setup(MLP(CLASSES, ()), stored, softmax_objective(), optax.sgd(0.1))
        learner = init_learner(setup, CLASSES, key)
        learner = learner._replace(seen=jnp.ones(CLASSES, bool))
        return validate(setup, naive(setup), (), learner, samples, 256, key)

    features = SHAPE((samples, FEATURES), jnp.float32)
    return jax.jit(score).lower(features, _samples(samples, 1), jax.random.key(0)).compile()


def resnet_step(**settings: object) -> jax.stages.Compiled:
    """A training step of ResNet-50 on images of ImageNet's size."""
    labels = jnp.arange(BATCH) % CLASSES
    sequence = class_incremental(labels, labels[:1], [range(CLASSES)], CLASSES)
    channel = SHAPE((3,), jnp.float32)
    images = SHAPE((BATCH, SIDE, SIDE, 3), jnp.uint8)
    stored = jax.eval_shape(StoredImages.of, images, channel, channel)

    def build(stored: StoredImages) -> tuple:
        net, optimizer = ResNet50(CLASSES, **settings), optax.sgd(0.1, momentum=0.9)
        setup = flax_setup(net, stored, softmax_objective(), optimizer)
        return setup, naive(setup)

    protocol = Protocol(batch_size=BATCH, select="last")
    return lower_step(Run(build, protocol, stored, sequence, jax.random.key(0))).compile()


def planned_step(number: int) -> jax.stages.Compiled:
    """A training step of one of the plan's sequences, as it is driven."""
    work = WORKS[number]()
    return lower_step(
        Run(work.build, work.protocol, work.data, work.sequence, jax.random.key(0))
    ).compile()


ROWS: dict[str, Callable[[], jax.stages.Compiled]] = {
    "herding, 60,000 samples of 3 labels, 2,048 features": herding,
    "validation, 50,000 samples, 1,085 classes": validation,
    "step of EWC on iCIFAR": lambda: planned_step(0),
    "step of naive in NC, Mid-CaffeNet": lambda: planned_step(2),
    "step of IMM on facts, mid-scale": lambda: planned_step(4),
    "step of ResNet-50, batch 128": resnet_step,
    "step of ResNet-50, remat": lambda: resnet_step(remat=True),
}
NETS: dict[str, dict[str, object]] = {
    "ResNet-50": {},
    "remat": {"remat": True},
    "bfloat16": {"dtype": "bfloat16"},
    "bfloat16, remat": {"dtype": "bfloat16", "remat": True},
}


def held_bytes(settings: dict[str, object]) -> int:
    """What ResNet-50's forward pass holds for its backward pass, parameters included.

    By tracing, since XLA for CPU computes in float32 what is bfloat16.
    """
    net = ResNet50(CLASSES, **settings)
    images = SHAPE((BATCH, SIDE, SIDE, 3), jnp.float32)
    variables = jax.eval_shape(lambda: net.init(jax.random.key(0), jnp.zeros(images.shape), False))

    def backward(params: dict, statistics: dict, images: jax.Array) -> Callable:
        def total(params: dict) -> jax.Array:
            given = {"params": params, "batch_stats": statistics}
            return jnp.sum(net.apply(given, images, True, mutable=["batch_stats"])[0].logits)

        return jax.vjp(total, params)[1]

    held = jax.eval_shape(backward, variables["params"], variables["batch_stats"], images)
    leaves = [leaf for leaf in jax.tree.leaves(held) if hasattr(leaf, "dtype")]
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def main() -> None:
    """Prints a row for each."""
    print(f"MB held for the backward pass, {BATCH} images of {SIDE} pixels:")
    for name, settings in NETS.items():
        print(f"{name}: {held_bytes(settings) / 1e6:,.0f}", flush=True)
    print("| | MB beside the arguments | of these within the call | GFLOP |\n|---|---|---|---|")
    for name, compiled in ROWS.items():
        program = compiled()
        memory = program.memory_analysis()
        within = memory.temp_size_in_bytes
        new = memory.output_size_in_bytes - memory.alias_size_in_bytes
        operations = program.cost_analysis()["flops"]
        figures = f"{(within + new) / 1e6:,.0f} | {within / 1e6:,.0f} | {operations / 1e9:,.1f}"
        print(f"| {name} | {figures} |", flush=True)


def _samples(count: int, labels: int) -> Samples:
    return Samples(
        SHAPE((count,), jnp.int32), SHAPE((count, labels), jnp.int32), SHAPE((count,), bool)
    )


if __name__ == "__main__":
    main()
