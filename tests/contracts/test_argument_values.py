"""Arguments of the right shape with values that cannot be meant: refused where they can be seen."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everlight.color as color
import everlight.continual as continual
import everlight.illuminant as illuminant
import everlight.metrics as metrics
import everlight.plots as plots
import everlight.scenarios as scenarios
from tests.continual.small_net import init_learner
from tests.contracts.example_values import STORED, build
from tests.refusals import refused

LABELS = np.arange(24) % 4
TASKS = ((0, 1), (2, 3))
FACTS = metrics.Facts(jnp.array([[0, -1, -1], [0, 1, -1]]), jnp.eye(3))
EMBEDDED = jnp.ones((2, 3, 3))
COSTS = metrics.Costs(*[jnp.ones(3)] * 2, jnp.float32(3), *[jnp.ones(3)] * 2)
IMAGE = jnp.asarray(np.random.default_rng(0).uniform(0.1, 1, (24, 24, 3)), jnp.float32)
SHARES = dict.fromkeys(metrics.WEIGHTINGS["W1"], 0.5)


def sequence(**settings):
    return scenarios.class_incremental(LABELS[:16], LABELS[16:], TASKS, 4, 0.25, **settings)


def iirc(**settings):
    configuration = scenarios.TaskConfiguration((("ab", "c"), ("a", "b", "d")))
    labels = (np.arange(80) % 4, np.arange(40) % 4)
    return scenarios.iirc(*labels, tuple("abcd"), {"ab": ("a", "b")}, configuration, **settings)


def rank(labels=(0, 1), facts=FACTS, fact_task=(0, 0)):
    return metrics.rank_facts(EMBEDDED, jnp.array(labels), facts, jnp.array(fact_task))


def relearn(**shares):
    return metrics.cl_score({**SHARES, **shares}, metrics.WEIGHTINGS["W1"])


def errors_of(errors):
    return metrics.summarize_errors(jnp.array(errors))


def by_count(edges):
    return metrics.accuracy_by_count(jnp.ones(2, bool), jnp.array([1, 2]), jnp.array(edges))


def gap(tasks):
    return metrics.stability_gap(jnp.ones((3, 2)), jnp.array(tasks))


def correct(*arrays):
    return color.fit_bias_correction(*arrays)


def store(deviation):
    return continual.StoredImages.of(jnp.ones((2, 3)), jnp.float32(0), jnp.float32(deviation))


def shoot(**settings):
    return color.take_photograph(jax.random.key(0), jnp.ones((24, 3)), color.Sensor(**settings))


def responses(surfaces):
    table = color.ResponseTable(jnp.ones((2, 4, 3)), jnp.ones((2, 3)))
    return color.scene_colors(table, jnp.int32(0), jnp.array(surfaces))


def chromagenic(labels):
    pairs = jnp.ones((2, 5, 3)), jnp.ones((2, 5, 3))
    return color.fit_chromagenic(*pairs, jnp.array(labels), jnp.ones((2, 3)))


def strategy(name, **settings):
    setup, _ = build(STORED)
    return getattr(continual, name)(setup, **settings)


def extended_memory(samples):
    learner = init_learner(build(STORED)[0], 4, jax.random.key(0))
    return strategy("xder_rpc", buffer_size=samples).init(jax.random.key(0), learner)


NEGATIVE = {**metrics.WEIGHTINGS["W1"], "A": -1.0, "MS": 2 - 4 / 7}
WORD_OF_NAN = FACTS.vectors.at[1, 0].set(jnp.nan)
LAYERS = {"layers": ("a",)}
GATES = {"tasks": 2, **LAYERS}
TWO_HEADS = {"class_group": jnp.array([0, 0, 1, 1])}
# Values of strategies that train nothing, the initial network, or NaN.
STRATEGY_VALUES = {
    "lwf": (TWO_HEADS, "class_group holds 1; give 0 to 0"),
    "generative_replay": (TWO_HEADS, "class_group holds 1; give 0 to 0"),
    "continual_backprop": ({**LAYERS, "decay": 1.0}, "give 0 or more, and less than 1"),
    "xdg": ({**GATES, "gated_share": 1.0}, "gated_share=1.0; give 0 or more, and less than 1"),
    "brain_inspired_replay": ({"gated_share": 1.0}, "gated_share=1.0; give 0 or more, and"),
    "packnet": ({"prune": 1.0}, "prune=1.0; give 0 or more, and less than 1"),
    "hal": ({"tasks": 2, "mean_decay": 1.0}, "mean_decay=1.0; give 0 or more, and less than 1"),
    "ranpac": ({"ridge": 0.0}, "ridge=0.0; give more than 0"),
    "acil": ({"ridge": jnp.float32(0)}, "ridge=0.0; give more than 0"),
    "ds_al": ({"compensation_ridge": 0.0}, "compensation_ridge=0.0; give more than 0"),
    "cofima": ({"weight": jnp.float32(0)}, "weight=0.0; give more than 0 and at most 1"),
    "er_tricks": ({"decay": 0.0}, "decay=0.0; give more than 0 and at most 1"),
    "hat": ({**GATES, "max_steepness": 0.5}, "max_steepness=0.5; give 1 or more"),
    "redo": ({**LAYERS, "threshold": 5.0}, "threshold=5.0; give 0 to 1"),
}
STABLE = {
    "stable_probability=0.0; give more than 0": {"stable_probability": 0.0},
    "stable_probability=0.7; give 0 to 0.5": {"plastic_probability": 0.5},
    "stable_decay=0.9; give 0.999 to 1": {"stable_decay": 0.9},
}
# These values once passed silently; each message names the argument.
SILENT = {
    "a grey image": (lambda: color.ESTIMATORS["GW"](IMAGE[..., 0], None), "image is float32"),
    "channels first": (lambda: color.ESTIMATORS["WP"](IMAGE.T, None), "float32[3, 24, 24]"),
    "a label without light": (lambda: chromagenic([0, 2]), "labels holds 2; give 0 to 1"),
    "a surface past the table": (lambda: responses([0, 4]), "reflectances holds 4; give 0 to 3"),
    "a fact that there is not": (lambda: rank(labels=(0, 99)), "labels holds 99; give 0 to 1"),
    "a fact before the first": (lambda: rank(labels=(0, -1)), "labels holds -1; give 0 to 1"),
    "fewer facts with a task": (lambda: rank(fact_task=(0,)), "fact_task is int32[1]"),
    "a piece past the words": (
        lambda: rank(facts=FACTS._replace(pieces=jnp.array([[0, 3, -1], [1, -1, -1]]))),
        "facts.pieces holds 3; give -1 to 2",
    ),
    "a fact without a piece": (
        lambda: rank(facts=FACTS._replace(pieces=jnp.array([[0, 1, 2], [-1, -1, -1]]))),
        "facts.pieces has no piece of fact 1",
    ),
    "no image": (
        lambda: metrics.rank_facts(EMBEDDED[:0], jnp.zeros(0, int), FACTS, jnp.zeros(2, int)),
        "embeddings is float32[0, 3, 3]; give one or more",
    ),
    "a word of NaN": (
        lambda: rank(facts=FACTS._replace(vectors=WORD_OF_NAN)),
        "facts.vectors holds 1 values that are not finite, the first at [1, 0]",
    ),
    "percents": (lambda: relearn(A=55.0), "criteria['A']=55.0; give 0 to 1"),
    "negative weights of sum 1": (lambda: metrics.cl_score(SHARES, NEGATIVE), "weights['A']=-1.0"),
    "more tasks": (
        lambda: metrics.measure_criteria(jnp.ones((4, 4)), COSTS),
        "model_memory is float32[3]",
    ),
    "no matrix": (lambda: metrics.forgetting(jnp.ones((0, 0))), "accuracies is float32[0, 0]"),
    "a deviation of 0": (lambda: store(0), "deviation=0.0; give more than 0"),
    "a deviation of NaN": (lambda: store(np.nan), "deviation=nan"),
    "a deviation of -1": (lambda: store(-1), "deviation=-1.0"),
    "no class": (lambda: continual.multi_hot(jnp.array([[0, 99]]), 3), "labels holds 99; give -1"),
    "a class twice": (lambda: scenarios.equal_tasks([0, 0, 1, 1], 2), "order has class 0 twice"),
    "no errors": (lambda: errors_of([]), "errors is float32[0]"),
    "negative noise": (lambda: shoot(read_noise=-1.0), "sensor.read_noise=-1.0; give 0 or more"),
    **{
        f"{n} bits": (lambda n=n: shoot(bits=n), f"sensor.bits={n}; give 1 to") for n in (0, 25, 64)
    },
    "a balance by negative light": (
        lambda: color.white_balance(IMAGE, jnp.array([1.0, -1.0, 1.0])),
        "illuminant holds -1.0; give more than 0",
    ),
    "below 0 kelvin": (lambda: color.blackbody_power(jnp.float32(-5), jnp.ones(4)), "give 500 or"),
    "a mask of 2": (lambda: color.ESTIMATORS["GW"](IMAGE, 2 * IMAGE[..., 0] + 1), "give 0 to 1"),
    "a circle": (lambda: metrics.class_types(jnp.array([-1, 2, 1])), "class 2 is above itself"),
    "edges in disorder": (lambda: by_count([0, 5, 3]), "edges holds 5 before 3"),
    "evaluations in disorder": (lambda: gap([0, 1, 0]), "task holds 1 before 0"),
    "no rows": (lambda: correct(jnp.ones((0, 9)), jnp.ones((0, 3))), "features is float32[0, 9]"),
    "no output": (lambda: color.warp_image(IMAGE, jnp.eye(3), (0, 4)), "shape[0]=0; give 1 or"),
    "-1 rows": (lambda: color.warp_image(IMAGE, jnp.eye(3), (-1, 4)), "shape[0]=-1; give 1 or"),
    "a matrix without runs": (
        lambda: plots.plot_forgetting({"EWC": np.ones((2, 2))}),
        "accuracies['EWC'] is float64[2, 2]",
    ),
    "a rate of -1": (lambda: illuminant.TrainingSettings(learning_rate=-1.0), "learning_rate=-1.0"),
    **{
        f"{name}'s value": (lambda name=name: strategy(name, **STRATEGY_VALUES[name][0]), text)
        for name, (_, text) in STRATEGY_VALUES.items()
    },
    **{text: (lambda text=text: strategy("cls_er", **STABLE[text]), text) for text in STABLE},
    "a class without a sample": (lambda: extended_memory(3), "buffer_size=3 is less than one"),
    "a rate of NaN": (lambda: illuminant.TrainingSettings(learning_rate=jnp.nan), "rate=nan"),
}


@pytest.mark.parametrize("what", SILENT)
def test_formerly_silent_arguments_are_refused_by_name(what):
    call, message = SILENT[what]
    refused(re.escape(message), call)


@pytest.mark.parametrize("name", color.ESTIMATORS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_integer_images_are_refused_by_every_estimator(name, dtype):
    """Unsigned differences wrapped: edges were wrong by 19 degrees and more."""
    with pytest.raises(ValueError, match=rf"image is {np.dtype(dtype)}\[24, 24, 3\]; give floats"):
        color.ESTIMATORS[name]((255 * IMAGE).astype(dtype), None)


def stored(count=24, value=0.5):
    images = np.full((count, 3), 0.5, np.float32)
    images[-1, 1] = value
    return continual.StoredImages.of(jnp.asarray(images), jnp.float32(0), jnp.float32(1))


PROTOCOL = continual.Protocol(epochs=1, batch_size=4)


def compiled(data, tasks):
    def run(key):
        return continual.run_sequence(continual.Run(build, PROTOCOL, data, tasks, key))

    jax.jit(run).lower(jax.random.key(0))


def driven(data, tasks):
    run = continual.Run(build, PROTOCOL, data, tasks, jax.random.key(0))
    next(continual.drive_runs(continual.Runs.of(run)))


@pytest.mark.parametrize("run", [compiled, driven])
def test_a_sequence_that_does_not_fit_its_images_is_refused(run):
    """An index past the last image took the last one; NaN was scored like any other image."""
    tasks = sequence()
    refused(r"sequence\.test\.index holds 23; give 0 to 22", lambda: run(stored(23), tasks))
    with pytest.raises(ValueError, match=r"images holds 1 values that are not finite.*\[23, 1\]"):
        run(stored(value=jnp.nan), tasks)
    wrong = tasks._replace(test=tasks.test._replace(labels=tasks.test.labels + 1))
    refused(r"sequence\.test\.labels holds 4; give -1 to 3", lambda: run(stored(), wrong))
    with pytest.raises(ValueError, match=r"test is bool\[.*test_member is bool\["):
        run(stored(), tasks._replace(test_member=tasks.test_member[:, 1:]))


def test_a_large_network_is_counted():
    """A JAX integer has 32 bits."""
    np.testing.assert_allclose(metrics.count_model_memory(10**12, 2, 2), [1e12, 3e12])


def test_numpy_and_jax_arrays_are_resampled_alike():
    values, key = np.random.default_rng(0).normal(size=8).astype(np.float32), jax.random.key(0)
    ends = [metrics.bootstrap_interval(key, make(values)) for make in (np.array, jnp.asarray)]
    np.testing.assert_array_equal(*ends)


def test_items_of_a_mapping_need_not_have_equal_sizes():
    plots.plot_error_curves({"short": np.ones((1, 3)), "long": np.ones((2, 5))})
