"""Every public function refuses what does not fit its annotations, and names the argument.

Driven by one table: of each argument a wrong rank, size, dtype, kind and range is made from its
annotation and the row's example. Nothing compiles: what is wrong never gets as far.
"""

import copy
import dataclasses
import functools
import importlib
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import everlight.color as color
import everlight.continual as continual
import everlight.metrics as metrics
import everlight.models as models
import everlight.scenarios as scenarios
from docs.make_api import ROOMS
from everlight.checks import Between
from everlight.color.baselines.confidence_pooling import ConfidencePoolingHead
from everlight.color.baselines.cross_camera import GeneratorNet
from everlight.color.baselines.dual_mapping import DualMappingNet
from everlight.color.baselines.sensor_independent import SensorIndependentNet
from everlight.continual.strategies.hat import Attention
from everlight.metrics.cl_score import CRITERIA
from everlight.models.illuminant_training import IlluminantModel
from tests.continual import small_net
from tests.models.port_arrays import drawn_arrays

KEY = jax.random.key(0)


# Made by NumPy, since a program for every shape takes most of the time.
def floats(*shape):
    return jnp.asarray(np.full(shape, 0.5, np.float32))


def integers(*shape):
    return jnp.asarray(np.zeros(shape, np.int32))


def booleans(*shape):
    return jnp.asarray(np.ones(shape, bool))


def host(values, dtype=int):
    return np.asarray(values, dtype)


def sequence():
    labels = np.arange(24) % 4
    return scenarios.class_incremental(labels[:16], labels[16:], [[0, 1], [2, 3]], 4, 0.25)


STORED = continual.StoredImages.of(floats(24, 3), jnp.float32(0), jnp.float32(1))
PROTOCOL = continual.Protocol(epochs=1, batch_size=4)
SETUP = small_net.small_setup()
LEARNER = small_net.small_learner(SETUP, range(6))
SAMPLES = small_net.samples_of(range(4))
FACTS = metrics.Facts(jnp.array([[0, -1, -1], [0, 1, -1]]), floats(3, 2))
COSTS = metrics.Costs(floats(3), floats(3), jnp.float32(1), floats(3), floats(3))
DISTRIBUTION = color.FeatureDistribution(floats(9), jnp.eye(9))
PRIOR = color.TransformPrior(floats(9), jnp.eye(9), jnp.float32(1))
NET = models.IlluminantNet()
PIECES = host([[0, -1, -1], [0, 1, -1]])
EXAMPLES = scenarios.Examples(host([0, 1]), host([0, 1]))


def build(stored):
    net = models.MLP(classes=4, hidden=(3,))
    setup = continual.flax_setup(net, stored, continual.softmax_objective(), optax.sgd(0.1))
    return setup, continual.naive(setup)


def a_run():
    return {"run": continual.Run(build, PROTOCOL, STORED, sequence(), KEY)}


def several_runs():
    twice = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), sequence())
    return {"runs": continual.Runs(build, PROTOCOL, STORED, twice, jax.random.split(KEY))}


def predicted():
    given = {"setup": SETUP, "strategy": continual.naive(SETUP), "memory": (), "learner": LEARNER}
    return {**given, "samples": SAMPLES, "size": 2}


def image(**settings):
    return {"image": floats(16, 16, 3), "mask": floats(16, 16), **settings}


def observed(*shape):
    return color.ObservedImage(floats(*shape, 3), floats(*shape))


def trained():
    weights = NET.init(KEY, floats(9))
    return {"net": NET, "model": IlluminantModel(weights, floats(9), floats(9))}


def parameters(net, *given):
    shapes = jax.eval_shape(net.init, KEY, *given)
    return jax.tree.map(lambda leaf: floats(*leaf.shape), shapes)


def sensor_independent():
    given = floats(1, 64, 3), floats(1, 64)
    return color.SensorIndependentModel(parameters(SensorIndependentNet(), *given))


def cross_camera():
    given = floats(1, 32, 32, 2), floats(1, 3, 32, 32, 2)
    return color.CrossCameraModel(parameters(GeneratorNet(), *given), floats(2))


def confidence_pooling():
    head = parameters(ConfidencePoolingHead(), floats(2, 2, 5), floats(2, 2, 3))
    return color.ConfidencePoolingModel(head, floats(5), floats(5))


def labelled(*shape):
    return {"predicted": booleans(*shape), "labels": booleans(4, 5)}


