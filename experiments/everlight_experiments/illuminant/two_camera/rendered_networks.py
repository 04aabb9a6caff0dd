"""Networks of the radiometric experiment, trained on every pair of cameras."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.chromaticity import chromaticity_to_illuminant
from everlight.illuminant.illuminant_batches import predict_batch
from everlight.illuminant.illuminant_training import IlluminantModel, Problem
from everlight_data.color.rendered.rendered_pairs import RenderedPair, SceneKind
from everlight_experiments.illuminant.config import EQUAL_SIZE, RENDERED_NETWORKS, RESTARTS
from everlight_experiments.illuminant.core.networks import NetworkTraining, train_by_name

Networks = Mapping[tuple[SceneKind, str], IlluminantModel]
"""The networks of all pairs, in their order, by condition, split and name."""


def train_all(
    data: Mapping[SceneKind, Sequence[RenderedPair]], training: NetworkTraining
) -> Networks:
    """Train every network on every pair, those of one shape in one program."""
    programs: dict[tuple[int, int], dict[tuple[SceneKind, str], list[Problem]]] = {}
    for kind, pairs in data.items():
        for name, network in RENDERED_NETWORKS[kind.condition].items():
            shape = network.depth, pairs[0].inputs[network.input_name].shape[1]
            problems = [pair.problem(network.input_name) for pair in pairs]
            programs.setdefault(shape, {})[kind, name] = problems
    models = {}
    for (depth, width), problems in programs.items():
        below = training.below(f"depth-{depth}-width-{width}")
        models |= train_by_name(problems, depth, below, RESTARTS)
    return models


def predict_networks(
    models: Networks, kind: SceneKind, tests: Sequence[RenderedPair]
) -> dict[str, Float[np.ndarray, "p n 3"]]:
    """Return the networks' estimates of the test scenes of all pairs."""
    estimates = {}
    for name, network in RENDERED_NETWORKS[kind.condition].items():
        inputs = jnp.stack([test.inputs[network.input_name][test.scenes.test] for test in tests])
        predicted = predict_batch(network.depth, models[kind, name], inputs)
        estimates[name] = np.asarray(chromaticity_to_illuminant(predicted))
    return estimates


def train_second(
    data: Mapping[SceneKind, Sequence[RenderedPair]], training: NetworkTraining
) -> dict[SceneKind, IlluminantModel]:
    """Train `EQUAL_SIZE` on every pair's second camera, for means of both cameras' estimates."""
    network = RENDERED_NETWORKS["exact"][EQUAL_SIZE]
    problems = {
        kind: [pair.seen_by_second().problem(network.input_name) for pair in pairs]
        for kind, pairs in data.items()
    }
    return train_by_name(problems, network.depth, training.below("second-camera"), RESTARTS)


def predict_second(
    models: IlluminantModel, tests: Sequence[RenderedPair]
) -> Float[np.ndarray, "p n 3"]:
    """Return the estimates of the second cameras' illuminants of the test scenes of all pairs."""
    network = RENDERED_NETWORKS["exact"][EQUAL_SIZE]
    inputs = [test.seen_by_second().inputs[network.input_name][test.scenes.test] for test in tests]
    predicted = predict_batch(network.depth, models, jnp.stack(inputs))
    return np.asarray(chromaticity_to_illuminant(predicted))
