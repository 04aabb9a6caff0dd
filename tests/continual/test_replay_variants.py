"""Variants of the registry's methods that store samples."""

import jax
import pytest

from everlight.continual.methods.method import Needs
from everlight.continual.methods.registry import METHODS
from everlight.continual.methods.replay_variants import VARIANTS, with_variants
from tests.continual.small_net import CLASSES, small_learner, small_setup

SETUP = small_setup()
STORING = [name for name, row in METHODS.items() if row.stores_samples and not row.nearest_mean]


def test_every_method_that_stores_samples_has_a_row_per_variant():
    assert STORING[:3] == ["ER-balanced", "ER", "DER"]
    assert {"GEM", "HAL", "GDumb", "MIR"} < set(STORING)
    assert not {"naive", "joint", "EWC", "ER-infinite", "nearest mean", "iCaRL"} & set(STORING)
    rows = with_variants([METHODS["EWC"], METHODS["A-GEM"]], list(VARIANTS))
    assert [row.name for row in rows] == ["EWC", "A-GEM", "A-GEM, nearest-mean", "A-GEM, review"]
    assert rows[2].demands == ("class scores", "one label")
    assert rows[3].demands == METHODS["A-GEM"].demands
    assert rows[3].summary.startswith(METHODS["A-GEM"].summary)
    # Compiled programs are found again by equal rows.
    assert rows == with_variants([METHODS["EWC"], METHODS["A-GEM"]], list(VARIANTS))
    needs = Needs(2, CLASSES, exemplars_per_class=4)
    assert rows[2].arguments(needs) == METHODS["A-GEM"].arguments(needs)


@pytest.mark.parametrize("name", [name for name in STORING if METHODS[name].head == "linear"])
def test_a_variant_of_a_method_finds_its_stored_samples(name):
    """Traced alone; the tricks' numbers are tested in `test_replay_tricks`."""
    needs = Needs(2, CLASSES, exemplars_per_class=4, hyperparameter=1.0)
    (_, *rows) = with_variants([METHODS[name]], list(VARIANTS))
    if "several labels" in METHODS[name].demands:
        pytest.skip("for several labels")
    for row in rows:
        strategy = row.make(SETUP, needs)

        def evaluated(strategy=strategy):
            learner = small_learner(SETUP, [0, 1])
            memory = strategy.init(jax.random.key(0), learner)
            return memory, strategy.before_evaluation(memory, learner, jax.random.key(1))[0]

        before, after = jax.eval_shape(evaluated)
        assert jax.tree.structure(before) == jax.tree.structure(after)