SHARES = dict.fromkeys(CRITERIA, 0.5)
TRANSFORM = {"transform": floats(3, 3)}
VIEWS = {"main": floats(4, 5, 3), "second": floats(4, 5, 3)}
LABELS = {"train_labels": np.arange(16) % 4, "test_labels": np.arange(8) % 4}
MATRIX = {"accuracies": floats(3, 3)}
PAIR = {"predicted": booleans(5), "true": booleans(5)}
OF_SETUP: dict[str, dict] = {
    "agem": {"exemplars_per_class": 2, "labels": 1, "apart": False, "replay_batch_size": 3}
    | {"buffer_size": 6},
    "bic": {
        "exemplars_per_class": 2,
        "labels": 1,
        "temperature": 2.0,
        "ridge": 0.1,
        "loss": "binary",
    }
    | {"weigh_labels": True, "fit": "entropy", "corrections": "all", "buffer_size": 6},
    "cumulative": {},
    "cwr": {"first_task_gain": 3.0, "form": "text"},
    "der_plus_plus": {"buffer_size": 5, "alpha": 0.1, "beta": 0.1, "labels": 1}
    | {"replay_batch_size": 3, "loss_over": "all"},
    "er_ace": {"buffer_size": 5, "labels": 1, "replay_batch_size": 3, "loss_over": "all"},
    "er_tricks": {"buffer_size": 5, "replay_batch_size": 3, "replacement": "balanced"}
    | {"bias_epochs": 1, "bias_batch_size": 2, "decay": 0.9},
    "ewc": {"regularization": jnp.float32(1), "online": False, "decay": 0.9, "fisher_samples": 4}
    | {"implicit_rate": 0.1, "fisher": "true"},
    "balanced_replay": {"exemplars_per_class": 2, "labels": 1, "buffer_size": 6},
    "expert_gate": {"tasks": 2, "features": lambda inputs: inputs, "hidden": 2, "epochs": 1}
    | {"rate": 0.1, "relatedness_threshold": 0.85, "regularization": 1.0, "temperature": 2.0}
    | {"class_group": integers(6), "groups": 1},
    "gdumb": {"buffer_size": 5, "epochs": 1, "batch_size": 2, "labels": 1},
    "gem": {"tasks": 2, "per_task": 3, "margin": 0.5, "labels": 1},
    "hal": {"tasks": 2, "buffer_size": 6, "replay_batch_size": 3, "regularization": 0.1}
    | {"mean_decay": 0.5, "feature_weight": 0.1, "anchor_steps": 1, "anchor_rate": 0.1}
    | {"finetuning_steps": 1, "finetuning_batch_size": 2, "labels": 1},
    "hat": {"tasks": 2, "layers": ("a",), "sparsity": 0.5, "steepest": 10.0, "rate": 0.1}
    | {"channels_first": False},
    "icarl": {"exemplars_per_class": 2, "labels": 1, "restart": lambda tree: tree, "loss": "binary"}
    | {"classifier": "head", "buffer_size": 6},
    "imm": {"merge": "mean", "regularization": 1.0, "fisher_samples": 4, "implicit_rate": 0.1}
    | {"alpha": (0.5, 0.5), "drop": 0.5, "fisher": "true"},
    "joint": {"tasks": 2},
    "lucir": {
        "exemplars_per_class": 2,
        "labels": 1,
        "distillation": 1.0,
        "margin": 0.5,
        "rivals": 2,
    }
    | {"classifier": "head", "finetune_epochs": 1, "finetune_rate": 0.1, "finetune_batch": 4}
    | {"buffer_size": 6},
    "lwf": {"regularization": 1.0, "temperature": 2.0, "class_group": integers(6), "groups": 1},
    "mas": {"regularization": 1.0, "importance_samples": 4, "implicit_rate": 0.1},
    "naive": {},
    "nearest_mean": {"directions": False},
    "packnet": {"prune": 0.5, "retrain_epochs": 1, "batch_size": 2},
    "ranpac": {"width": 0, "ridge": "validated"},
    "experience_replay": {"buffer_size": 5, "labels": 1, "replay_batch_size": 3},
    "si": {"regularization": 1.0, "damping": 0.1, "implicit_rate": 0.1},
    "streaming_lda": {"shrinkage": 0.1, "base_task": True, "update_covariance": False},
    "unlimited_replay": {},
}
ROWS: dict[str, Callable[[], dict[str, Any]]] = {
    **{
        f"continual.{name}": lambda settings=settings: {"setup": SETUP, **settings}
        for name, settings in OF_SETUP.items()
    },
    # color
    "color.blackbody_power": lambda: {"temperature": floats(), "wavelengths": floats(5)},
    "color.apply_color_transform": lambda: {"pixels": floats(5, 3), **TRANSFORM},
    "color.apply_homography": lambda: {"homography": jnp.eye(3), "points": floats(4, 2)},
    "color.area_downsample": lambda: {
        "image": floats(4, 4, 3),
        "factor": 2,
        "mask": booleans(4, 4),
    },
    "color.augment_transforms": lambda: {
        "transforms": floats(2, 3, 3),
        "first": floats(2, 2, 3, 3),
        "second": floats(2, 2, 3, 3),
    },
    "color.bright_dark_pca": lambda: image(fraction=0.1),
    "color.correct_bias": lambda: {"matrix": floats(9, 3), "features": floats(9)},
    "color.keep_training_estimates": lambda: {
        "estimates": floats(5, 3),
        "illuminants": floats(5, 3),
        "key": KEY,
    },
    "color.correct_bias_locally": lambda: {
        "model": color.TrainingEstimates(floats(5, 3), floats(5, 3)),
        "estimate": floats(3),
        "width": 3.0,
        "floor": 0.1,
    },
    "color.edge_moments": lambda: image(sigma=1.0, degree=2),
    "color.extreme_chromaticities": image,
    "color.observe_image": image,
    "color.pixel_moments": lambda: image(degree=2),
    "color.fit_bias_correction": lambda: {
        "features": floats(5, 9),
        "illuminants": floats(5, 3),
        "key": KEY,
        "weights": floats(5),
        "iterations": 2,
    },
    "color.feature_distance": lambda: {"distribution": DISTRIBUTION, "features": floats(9)},
    "color.fit_feature_distribution": lambda: {
        "features": floats(12, 9),
        "valid": booleans(12),
    },
    "color.fit_fourier_constancy": lambda: {
        "histograms": floats(5, 2, 64, 64),
        "illuminants": floats(5, 3),
        "key": KEY,
        "settings": color.FOURIER_SETTINGS["SonyA57"],
        "crossentropy_steps": 1,
        "likelihood_steps": 1,
    },
    "color.fourier_estimate": lambda: {
        "model": color.FourierModel(floats(2, 64, 64), floats(64, 64), floats(2)),
        "histograms": floats(2, 64, 64),
    },
    "color.log_chroma_histograms": image,
    "color.camera_responses": lambda: {
        "illuminant": floats(7),
        "reflectances": floats(4, 7),
        "sensitivity": floats(3, 7),
    },
    "color.camera_to_srgb": lambda: {"xyz_to_camera": jnp.eye(3)},
    "color.chart_transforms": lambda: {"charts": floats(2, 24, 3), "weights": floats(2, 24)},
    "color.chroma_kernels": lambda: {
        "pixels": floats(5, 3),
        "weights": floats(5),
        "gain": floats(3),
        "width": floats(3),
    },
    "color.fit_sensor_independent": lambda: {
        "observations": observed(4, 8, 8),
        "illuminants": floats(4, 3),
        "key": KEY,
        "steps": 1,
    },
    "color.four_colors": image,
    "color.draw_illuminants": lambda: {"key": KEY, "illuminants": floats(4, 3), "count": 5},
    "color.fit_dual_mapping": lambda: {
        "observations": observed(4, 8, 8),
        "illuminants": floats(4, 3),
        "key": KEY,
        "target_illuminants": floats(3, 3),
        "steps": 1,
    },
    "color.dual_mapping_estimate": lambda: {
        "model": color.DualMappingModel(parameters(DualMappingNet(), floats(8))),
        "observation": observed(8, 8),
    },
    "color.fit_cross_camera": lambda: {
        "key": KEY,
        "histograms": floats(5, 2, 64, 64),
        "illuminants": floats(5, 3),
        "cameras": integers(5),
        "steps": 1,
    },
    "color.cross_camera_estimate": lambda: {
        "model": cross_camera(),
        "histograms": floats(2, 64, 64),
        "others": floats(3, 2, 64, 64),
    },
    "color.fit_confidence_pooling": lambda: {
        "key": KEY,
        "maps": floats(4, 2, 3, 3, 5),
        "colors": floats(4, 2, 3, 3, 3),
        "illuminants": floats(4, 2, 3),
        "steps": 1,
    },
    "color.confidence_pooled_estimate": lambda: {
        "model": confidence_pooling(),
        "maps": floats(3, 3, 5),
        "colors": floats(3, 3, 3),
    },
    "color.sensor_independent_estimate": lambda: {
        "model": sensor_independent(),
        "observation": observed(8, 8),
    },
    "color.chromagenic_estimate": lambda: {
        "model": color.Chromagenic(floats(2, 3, 3), floats(2, 3), booleans(2)),
        "main": floats(5, 3),
        "second": floats(5, 3),
        "weights": floats(5),
    },
    "color.color_moments": lambda: {"colors": floats(5, 3), "weights": floats(5), "degree": 2},
    "color.encode_srgb": lambda: {"linear": floats(5, 3)},
    "color.fit_chromagenic": lambda: {
        **VIEWS,
        "labels": integers(4),
        "illuminants": floats(2, 3),
    },
    "color.fit_color_transform": lambda: {
        "source": floats(5, 3),
        "target": floats(5, 3),
        "weights": floats(5),
        "normalize": "scale",
    },
    "color.fit_gamut": lambda: {
        "observations": observed(2, 16, 16),
        "illuminants": floats(2, 3),
        "key": KEY,
        "order": 0,
    },
    "color.fit_homography": lambda: {
        "source_points": floats(4, 2),
        "target_points": floats(4, 2),
        "weights": floats(4),
    },
    "color.fit_linear_regression": lambda: {
        "features": floats(9, 3),
        "chromaticities": floats(9, 2),
    },
    "color.fit_probable_transform": lambda: {
        "source": floats(5, 3),
        "target": floats(5, 3),
        "prior": PRIOR,
        "weights": floats(5),
    },
    "color.from_chromaticity": lambda: {"chromaticity": floats(2)},
    "color.gamut_estimate": lambda: {
        "model": color.Gamut(floats(3), floats(126), 0),
        "observation": observed(16, 16),
    },
    "color.illuminant_response": lambda: {"illuminant": floats(7), "sensitivity": floats(3, 7)},
    "color.keep_observed": image,
    "color.learn_transform_prior": lambda: {**VIEWS, "misfit": 0.1},
    "color.linear_estimate": lambda: {
        "model": color.LinearRegression(floats(9, 2), floats(2)),
        "features": floats(9),
    },
    "color.minkowski_framework": lambda: image(order=1, norm=5, sigma=1.0),
    "color.mix_neighbors": lambda: {
        "key": KEY,
        "features": floats(5, 9),
        "targets": floats(5, 2),
        "neighbors": 2,
        "copies": 1,
    },
    "color.normalize_sum": lambda: {"pixels": floats(5, 3)},
    "color.patch_means": lambda: {"thumbnail": floats(32, 48, 3), "rows": 4, "columns": 6},
    "color.patch_thumbnail": lambda: (
        {"colors": floats(24, 3), "rows": 4, "columns": 6} | {"patch": 8}
    ),
    "color.reilluminate_transform": lambda: {
        **TRANSFORM,
        "first": floats(3, 3),
        "second": floats(3, 3),
    },
    "color.reilluminate_moments": lambda: {"moments": floats(9), "reillumination": floats(3, 3)},
    "color.render": lambda: {
        "image": floats(4, 4, 3),
        "illuminant": floats(3),
        "camera_matrix": jnp.eye(3),
    },
    "color.render_linear": lambda: {
        "image": floats(4, 4, 3),
        "illuminant": floats(3),
        "camera_matrix": jnp.eye(3),
    },
    "color.response": lambda: image(order=1, sigma=1.0),
    "color.response_table": lambda: {
        "illuminants": floats(2, 7),
        "reflectances": floats(4, 7),
        "sensitivity": floats(3, 7),
    },
    "color.scale_free": lambda: TRANSFORM,
    "color.scene_colors": lambda: {
        "table": color.ResponseTable(floats(2, 4, 3), floats(2, 3)),
        "illuminant": jnp.int32(1),
        "reflectances": integers(24),
    },
    "color.take_photograph": lambda: (
        {"key": KEY, "colors": floats(24, 3)} | {"sensor": color.Sensor(), "patch": 8}
    ),
    "color.to_chromaticity": lambda: {"illuminant": floats(3)},
    "color.unit_illuminant": lambda: {"illuminant": floats(3)},
    "color.von_kries": lambda: {"illuminants": floats(2, 3)},
    "color.warp_image": lambda: {
        "image": floats(4, 4, 3),
        "homography": jnp.eye(3),
        "shape": (4, 5),
    },
    "color.weighted_gray_edge": lambda: image(norm=5, sigma=1.0, exponent=2, iterations=2),
    "color.full_scale_balance": lambda: {"image": floats(4, 4, 3), "illuminant": floats(3)},
    "color.white_balance": lambda: {"image": floats(4, 4, 3), "illuminant": floats(3)},
    # continual
    "continual.diverged": lambda: {
        "protocol": PROTOCOL,
        "state": jax.tree.map(
            lambda leaf: np.zeros(leaf.shape, leaf.dtype),
            continual.initial_runs_state(**several_runs()),
        ),
    },
    "continual.drive_runs": lambda: {
        **several_runs(),
        "chunk": 1,
        "mesh": continual.runs_mesh(),
        "announce": lambda index: None,
    },
    "continual.evaluate": lambda: {
        "setup": build(STORED)[0],
        "strategy": build(STORED)[1],
        "memory": (),
        "learner": small_net.init_learner(build(STORED)[0], 4, KEY),
        "sequence": sequence(),
        "size": 2,
    },
    "continual.flax_setup": lambda: {
        "net": models.MLP(classes=4, hidden=(3,)),
        "source": STORED,
        "objective": continual.softmax_objective(),
        "optimizer": optax.sgd(0.1),
        "augment": lambda image, key: image,
    },
    "continual.initial_runs_state": several_runs,
    "continual.lower_step": a_run,
    "continual.initial_state": a_run,
    "continual.online_protocol": lambda: {"batch_size": 10},
    "continual.operations_per_step": a_run,
    "continual.predict_samples": predicted,
    "continual.run_sequence": a_run,
    "continual.runs_mesh": lambda: {"devices": jax.devices(), "data": 1},
    "continual.sample_features": lambda: {
        "setup": SETUP,
        "learner": LEARNER,
        "samples": SAMPLES,
        "size": 2,
    },
    "continual.train": lambda: {
        "net": models.MLP(4),
        "images": np.zeros((24, 3), np.float32),
        "labels": np.arange(24) % 4,
        "strategy": continual.naive,
        "tasks": 2,
        "seeds": 1,
        "test": 0.2,
        "epochs": 1,
        "batch_size": 4,
        "optimizer": optax.sgd(0.1),
        "seed": 0,
    },
    "continual.train_step": lambda: {
        "setup": SETUP,
        "strategy": continual.naive(SETUP),
        "memory": (),
        "learner": LEARNER,
        "batch": small_net.batch_of([0, 1]),
        "task": small_net.task_of(0, [0, 1], SAMPLES),
        "key": KEY,
        "arrives": True,
    },
    "continual.units_used": lambda: {
        "attention": Attention(
            {"a": floats(2, 3)}, {"a": floats(3)}, jnp.int32(0), booleans(4), jnp.int32(0)
        )
    },
    "continual.validate": lambda: {**predicted(), "key": KEY},
    "continual.embedding_objective": lambda: {"facts": FACTS},
    "continual.fixed_test_objective": lambda: {"classes": 4},
    "continual.multi_hot": lambda: {"labels": integers(3, 2), "classes": 4},
    "continual.softmax_objective": lambda: {"class_group": integers(4), "only_seen": False},
    # metrics
    **{
        f"metrics.{name}": lambda: MATRIX
        for name in (
            *("accuracy", "accuracy_over_time", "average_incremental_accuracy"),
            *("backward_transfer", "forgetting"),
            *("final_average_accuracy", "forward_transfer", "gem_backward_transfer"),
            *("positive_backward_transfer", "remembering"),
        )
    },
    **{
        f"metrics.{name}": lambda: PAIR
        for name in (
            *("exact_match", "jaccard_similarity", "precision_weighted_jaccard", "recall"),
            "sample_scores",
        )
    },
    "metrics.accuracy_by_count": lambda: {
        "hits": booleans(4),
        "counts": integers(4),
        "edges": jnp.arange(3),
    },
    "metrics.angular_error": lambda: {"estimate": floats(3), "truth": floats(3)},
    "metrics.batch_recall": lambda: {
        **labelled(4, 5),
        "test_member": booleans(2, 4),
        "seen": booleans(5),
        "task": jnp.int32(1),
        "batch_size": 2,
    },
    "metrics.bootstrap_interval": lambda: {
        "key": KEY,
        "values": floats(4),
        "statistic": jnp.median,
        "level": 0.9,
        "resamples": 5,
    },
    "metrics.cl_score": lambda: {"criteria": SHARES, "weights": dict(metrics.WEIGHTINGS["W1"])},
    "metrics.cl_stability": lambda: {
        "deviations": SHARES,
        "weights": dict(metrics.WEIGHTINGS["W1"]),
    },
    "metrics.class_type_scores": lambda: {
        **labelled(4, 5),
        "seen": booleans(5),
        "types": booleans(3, 5),
    },
    "metrics.class_types": lambda: {"superclass": jnp.array([-1, 0, 0])},
    "metrics.computational_efficiency": lambda: {
        "operations": floats(3),
        "pass_operations": floats(3),
        "epsilon": 10.0,
    },
    "metrics.confusion_matrix": lambda: {**labelled(4, 5), "shown": jnp.arange(2)},
    "metrics.sequence_costs": lambda: {
        "parameters": 5,
        "parameter_copies": 2,
        "stored_samples": floats(2, 3),
        "task_samples": floats(2, 3),
        "operations": floats(2, 3),
        "pass_operations": floats(2, 3),
    },
    "metrics.counted_model_memory": lambda: {
        "parameters": 5,
        "regulariser_copies": 2,
        "tasks": 3,
    },
    "metrics.counted_sample_memory": lambda: {"samples_per_task": floats(3)},
    "metrics.distances_to_facts": lambda: {"embeddings": floats(4, 3, 2), "facts": FACTS},
    "metrics.embed_facts": lambda: {"facts": FACTS},
    "metrics.embedding_similarity": lambda: {
        "facts": FACTS,
        "fact_task": integers(2),
        "tasks": 1,
    },
    "metrics.few_shot": lambda: {"counts": integers(4)},
    "metrics.gem_forward_transfer": lambda: {**MATRIX, "baseline": floats(3)},
    "metrics.intransigence": lambda: {**MATRIX, "reference": floats(3)},
    "metrics.learning_curve_area": lambda: {"curves": floats(3, 11)},
    "metrics.grouped_mean_interval": lambda: {
        "key": KEY,
        "values": floats(4),
        "groups": integers(4),
        "count": 2,
        "level": 0.9,
        "resamples": 5,
    },
    "metrics.maximum_softmax_probability": lambda: {"scores": floats(4, 5)},
    "metrics.mean_hits": lambda: {"hits": booleans(4), "member": booleans(2, 4)},
    "metrics.measure_criteria": lambda: {**MATRIX, "costs": COSTS},
    "metrics.model_size_efficiency": lambda: {"model_memory": floats(3)},
    "metrics.part_counts": lambda: {"pieces": PIECES, "counts": host([1, 2]), "part": "SP"},
    "metrics.partial_test_accuracy": lambda: dict.fromkeys(
        ("correct", "known", "mask"), booleans(4)
    ),
    "metrics.rank_facts": lambda: {
        "embeddings": floats(4, 3, 2),
        "labels": integers(4),
        "facts": FACTS,
        "fact_task": integers(2),
        "images_at_once": 2,
        "facts_at_once": 2,
    },
    "metrics.rejection_curve": lambda: {
        "confidence": floats(4),
        **dict.fromkeys(("correct", "known", "mask"), booleans(4)),
    },
    "metrics.reproduction_error": lambda: {"estimate": floats(3), "truth": floats(3)},
    "metrics.roc_area": lambda: {"curve": metrics.RejectionCurve(*[floats(5)] * 4)},
    "metrics.samples_storage_efficiency": lambda: {
        "sample_memory": floats(3),
        "lifetime_memory": 4.0,
    },
    "metrics.spo_generalisation": lambda: {
        "pieces": PIECES,
        "counts": host([1, 2]),
        "min_count": 1,
    },
    "metrics.spo_overlap": lambda: {"pieces": PIECES, "fact_task": host([0, 1]), "tasks": 2},
    "metrics.summarize_errors": lambda: {"errors": floats(4)},
    "metrics.summarize_runs": lambda: {
        "accuracies": floats(2, 3, 3),
        "costs": jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), COSTS),
    },
    "metrics.task_score_matrix": lambda: {
        **labelled(2, 4, 5),
        "test_member": booleans(2, 4),
        "seen": booleans(2, 5),
    },
    "metrics.task_scores": lambda: {
        **labelled(4, 5),
        "test_member": booleans(2, 4),
        "seen": booleans(5),
        "task": jnp.int32(1),
    },
    "metrics.top_k": lambda: {
        "ranks": metrics.Ranks(integers(4), integers(4)),
        "member": booleans(2, 4),
        "k": 5,
    },
    # models
    "models.calibrate_distances": lambda: {
        "distribution": DISTRIBUTION,
        "distances": floats(4),
    },
    "models.calibrate_interval": lambda: {
        "estimates": floats(3, 4, 2),
        "truth": floats(4, 2),
        "coverage": 0.9,
    },
    "models.chromaticity_interval": lambda: {
        "scale": models.IntervalScale(floats(2), floats()),
        "estimates": floats(3, 2),
    },
    "models.ensemble_chromaticity": lambda: {"estimates": floats(3, 4, 2)},
    "models.ensemble_disagreement": lambda: {"estimates": floats(3, 4, 2)},
    "models.chromaticity_loss": lambda: {"estimate": floats(4, 2), "target": floats(4, 2)},
    "models.cosines": lambda: {"features": floats(4, 5), "kernel": floats(5, 2)},
    "models.crop_and_flip": lambda: {"image": floats(4, 4, 3), "key": KEY, "padding": 1},
    "models.efficientnet_variables": lambda: {
        "arrays": drawn_arrays(np.random.default_rng(0)),
    },
    "models.make_head": lambda: {"kind": "linear", "classes": 4},
    "models.make_trainer": lambda: {"net": NET, "settings": models.TrainingSettings()},
    "models.out_of_distribution_score": lambda: {
        "calibration": models.DistanceCalibration(DISTRIBUTION, floats(101)),
        "distance": jnp.float32(1),
    },
    "models.predict_chromaticity": lambda: {**trained(), "features": floats(4, 9)},
    "models.predict_illuminant": lambda: {**trained(), **TRANSFORM},
    "models.uninformative_interval": lambda: {"chromaticities": floats(4, 2), "coverage": 0.9},
    "models.unit": lambda: {"vectors": floats(4, 5), "axis": -1},
    "models.with_weights": lambda: {
        "params": {"a": {"kernel": floats(3, 2), "bias": floats(2)}},
        "arrays": {"a/weight": np.zeros((2, 3)), "a/bias": np.zeros(2)},
    },
    # scenarios
    "scenarios.check_facts": lambda: {"pieces": PIECES, "words": 2},
    "scenarios.class_incremental": lambda: {
        **LABELS,
        "tasks": [[0, 1], [2, 3]],
        "classes": 4,
        "valid_fraction": 0.1,
        "test_offset": 16,
    },
    "scenarios.core50": lambda: {
        "objects": np.repeat(np.arange(50), 11),
        "sessions": np.tile(np.arange(11), 50),
        "scenario": "NC",
        "run": 0,
        "level": "object",
        "train_sessions": (0, 1),
        "test_sessions": (2,),
    },
    "scenarios.distances_between_facts": lambda: {
        "pieces": PIECES,
        "vectors": host(np.eye(2), float),
    },
    "scenarios.embedding_distances": lambda: {
        "pieces": PIECES,
        "vectors": host(np.eye(2), float),
    },
    "scenarios.divide_classes": lambda: {"order": [0, 1, 2], "tasks": 2},
    "scenarios.seeded_class_incremental": lambda: {
        **LABELS,
        "tasks": 2,
        "classes": 4,
        "seed": 0,
        "valid_fraction": 0.25,
    },
    "scenarios.largest_class_incremental": lambda: {
        **LABELS,
        "tasks": 2,
        "classes": 4,
        "valid_fraction": 0.25,
    },
    "scenarios.validation_fractions": lambda: {
        "train_labels": np.arange(16) % 4,
        "classes": 4,
        "fraction": 0.1,
    },
    "scenarios.without_validation": lambda: {"sequence": sequence()},
    "scenarios.equal_tasks": lambda: {"order": range(4), "count": 2},
    "scenarios.fact_sequence": lambda: {
        "fact_task": host([0, 1]),
        "train": EXAMPLES,
        "valid": EXAMPLES,
        "test": EXAMPLES,
    },
    "scenarios.from_experiences": lambda: {
        "train": [np.arange(3), np.arange(2, 6)],
        "train_labels": [np.array([0, 1, 0]), np.array([1, 2, 3, 0])],
        "test": [np.array([6, 7])],
        "test_labels": [np.array([0, 3])],
        "classes": 4,
        "valid": [np.array([8]), np.array([9])],
        "valid_labels": [np.array([0]), np.array([2])],
    },
    "scenarios.iirc": lambda: {
        **LABELS,
        "data_classes": tuple("abcd"),
        "hierarchy": {"ab": ("a", "b")},
        "configuration": scenarios.TaskConfiguration((("ab", "c"), ("a", "b", "d"))),
        "setting": "complete",
        "valid_fraction": 0.1,
    },
    "scenarios.join_tasks": lambda: {"tasks": [PIECES]},
    "scenarios.online_stream": lambda: {
        **LABELS,
        "tasks": [[0, 1], [2, 3]],
        "classes": 4,
        "pieces": 1,
        "blurry": 0.1,
        "seed": 0,
    },
    "scenarios.random_split": lambda: {
        "train_counts": host([1, 2]),
        "test_counts": host([1, 2]),
        "tasks": 1,
        "seed": 0,
    },
    "scenarios.same_shapes": lambda: {"sequences": [sequence()]},
    "scenarios.semantic_split": lambda: {
        "pieces": PIECES,
        "vectors": host(np.eye(2), float),
        "tasks": 1,
        "linkage": "ward",
        "level": 3,
    },
    "scenarios.split_statistics": lambda: {
        "pieces": PIECES,
        "fact_task": host([0, 1]),
        "examples": EXAMPLES,
    },
    "scenarios.stack_samples": lambda: {
        "groups": [np.arange(2)],
        "labels": [np.zeros((2, 1), int)],
    },
    "scenarios.tested_on_validation": lambda: {"sequence": sequence()},
    "scenarios.training_batches": lambda: {
        "scenario": "NI",
        "run": 0,
        "train_sessions": (0, 1),
    },
}
WITHOUT_ARGUMENTS = {"continual.binary_objective"}
OUTSIDE_OF_JIT = (
    "models.calibrate_distances",
    "continual.diverged",
    "scenarios.",
)
"""Called as they are: they look at values, and compile little or nothing."""
ANYTHING = {"data", "shared", "memory"}
"""Arguments of type Any: a strategy's own memory, and what a build's own setup gathers from."""


