"""Values from which arguments of public functions are made.

An array has the sizes of `SIZES` along its named axes, and a record is the one of `RECORDS`.
`NAMED` has arguments whose types do not say enough.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import everlight.color as color
import everlight.continual as continual
import everlight.illuminant as illuminant
import everlight.metrics as metrics
import everlight.models as models
import everlight.scenarios as scenarios
from everlight.base import TaskSequence
from everlight.color.learned.capture_aware import CaptureNet
from everlight.color.learned.confidence_pooling import ConfidencePoolingHead
from everlight.color.learned.parts.generator_net import GeneratorNet
from everlight.color.learned.sensor_independent import SensorIndependentNet
from everlight.illuminant.illuminant_training import IlluminantModel
from everlight.metrics.cl_score import CRITERIA
from tests.continual import small_net
from tests.contracts.small_arrays import floats, host
from tests.models.released_vit import released_arrays

KEY = jax.random.key(0)


def sequence():
    return scenarios.class_incremental(*LABELS.values(), [[0, 1], [2, 3]], 4, 0.25)


def build(stored):
    net = models.MLP(classes=4, hidden=(3,))
    setup = continual.flax_setup(net, stored, continual.softmax_objective(), optax.sgd(0.1))
    return setup, continual.naive(setup)


def staged_setup():
    net = models.MLP(classes=4, hidden=(3, 3))
    return continual.flax_setup(net, STORED, continual.softmax_objective(), optax.sgd(0.1))


def several_runs():
    twice = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), sequence())
    return continual.Runs(build, PROTOCOL, STORED, twice, jax.random.split(KEY))


def runs_state():
    state = continual.initial_runs_state(several_runs())
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), state)


def observed(*shape):
    return color.ObservedImage(floats(*shape, 3), floats(*shape))


def trained_networks():
    models_of_all = jax.tree.map(lambda leaf: leaf[None], RECORDS[IlluminantModel]())
    return illuminant.TrainedNetworks(
        {2: models_of_all}, {2: illuminant.Losses(floats(3, 1), floats(3, 1))}
    )


def parameters(net, *arguments):
    shapes = jax.eval_shape(net.init, KEY, *arguments)
    return jax.tree.map(lambda leaf: floats(*leaf.shape), shapes)


def sensor_independent():
    inputs = SensorIndependentNet(), floats(1, 64, 3), floats(1, 64)
    return color.SensorIndependentModel(parameters(*inputs))


def cross_camera():
    inputs = floats(1, 16, 16, 2), floats(1, 4, 16, 16, 2)
    return color.GeneratorModel(parameters(GeneratorNet(GENERATOR), *inputs), GENERATOR)


def calibrated():
    inputs = floats(1, 16, 16, 2), None, floats(1, 16, 16, 2)
    return color.GeneratorModel(parameters(GeneratorNet(CALIBRATED), *inputs), CALIBRATED)


def confidence_pooling():
    head = parameters(ConfidencePoolingHead(), floats(2, 2, 4), floats(2, 2, 3))
    return color.ConfidencePoolingModel(head, floats(4), floats(4))


def capture_aware():
    net = parameters(CaptureNet(), floats(1, 16, 16, 2), floats(1, 9))
    return color.CaptureModel(net, floats(9), floats(9))


WINDOW = color.ChromaWindow(16, -1.0, 1.0)
GENERATOR = color.GeneratorSettings(WINDOW, (2, 2), separate=False)
CALIBRATED = GENERATOR._replace(fingerprint=(2, 2), fingerprint_window=WINDOW)
VIT = models.VisionTransformer(2, 2, 4, 1, 2, 8)


def released_vit():
    return released_arrays(VIT, 1, np.random.default_rng(0))


def equinox_net():
    equinox = pytest.importorskip("equinox", reason="Equinox is not installed (the extra equinox)")
    return lambda key: equinox.nn.Linear(3, 4, key=key)


STORED = continual.StoredImages.of(floats(24, 3), jnp.float32(0), jnp.float32(1))
PROTOCOL = continual.Protocol(epochs=1, batch_size=4)
SETUP = small_net.small_setup()
LEARNER = small_net.small_learner(SETUP, range(6))
SAMPLES = small_net.samples_of(range(4))
DISTRIBUTION = color.FeatureDistribution(floats(9), jnp.eye(9))
NET = illuminant.IlluminantNet()
EXAMPLES = scenarios.Examples(host([0, 1]), host([0, 1]))
SHARES = dict.fromkeys(CRITERIA, 0.5)
WEIGHTS = dict(metrics.WEIGHTINGS["W1"])
PIECES = [[0, -1, -1], [0, 1, -1]]
LABELS = {"train_labels": np.arange(16) % 4, "test_labels": np.arange(8) % 4}

OF_A_NETWORK = {
    "source": STORED,
    "objective": continual.softmax_objective(),
    "optimizer": optax.sgd(0.1),
    "augment": lambda image, key: image,
}

SIZES = {"f": 9, "h": 16, "w": 16, "c": 4, "tasks": 3, "m": 4, "pairs": 4, "t": 2, "d": 2}
RECORDS = {
    continual.Setup: lambda: SETUP,
    continual.Strategy: lambda: continual.naive(SETUP),
    continual.Learner: lambda: LEARNER,
    continual.Samples: lambda: SAMPLES,
    continual.Protocol: lambda: PROTOCOL,
    continual.Run: lambda: continual.Run(build, PROTOCOL, STORED, sequence(), KEY),
    continual.Runs: several_runs,
    color.FeatureDistribution: lambda: DISTRIBUTION,
    color.TransformPrior: lambda: color.TransformPrior(floats(9), jnp.eye(9), jnp.float32(1)),
    color.ObservedImage: lambda: observed(16, 16),
    color.CameraCalibration: lambda: color.CameraCalibration(
        jnp.stack([jnp.eye(3), 2 * jnp.eye(3)]), jnp.array([2856.0, 6504.0])
    ),
    illuminant.IlluminantNet: lambda: NET,
    IlluminantModel: lambda: IlluminantModel(NET.init(KEY, floats(9)), floats(9), floats(9)),
    metrics.Facts: lambda: metrics.Facts(jnp.asarray(PIECES), floats(3, 2)),
    metrics.Costs: lambda: metrics.Costs(*[floats(3)] * 2, jnp.float32(1), *[floats(3)] * 2),
    TaskSequence: sequence,
    scenarios.Examples: lambda: EXAMPLES,
}
NAMED = {
    "memory": (),
    "axis": -1,
    "classes": 4,
    "order": 1,
    "norm": 5,
    "sigma": 1.0,
    "misfit": 0.1,
    "temperature": jnp.float32(5000),
    "regularization": jnp.float32(1),
    "sensor": color.Sensor(),
    # Two facts, of which the second is of one word more, and their words' vectors.
    "pieces": host(PIECES),
    "vectors": host(np.eye(2), float),
    "fact_task": host([0, 1]),
}
