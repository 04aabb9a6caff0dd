"""The registry finds the rows of every file of strategies; variants of those that store samples."""

import importlib
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from everlight import continual
from everlight.continual import strategies
from everlight.continual.methods import registry
from everlight.continual.methods.method import Method, Publication, StrategyArguments
from everlight.continual.methods.registry import METHODS
from everlight.continual.methods.replay_variants import VARIANTS, has_variant, with_variants
from tests.continual.small_net import CLASSES, small_learner, small_setup

ARGUMENTS = StrategyArguments(tasks=5, classes=10, exemplars_per_class=20)


def test_the_order_of_tables_names_files_that_exist_once():
    assert len({*registry.ORDER}) == len(registry.ORDER)
    path = strategies.__path__[0]
    assert all((Path(path) / f"{name}.py").exists() for name in registry.ORDER)


def test_everlight_continual_has_every_published_strategy():
    changes = {"predict_by_nearest_mean", "review_memory"}  # of any strategy, as --variants
    modules = [importlib.import_module(f"{strategies.__name__}.{name}") for name in registry.ORDER]
    factories = {row.factory.__name__ for module in modules for row in module.METHODS}
    assert set(strategies.__all__) - changes == factories
    assert set(strategies.__all__) <= set(continual.__all__)


def test_published_rows_have_all_known_values_of_their_authors():
    """The benchmark sets sizes of memories; numbers of samples only estimate a statistic."""
    free = {"exemplars_per_class", "buffer_size", "replay_batch_size"}
    free |= {"max_samples", "importance_samples"}
    published = [method for method in METHODS.values() if method.published is not None]
    assert len(published) > 5
    for method in published:
        arguments = method.arguments(StrategyArguments(5, 10, 20, hyperparameter=method.published))
        for name in {*arguments} & {*method.authors} - free:
            value = method.authors[name]
            # The authors of task arithmetic searched a grid, which holds the published value.
            if (method.name, name) != ("task arithmetic", "scale"):
                assert arguments[name] == value, (method.name, name)


def _factory(setup, buffer_size=7, replay_batch_size=5, rate=0.1, groups=1, hyperparameter=2):
    """Return nothing; tests read its arguments."""


def _per_class(setup, exemplars_per_class, buffer_size=None, replay_batch_size=None):
    """Return nothing; tests read its arguments."""


ROW = Method("row", _factory, Publication(), "a row", tunes="rate", fixed={"replay_batch_size": 3})


@pytest.mark.parametrize(
    ("row", "changes", "expected"),
    [
        (ROW, {}, {"buffer_size": 200, "replay_batch_size": 3, "rate": 0.0, "groups": 1}),
        (
            ROW,
            {"buffer_size": 60, "hyperparameter": 0.5, "class_group": jnp.zeros(10, int)},
            {"buffer_size": 60, "replay_batch_size": 3, "rate": 0.5, "groups": 5},
        ),
        (
            ROW._replace(
                fixed={}, tunes="", derived=lambda arguments: {"rate": 1 / arguments.tasks}
            ),
            {},
            {"buffer_size": 200, "rate": 0.2, "groups": 1},
        ),
        # Beside a number per class, the total is that which a benchmark sets.
        (ROW._replace(factory=_per_class, tunes="", fixed={}), {}, {"exemplars_per_class": 20}),
        (
            ROW._replace(factory=_per_class, tunes="", fixed={}),
            {"buffer_size": 60, "replay_batch_size": 9},
            {"exemplars_per_class": 20, "buffer_size": 60, "replay_batch_size": 9},
        ),
    ],
)
def test_arguments_are_filled_by_name_and_the_row_states_exceptions(row, changes, expected):
    assert row.row_arguments(ARGUMENTS._replace(**changes)) == expected


def test_a_row_tunes_an_argument_if_it_has_values():
    for name, row in METHODS.items():
        assert bool(row.tunes) == bool(row.hyperparameters), name
        assert row.row_arguments(ARGUMENTS._replace(hyperparameter=0.125)).get(row.tunes) in (
            (0.125,) if row.tunes else (None,)
        )


def test_methods_that_take_the_number_of_tasks_depend_on_it():
    takes = {name for name, row in METHODS.items() if "tasks" in row.row_arguments(ARGUMENTS)}
    assert takes == {name for name, row in METHODS.items() if row.planned_total == "tasks"}
    variants = with_variants([METHODS["X-DER-RPC"]], ["nearest-mean"])
    assert [row.planned_total for row in variants] == ["classes"] * 2


SETUP = small_setup()
STORING = [name for name, row in METHODS.items() if has_variant(row, "nearest-mean")]


def test_every_method_that_stores_samples_has_a_row_per_variant():
    assert STORING[:3] == ["ER-balanced", "ER", "DER"]
    assert {"GEM", "HAL", "GDumb", "MIR"} < set(STORING)
    without = {"naive", "joint", "EWC", "ER-infinite", "nearest mean", "iCaRL", "latent replay"}
    assert not {*without, "expandable DER"} & set(STORING)
    rows = with_variants([METHODS["EWC"], METHODS["A-GEM"]], list(VARIANTS))
    assert [row.name for row in rows] == ["EWC", "A-GEM", "A-GEM, nearest-mean", "A-GEM, review"]
    assert rows[2].requirements == ("class scores", "one label")
    assert rows[3].requirements == METHODS["A-GEM"].requirements
    assert rows[3].summary.startswith(METHODS["A-GEM"].summary)
    # Compiled programs are found again by equal rows.
    assert rows == with_variants([METHODS["EWC"], METHODS["A-GEM"]], list(VARIANTS))
    arguments = StrategyArguments(2, CLASSES, exemplars_per_class=4)
    assert rows[2].arguments(arguments) == METHODS["A-GEM"].arguments(arguments)


def test_no_review_where_it_trains_no_network_that_predicts():
    """CLS-ER's and MKD's averages predict; X-DER-RPC predicts by a head that the setup lacks."""
    without = {name for name in STORING if not has_variant(METHODS[name], "review")}
    assert without == {"CLS-ER", "ER-MKD", "ER-ACE-MKD", "DER++-MKD", "X-DER-RPC"}


def test_methods_of_disjoint_classes_require_them():
    stated = {
        name
        for name, row in METHODS.items()
        if re.search(r"Tasks (must )?have\s+disjoint\s+classes", row.factory.__doc__)
    }
    assert {"XdG", "PackNet", "HAT", "TRGP", "L2P", "EASE", "SLCA", "CoFiMA", "SS-IL"} < stated
    assert all("disjoint classes" in METHODS[name].requirements for name in stated)


@pytest.mark.parametrize("name", [name for name in STORING if METHODS[name].head == "linear"])
def test_a_variant_of_a_method_finds_its_stored_samples(name):
    """The variant is only traced; the tricks' numbers are tested in `test_replay_tricks`."""
    arguments = StrategyArguments(2, CLASSES, exemplars_per_class=4, hyperparameter=1.0)
    (_, *rows) = with_variants([METHODS[name]], list(VARIANTS))
    if "multi-label" in METHODS[name].requirements:
        pytest.skip("for several labels")
    for row in rows:
        strategy = row.make(SETUP, arguments)

        def evaluated(strategy=strategy):
            learner = small_learner(SETUP, [0, 1])
            memory = strategy.init(jax.random.key(0), learner)
            return memory, strategy.before_evaluation(memory, learner, jax.random.key(1))[0]

        before, after = jax.eval_shape(evaluated)
        assert jax.tree.structure(before) == jax.tree.structure(after)