@functools.cache
def row(name):
    return ROWS[name]()


def public(name):
    room, function = name.split(".")
    return getattr(importlib.import_module(f"everlight.{room}"), function)


def test_every_public_function_has_a_row_for_all_its_arguments():
    # What is drawn, matplotlib refuses.
    for room in (each for each in ROOMS if each != "plots"):
        module = importlib.import_module(f"everlight.{room}")
        for name in module.__all__:
            each, full = getattr(module, name), f"{room}.{name}"
            if not inspect.isroutine(each) or full in WITHOUT_ARGUMENTS:
                continue
            assert full in ROWS, f"give {full} a row"
            missing = set(inspect.signature(each).parameters) - set(row(full))
            assert missing <= {"state"}, f"{full}: give {missing} an example"


@pytest.mark.parametrize("name", ROWS)
def test_the_rows_examples_are_accepted(name):
    function, given = public(name), row(name)

    def call():
        function(**given)
        return 0

    if name in ("continual.lower_step", "continual.operations_per_step", "continual.train"):
        pytest.skip("compiles; its own tests call it")
    call() if name.startswith(OUTSIDE_OF_JIT) else jax.eval_shape(call)


@pytest.mark.parametrize("name", ROWS)
def test_what_does_not_fit_is_refused_and_named(name):
    function, given = public(name), row(name)
    hints = {key: each.annotation for key, each in inspect.signature(function).parameters.items()}
    tried = 0
    for argument in given.keys() - ANYTHING:
        elsewhere = [axis for key in given if key != argument for axis in axes(hints[key])]
        for what, wrong in wrong_values(given[argument], hints[argument], elsewhere):
            tried += 1
            try:
                function(**{**given, argument: wrong})
            except ValueError as error:
                message = str(error)
                assert argument in message, f"{what} of {argument}: {message}"
                assert message.count("\n") == 0, message
            else:
                pytest.fail(f"{name} takes {what} of {argument}: {wrong!r}")
    assert tried


