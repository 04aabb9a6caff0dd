"""Arguments that public functions need beside those made from their annotations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import everlight.color as color
import everlight.continual as continual
import everlight.illuminant as illuminant
import everlight.metrics as metrics
import everlight.models as models
import everlight.scenarios as scenarios
from everlight.color.learned.dual_mapping import DualMappingNet
from everlight.continual.strategies.hat import Attention
from tests.continual import small_net
from tests.contracts.example_values import (
    CALIBRATED,
    DISTRIBUTION,
    GENERATOR,
    KEY,
    LABELS,
    OF_A_NETWORK,
    PIECES,
    RECORDS,
    SAMPLES,
    SHARES,
    STORED,
    VIT,
    WEIGHTS,
    build,
    calibrated,
    capture_aware,
    confidence_pooling,
    cross_camera,
    equinox_net,
    observed,
    parameters,
    released_vit,
    runs_state,
    sensor_independent,
    sequence,
    staged_setup,
    trained_networks,
)
from tests.contracts.small_arrays import booleans, floats, host, integers
from tests.models.port_arrays import drawn_arrays

PLAIN, NAIVE = build(STORED)
ON_PLAIN, ON_BOTH = {"setup": PLAIN}, {"setup": PLAIN, "strategy": NAIVE}
HISTOGRAMS, OBSERVED = {"histograms": floats(16, 16, 2)}, {"observations": observed(5, 16, 16)}
FEW = {**OBSERVED, "steps": 1}
ADAPTED = {
    "layers": {"hidden1": {"kernel": jnp.ones((3, 3)), "bias": jnp.ones(3)}},
    "kernels": ("hidden1",),
}
LOCUS = color.Locus(jnp.asarray([3e3, 5e3, 7e3]), floats(3, 2))
TASKS, FOLDS = [[0, 1], [2, 3]], [np.arange(6), np.arange(6, 12)]
ROWS: dict[str, Any] = {
    "color.area_downsample": {"factor": 2},
    "color.chromagenic_estimate": {
        "model": color.Chromagenic(floats(2, 3, 3), floats(2, 3), booleans(2))
    },
    "color.confidence_pooled_estimate": lambda: {"model": confidence_pooling()},
    "color.correct_bias_locally": {"model": color.TrainingEstimates(floats(5, 3), floats(5, 3))},
    "color.calibrated_estimate": lambda: {
        "model": calibrated(),
        "fingerprint": floats(16, 16, 2),
        **HISTOGRAMS,
    },
    "color.capture_aware_estimate": lambda: {"model": capture_aware(), **HISTOGRAMS},
    "color.capture_features": {"flash": jnp.array(True)},
    "color.cross_camera_estimate": lambda: {
        "model": cross_camera(),
        "others": floats(4, 16, 16, 2),
        **HISTOGRAMS,
    },
    "color.dual_mapping_estimate": lambda: {
        "model": color.DualMappingModel(parameters(DualMappingNet(), floats(8)))
    },
    "color.fit_capture_aware": {"histograms": floats(5, 16, 16, 2), "steps": 1},
    "color.fit_confidence_pooling": {"steps": 1},
    "color.fit_calibrated_camera": lambda: {
        **FEW,
        "calibrations": color.CameraCalibration(
            jnp.tile(jnp.eye(3), (5, 2, 1, 1)), jnp.tile(jnp.array([2856.0, 6504.0]), (5, 1))
        ),
        "settings": CALIBRATED,
    },
    "color.fit_cross_camera": {**FEW, "settings": GENERATOR},
    "color.fit_dual_mapping": FEW,
    "color.fit_gamut": OBSERVED,
    "color.fit_linear_regression": {"features": floats(9, 3), "chromaticities": floats(9, 2)},
    "color.fit_sensor_independent": FEW,
    "color.fourier_estimate": {
        "model": color.FourierModel(floats(2, 64, 64), floats(64, 64), floats(2))
    },
    "color.gamut_estimate": {"model": color.Gamut(floats(3), floats(126), 0)},
    "color.fit_locus": {"knots": jnp.asarray([3e3, 5e3]), "temperatures": floats(5)},
    "color.interpolate_matrices": {
        "temperatures": LOCUS.temperatures,
        "matrices": floats(3, 3, 3),
    },
    "color.locus_chromaticity": {"locus": LOCUS},
    "color.nearest_on_locus": {"locus": LOCUS},
    "color.linear_estimate": {"model": color.LinearRegression(floats(9, 2), floats(2))},
    "color.patch_means": {"thumbnail": floats(32, 48, 3)},
    "color.scene_colors": {"table": color.ResponseTable(floats(2, 4, 3), floats(2, 3))},
    "color.sensor_independent_estimate": lambda: {"model": sensor_independent()},
    "color.warp_image": {"shape": (4, 5)},
    "continual.diverged_runs": lambda: {"state": runs_state()},
    "continual.continual_backprop": {"layers": ("a",)},
    "continual.evaluate": lambda: {**ON_BOTH, "learner": small_net.init_learner(PLAIN, 4, KEY)},
    "continual.expert_gate": {"features": lambda inputs: inputs, "class_group": integers(6)},
    "continual.equinox_setup": lambda: {"make": equinox_net(), **OF_A_NETWORK},
    "continual.flax_setup": {"net": models.MLP(classes=4, hidden=(3,)), **OF_A_NETWORK},
    "continual.network_setup": {"net": models.MLP(classes=4, hidden=(3,)), **OF_A_NETWORK},
    "continual.nnx_setup": {"make": lambda rngs: nnx.Linear(3, 4, rngs=rngs), **OF_A_NETWORK},
    "continual.inflora": ON_PLAIN,
    "continual.gpm": ON_PLAIN,
    "continual.latent_replay": ON_PLAIN,
    "continual.memo": lambda: {"setup": staged_setup()},
    "continual.generative_replay": {"class_group": integers(6)},
    "continual.hat": {"layers": ("a",)},
    "continual.pnn": {"layers": ("a",)},
    "continual.xdg": {"layers": ("a",)},
    "continual.learn_generated": lambda: {
        "generator": continual.TaskGenerator(
            lambda key: (), lambda state, key: state, lambda state, count, key: SAMPLES
        ),
        **ON_BOTH,
        "tasks": 1,
        "steps": 1,
    },
    "continual.regression_objective": {"target": lambda labels: labels[:, None]},
    "continual.lwf": {"class_group": integers(6)},
    "continual.redo": {"layers": ("a",)},
    "continual.train": {
        "net": models.MLP(4),
        "images": np.zeros((24, 3), np.float32),
        "labels": np.arange(24) % 4,
        "strategy": continual.naive,
    },
    "continual.target_objective": {
        "loss": lambda outputs, target: outputs[0] - target,
        "target": lambda labels: labels * 1.0,
    },
    "continual.train_targets": {
        "net": models.MLP(4),
        "images": np.zeros((24, 3), np.float32),
        "targets": np.zeros(24, np.float32),
        "tasks": np.arange(24) % 2,
        "strategy": continual.naive,
        "objective": lambda outputs, target: outputs[0] - target,
    },
    "continual.train_step": {
        "batch": small_net.batch_of([0, 1]),
        "task": small_net.task_of(0, [0, 1], SAMPLES),
    },
    "continual.trgp": {**ON_PLAIN, "tasks": 2},
    "continual.units_used": {
        "attention": Attention(
            {"a": floats(2, 3)}, {"a": floats(3)}, jnp.int32(0), booleans(4), jnp.int32(0)
        )
    },
    "metrics.accuracy_by_count": {"edges": jnp.arange(3)},
    "metrics.cl_score": {"criteria": SHARES, "weights": WEIGHTS},
    "metrics.cl_stability": {"deviations": SHARES, "weights": WEIGHTS},
    "metrics.class_types": {"superclass": jnp.array([-1, 0, 0])},
    "metrics.part_counts": {"counts": host([1, 2])},
    "metrics.roc_area": {"curve": metrics.RejectionCurve(*[floats(5)] * 4)},
    "metrics.spo_generalization": {"counts": host([1, 2])},
    "metrics.summarize_runs": lambda: {
        "accuracies": floats(2, 3, 3),
        "costs": jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), RECORDS[metrics.Costs]()),
    },
    "metrics.diagnose_plasticity": lambda: {
        "params": {"a": floats(2)},
        "outputs": continual.Outputs(floats(4, 3), floats(4, 2), {"a": floats(4, 2)}),
    },
    "metrics.weight_norm": {"params": {"a": floats(2)}},
    "metrics.top_k": {"ranks": metrics.Ranks(integers(4), integers(4))},
    "illuminant.chromaticity_interval": {"scale": illuminant.IntervalScale(floats(2), floats())},
    "models.efficientnet_variables": lambda: {"arrays": drawn_arrays(np.random.default_rng(0))},
    "illuminant.make_trainer": {"settings": illuminant.TrainingSettings()},
    "illuminant.out_of_distribution_score": {
        "calibration": illuminant.DistanceCalibration(DISTRIBUTION, floats(101))
    },
    "models.unit_vectors": {"vectors": floats(4, 5)},
    "continual.with_ema": {"decay": 0.9},
    "models.interpolate_positions": {"embeddings": np.ones((5, 2), np.float32), "side": 3},
    "models.vit_layers": lambda: {"net": VIT, "arrays": released_vit(), "side": 2},
    "models.with_lora": {**ON_PLAIN, **ADAPTED},
    "models.with_prompts": lambda: {
        "net": VIT,
        "layers": models.vit_layers(VIT, released_vit(), 2),
        "prompting": models.prompt_pool(4),
    },
    "models.with_adapters": lambda: {
        "net": VIT,
        "layers": models.vit_layers(VIT, released_vit(), 2),
    },
    "models.prompt_components": {"width": 4, "components": 2},
    "models.with_merged_lora": {**ON_PLAIN, **ADAPTED},
    "models.with_layers": {"layers": {"hidden": jnp.zeros(3)}},
    "models.with_weights": {
        "params": {"a": {"kernel": floats(3, 2), "bias": floats(2)}},
        "arrays": {"a/weight": np.zeros((2, 3)), "a/bias": np.zeros(2)},
    },
    "continual.choose_hyperparameter": lambda: {
        "hyperparameters": (1.0, 10.0),
        "criteria": host([[0.5, 0.6], [0.7, 0.4]], float),
    },
    "continual.named_optimizer": lambda: {"text": "sgd:momentum=0.9", "learning_rate": 0.1},
    "continual.with_predictions": lambda: {
        "objective": continual.softmax_objective(),
        "task_incremental": True,
    },
    "metrics.class_accuracies": lambda: {"counts": host(np.ones((2, 3, 3)))},
    "metrics.confusion_shares": lambda: {"counts": host(np.ones((3, 3)))},
    "metrics.confusion_counts": lambda: {
        "predicted": host([[0, 1], [2, -1]]),
        "labels": host([0, 1]),
        "mask": host([1, 1], bool),
        "classes": 3,
    },
    "metrics.accuracies_in_order": lambda: {
        "within": np.zeros((2, 1, 3, 2)),
        "steps": np.ones((2, 1, 3), int),
        "after": np.zeros((2, 2)),
    },
    "metrics.standard_errors_apart": lambda: {"values": host([0.1, 0.3], float), "mean": 0.2},
    "metrics.student_interval": lambda: {"values": host([0.1, 0.3], float), "level": 0.9},
    "metrics.tied_candidates": lambda: {"best": 0, "scores": host([[0.1, 0.3]], float)},
    "illuminant.best_of_rates": lambda: {"by_rate": {0.1: trained_networks()}, "group": 1},
    "illuminant.best_of_restarts": lambda: {"trained": trained_networks(), "restarts": 1},
    "illuminant.cross_calibrate_distances": lambda: {
        "features": jnp.float32(np.random.default_rng(0).normal(size=(12, 9))),
        "folds": FOLDS,
    },
    "illuminant.cross_coverage": lambda: {
        "estimates": [host(floats(2, 12, 2), np.float32)] * 2,
        "truth": host(floats(12, 2), np.float32),
        "folds": FOLDS,
    },
    "illuminant.index_of_lowest": lambda: {"losses": host(floats(3, 4), np.float32)},
    "illuminant.interval_coverage": lambda: {
        "scale": illuminant.IntervalScale(floats(2), floats()),
        "estimates": floats(2, 12, 2),
        "truth": floats(12, 2),
        "uninformative": floats(),
    },
    "illuminant.make_batch_trainer": lambda: {
        "settings": illuminant.TrainingSettings(),
        "key": KEY,
        "depths": (2,),
        "problems": 2,
        "validations": 1,
    },
    "models.named_network": lambda: {"text": "mlp:8", "request": models.NetworkRequest(4, 8)},
    "illuminant.predict_batch": lambda: {
        "depth": 2,
        "models": trained_networks().models[2],
        "features": floats(1, 4, 9),
    },
    "illuminant.stack_problems": lambda: {
        "problems": [illuminant.Problem(floats(4, 9), floats(4, 2), floats(3, 9), floats(3, 2))]
    },
    "plots.line_style": {"index": 1},
    "plots.plot_accuracy_over_time": {"curves": {"EWC": floats(2, 3)}},
    "plots.plot_answers": {
        "pictures": np.zeros((1, 2, 2, 3), np.uint8),
        "truths": ["cat"],
        "answers": {"EWC": ["dog"]},
        "is_correct": {"EWC": np.zeros(1, bool)},
    },
    "plots.plot_chromaticity": {"illuminants": {"sun": floats(2, 3)}, "sensor": None},
    "plots.plot_criteria": {"criteria": {"EWC": SHARES}},
    "plots.plot_error_curves": {"errors": {"GW": floats(2, 3)}},
    "plots.plot_forgetting": {"accuracies": {"EWC": floats(2, 3, 3)}},
    "plots.plot_rejection": {"curves": {"EWC": floats(5)}},
    "scenarios.append_task": lambda: {
        "task": scenarios.experience_sequence(
            [np.arange(4)], [np.arange(4)], [np.arange(4, 8)], [np.arange(4)], 4
        )
    },
    "scenarios.class_incremental_by_seed": {
        **LABELS,
        "tasks": 2,
        "classes": 4,
        "valid_fraction": 0.25,
    },
    "scenarios.class_incremental": {**LABELS, "tasks": TASKS},
    "scenarios.relabel_within_tasks": lambda: {
        "sequence": scenarios.class_incremental(**LABELS, tasks=TASKS, classes=4),
        "tasks": TASKS,
    },
    "scenarios.class_pair_tasks": LABELS,
    "scenarios.permuted_tasks": {"labels": np.arange(16) % 4, "classes": 4, "count": 20},
    "scenarios.label_permuted_tasks": {"labels": np.arange(16) % 4, "classes": 4},
    "scenarios.core50": {
        "objects": np.repeat(np.arange(50), 11),
        "sessions": np.tile(np.arange(11), 50),
        "frames": np.arange(550),
    },
    "scenarios.draw_numbers": {"bits": booleans(3), "inputs": 5},
    "scenarios.draw_samples": {"bits": booleans(3), "inputs": 5},
    "scenarios.target_values": lambda: {
        "network": scenarios.draw_target_network(KEY, 5, 4),
        "inputs": floats(3, 5),
    },
    "scenarios.domain_incremental": {**LABELS, "tasks": 2, "label_maps": host([[0, 1, 2, 3]] * 2)},
    "scenarios.noisy_labels": {"labels": np.arange(16) % 4},
    "scenarios.draw_transform": {"name": "permuted"},
    "scenarios.named_stream": {"name": "permuted"},
    "scenarios.recurring_classes": {**LABELS, "tasks": [[0, 1], [1, 2, 3]]},
    "scenarios.rotated": {"degrees": host([0, 30, 60], np.float32)},
    "scenarios.transform_inputs": {"transform": lambda image, task: image},
    "scenarios.divide_classes": {"order": [0, 1, 2]},
    "scenarios.equal_tasks": {"order": range(4)},
    "scenarios.experience_sequence": {
        "train": [np.arange(3), np.arange(2, 6)],
        "train_labels": [np.array([0, 1, 0]), np.array([1, 2, 3, 0])],
        "test": [np.array([6, 7])],
        "test_labels": [np.array([0, 3])],
        "valid": [np.array([8]), np.array([9])],
        "valid_labels": [np.array([0]), np.array([2])],
    },
    "scenarios.iirc": {
        **LABELS,
        "data_classes": tuple("abcd"),
        "hierarchy": {"ab": ("a", "b")},
        "configuration": scenarios.TaskConfiguration((("ab", "c"), ("a", "b", "d"))),
    },
    "scenarios.long_tailed_counts": {"counts": np.array([9, 8, 7]), "imbalance": 2.0},
    "scenarios.long_tailed_samples": {
        "labels": np.arange(16) % 4,
        "classes": 4,
        "imbalance": 2.0,
    },
    "scenarios.join_tasks": {"tasks": [host(PIECES)]},
    "scenarios.online_stream": {**LABELS, "tasks": TASKS},
    "scenarios.random_split": {
        "train_counts": host([1, 1]),
        "test_counts": host([1, 1]),
        "tasks": 1,
    },
    "scenarios.pad_sequences": lambda: {"sequences": [sequence()]},
    "scenarios.seeded_class_incremental": LABELS,
    "scenarios.semantic_split": {"tasks": 1},
    "scenarios.stack_samples": {"groups": [np.arange(2)], "labels": [np.zeros((2, 1), int)]},
    "scenarios.validation_fractions": {"train_labels": np.arange(16) % 4},
}
