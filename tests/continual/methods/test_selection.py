"""The rule by which hyper-parameters are chosen, on numbers worked out by hand."""

import numpy as np

from everlight.continual import choose_hyperparameter, fixed_hyperparameter


def test_the_value_of_the_greatest_mean_is_chosen_and_the_grid_stored():
    choice = choose_hyperparameter((1, 10, 100), np.array([[0.5, 0.7], [0.9, 0.5], [0.6, 0.6]]))
    assert choice.hyperparameter == 10
    np.testing.assert_allclose(choice.tried, [0.6, 0.7, 0.6])
    np.testing.assert_array_equal(choice.hyperparameters, [1, 10, 100])
    assert choice.chosen == "10 (flat)"


def test_a_diverged_order_counts_as_an_accuracy_of_zero():
    """Without it 0.9 would be the greatest mean; with it that is 0.45, below 0.5."""
    choice = choose_hyperparameter((1, 10), np.array([[0.5, 0.5], [0.9, np.nan]]))
    assert choice.hyperparameter == 1
    np.testing.assert_allclose(choice.tried, [0.5, 0.45])
    assert choice.chosen == "1 (edge of the grid)"


def test_a_diverged_order_counts_less_than_every_criterion_if_these_are_negative():
    """Minus a loss: a diverged run counts as twice the worst, -1.8."""
    choice = choose_hyperparameter((1, 10), np.array([[-0.5, -0.4], [np.nan, np.nan]]))
    assert choice.hyperparameter == 1
    worst = np.array([[np.nan, -0.1], [-0.9, -0.9]])
    choice = choose_hyperparameter((1, 10), worst)
    assert choice.hyperparameter == 10
    np.testing.assert_allclose(choice.tried, [-0.95, -0.9])


def test_a_grid_with_ties_over_all_seeds_is_flat_and_has_no_edge():
    """Ties are those of `tied_candidates`, which has its own test."""
    near = choose_hyperparameter((1, 10), np.array([[0.6, 0.5], [0.5, 0.56]]))
    assert (near.hyperparameter, near.chosen) == (1, "1 (flat)")
    choice = choose_hyperparameter((1, 10), np.array([[0.6, 0.52], [0.5, 0.5]]))
    assert choice.chosen == "1 (edge of the grid)"
    # One that is worse is enough.
    worse = np.array([[0.6, 0.5], [0.5, 0.56], [0.2, 0.1]])
    assert choose_hyperparameter((1, 10, 100), worse).chosen == "1 (edge of the grid)"
    # One seed has only equal values.
    assert choose_hyperparameter((1, 10), np.full((2, 1), 0.4)).chosen == "1 (flat)"
    assert (
        choose_hyperparameter((1, 10), np.array([[0.4], [0.39]])).chosen == "1 (edge of the grid)"
    )
    assert fixed_hyperparameter(3.0).chosen == "3"


def test_the_least_of_equal_values_is_chosen_and_zero_without_a_grid():
    assert choose_hyperparameter((3, 5), np.full((2, 2), np.nan)).hyperparameter == 3
    nothing = fixed_hyperparameter()
    assert (nothing.hyperparameter, len(nothing.tried)) == (0, 0)