def wrong_values(value: Any, hint: Any, elsewhere: list[str]) -> Iterator[tuple[str, Any]]:
    """Descriptions and values that the annotation excludes."""
    options, bounds = flat(hint)
    yield "a wrong kind", object()
    arrays = [each for each in options if is_array_type(each)]
    if arrays and hasattr(value, "dtype"):
        yield from wrong_arrays(value, arrays, bounds, elsewhere)
    elif any(typing.get_origin(each) is Literal for each in options):
        yield "an unknown choice", "nonsense"
    elif int in options or float in options:
        yield "text", "3"
        if float not in options:
            yield "a fraction", 1.5
        for bound in bounds:
            yield from (("too little", v) for v in (bound.least - 1,) if math.isfinite(v))
            yield from (("too much", v) for v in (2 * bound.most,) if math.isfinite(v))
            if float in options:
                yield "NaN", math.nan
    elif hasattr(value, "_fields") or dataclasses.is_dataclass(value):
        fields = inspect.get_annotations(type(value))
        for field, kind in fields.items():
            old = getattr(value, field)
            if is_array_type(kind) and hasattr(old, "dtype"):
                others = [axis for each in fields.keys() - {field} for axis in axes(fields[each])]
                for what, wrong in wrong_arrays(old, [kind], [], others):
                    yield f"{what} of {field}", replaced(value, field, wrong)


