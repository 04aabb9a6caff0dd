"""The papers' benchmarks as records: what their sequences, scores and refusals are, by hand."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from everlight_experiments.cl_metrics.record import PLANS as ICIFAR_PLANS
from everlight_experiments.cl_metrics.record import icifar_net
from everlight_experiments.common.plan_settings import changed_plan
from everlight_experiments.continual.table import (
    BENCHMARKS,
    DIGITS,
    ON_FEATURES,
    PICTURES,
    ContinualRun,
)
from everlight_experiments.core50.beginning import make_net
from everlight_experiments.core50.plans import PLANS as CORE50_PLANS
from everlight_experiments.facts.record import PLANS as FACTS_PLANS

from everlight.continual.registry import METHODS, WHY_NOT, why_not, with_published
from everlight.metrics.ranking import Facts
from everlight.models import MLP
from everlight_data.errors import DataError
from everlight_data.images.core50 import CATEGORIES, OBJECTS, Core50
from everlight_experiments.continual.benchmark import Draw, of_matrix
from everlight_experiments.core50 import record as core50_record
from everlight_experiments.facts import record as facts_record

NAIVE = METHODS["naive"]


@pytest.fixture(scope="module")
def frames():
    """Four of every object in every session, each a pixel."""
    session, number, time = (axis.ravel() for axis in np.indices((11, 50, 4)))
    images = np.zeros((len(number), 1, 1, 3), np.uint8)
    return Core50("frames", images, session, number, 75 * time, OBJECTS, CATEGORIES)


@pytest.fixture(scope="module")
def core50(frames):
    parts = CORE50_PLANS["demo"], frames, "object", 0, ("NI", "NC", "NIC")
    return core50_record.record(*parts)


@pytest.mark.parametrize(("scenario", "batches"), [("NI", 6), ("NC", 9), ("NIC", 59)])
def test_orders_that_choose_hyperparameters_see_no_test_frame(core50, frames, scenario, batches):
    """Two training sessions test them, thinned as the test set is, and are not learnt."""
    sequence = core50.sequence(scenario, NAIVE, Draw("tuning", 0, 0))
    assert sequence.tasks.id.shape[0] == batches
    train = np.asarray(sequence.tasks.train.index)[np.asarray(sequence.tasks.train.mask)]
    tested = np.asarray(sequence.test.index)
    assert (
        sorted(train.tolist())
        == np.flatnonzero(np.isin(frames.session, [0, 1, 3, 4, 7, 8])).tolist()
    )
    assert set(frames.session[tested]) == {5, 10}
    assert len(set(tested.tolist())) == len(tested)
    np.testing.assert_array_equal(np.bincount(frames.object[tested]), 2 * 2)
    np.testing.assert_array_equal(np.asarray(sequence.test.labels)[:, 0], frames.object[tested])
    assert sequence.test_member.shape == (batches, len(tested))
    # Its order is the last published one, and reported is the first.
    if scenario == "NC":
        last = core50.sequence(scenario, NAIVE, Draw("reported", 0, 9))
        np.testing.assert_array_equal(sequence.class_task, last.class_task)


def test_core50_s_matrix_is_by_the_batch_that_brings_a_class(core50):
    sequence = core50.sequence("NI", NAIVE, Draw("reported", 0, 0))
    accuracy = np.random.default_rng(0).random((8, 50))
    found = core50.scores("NI", {"class_accuracy": accuracy, "accuracy": accuracy[:, 0]}, sequence)
    # In NI the first batch brings all of them.
    np.testing.assert_allclose(found.matrix[:, 0], accuracy.mean(axis=1))
    assert np.isnan(found.matrix[:, 1:]).all()
    np.testing.assert_array_equal(found.over_time, accuracy[:, 0])
    sequence = core50.sequence("NC", NAIVE, Draw("reported", 0, 0))
    accuracy = np.random.default_rng(0).random((9, 50))
    found = core50.scores("NC", {"class_accuracy": accuracy, "accuracy": accuracy[:, 0]}, sequence)
    # One object of each category comes first.
    np.testing.assert_allclose(found.matrix[:, 0], accuracy[:, ::5].mean(axis=1))


def test_scores_over_time_are_means_of_the_tasks_so_far():
    found = of_matrix(np.array([[0.8, 0.1], [0.4, 0.9]]))
    np.testing.assert_allclose(found.over_time, [0.8, 0.65])


def test_methods_that_make_no_sense_say_why(core50):
    def refused(offers):
        return {name for name, row in METHODS.items() if why_not(row, offers) is not None}

    several = {"incremental joint", "iCaRL-CNN", "iCaRL-norm"}
    several |= {name for name in METHODS if name.startswith("BiC-")}
    assert refused(core50.offers("NC")) == several | {"LUCIR", "HAT", "PackNet", "ER-ACE"}
    again = {"iCaRL", "BiC"}
    assert refused(core50.offers("NI")) == refused(core50.offers("NC")) | again
    assert why_not(METHODS["iCaRL"], core50.offers("NI")) == WHY_NOT["own classes"]


def test_a_published_hyperparameter_is_a_row_of_its_own():
    rows = with_published([METHODS["LwF"], METHODS["naive"]])
    assert [(row.name, row.hyperparameters) for row in rows] == [
        ("LwF", METHODS["LwF"].hyperparameters),
        ("LwF, published", (1,)),
        ("naive", ()),
    ]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("core50-nc", {"seeds": 9}, r"--seeds 9; core50 has 10 published orders.* give 8 or less"),
    ],
)
def test_more_seeds_than_there_are_orders_are_refused(name, changes, message):
    with pytest.raises(DataError, match=message):
        BENCHMARKS[name](ContinualRun(benchmark=name, **changes))


PLANS = {
    "icifar": ICIFAR_PLANS,
    "core50": CORE50_PLANS,
    "facts": FACTS_PLANS,
    "general": {"digits": DIGITS, "pictures": PICTURES, "features": ON_FEATURES},
}


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(plan, id=f"{name}-{scale}")
        for name, plans in PLANS.items()
        for scale, plan in plans.items()
    ],
)
def test_every_plan_says_how_it_was_chosen(plan):
    """As published, on no data, or on what is not reported."""
    known = ("published", "not chosen on any data", "validation seed", "validation configuration")
    assert any(word in plan.chosen for word in known)
    assert "by hand" not in plan.chosen


def net_of_begin(monkeypatch, record, begin):
    """The module that a record's sequences are learnt by."""
    made = []
    monkeypatch.setattr(record, "flax_setup", lambda module, *_: made.append(module))
    facts = Facts(jnp.zeros((6, 3), int), jnp.zeros((4, 5)))
    shared = SimpleNamespace(images=None, facts=facts)
    begin("", NAIVE, SimpleNamespace(shared=shared))
    return made[0]


NETS = {
    "icifar": lambda plan, _: icifar_net(plan).make("net", "linear"),
    "core50": lambda plan, _: make_net(plan, 3),
    "facts": lambda plan, patch: net_of_begin(
        patch, facts_record, facts_record.facts_begin(plan.net, 5, 6, 2)
    ),
}


@pytest.mark.parametrize("scale", ["demo", "paper"])
@pytest.mark.parametrize("name", NETS)
def test_every_plan_s_net_computes_as_the_plan_says(monkeypatch, name, scale):
    setting = "net.dtype" if name == "facts" else "dtype"
    for dtype in ("float32", "bfloat16"):
        plan = changed_plan(PLANS[name][scale], {setting: dtype})
        net = NETS[name](plan, monkeypatch)
        assert not isinstance(net, MLP)
        assert jnp.dtype(net.dtype) == dtype
    with pytest.raises(DataError, match=rf"value --plan\.{setting} 'float16'; .*'bfloat16'"):
        changed_plan(PLANS[name][scale], {setting: "float16"})