def wrong_arrays(value, arrays, bounds, elsewhere):
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        yield "another dtype", floats(3)
        return
    value, dims = np.asarray(value), arrays[0].dim_str.split()
    if not any(dim.startswith(("*", "...")) for dim in dims):
        yield "one more axis", value[None]
    if not any(each.dtype.__name__ == "Shaped" for each in arrays):
        yield "another dtype", value.astype(other_dtype(value))
    for place, dim in enumerate(reversed(dims), 1):
        if dim.isdigit() or (dim.isidentifier() and [*elsewhere, *dims].count(dim) > 1):
            first = np.take(value, [0], axis=-place)
            yield f"one more along {dim}", np.concatenate([value, first], axis=-place)
    for bound in bounds:
        if math.isfinite(bound.least) and value.ndim:
            yield "too little", np.full_like(value, bound.least - 1)


def other_dtype(value):
    return np.uint8 if jnp.issubdtype(value.dtype, jnp.floating) else np.float32


def replaced(record, field, wrong):
    if hasattr(record, "_replace"):
        return record._replace(**{field: wrong})
    # Past the data class's own frozenness, and a hook's check of how it is made.
    other = copy.copy(record)
    object.__setattr__(other, field, wrong)
    return other


def axes(hint: Any) -> list[str]:
    kinds = [each for each in flat(hint)[0] if is_array_type(each)]
    return [dim for each in kinds[:1] for dim in each.dim_str.split() if dim.isidentifier()]


def flat(hint: Any) -> tuple[list[Any], list[Between]]:
    """The members of a union, and the bounds that stand anywhere in it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        options, bounds = flat(arguments[0])
        return options, bounds + [each for each in arguments[1:] if isinstance(each, Between)]
    if origin in (typing.Union, types.UnionType):
        parts = [flat(each) for each in arguments]
        return [o for part in parts for o in part[0]], [b for part in parts for b in part[1]]
    return [hint], []


def is_array_type(hint: Any) -> bool:
    return isinstance(hint, type) and hasattr(hint, "dim_str")
