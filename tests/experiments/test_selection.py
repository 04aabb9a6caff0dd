"""The rule by which strengths are chosen, on numbers worked out by hand."""

import numpy as np

from experiments.continual.selection import choose_strength, fixed_strength


def test_the_greatest_mean_is_chosen_and_the_grid_kept():
    choice = choose_strength((1, 10, 100), np.array([[0.5, 0.7], [0.9, 0.5], [0.6, 0.6]]))
    assert choice.strength == 10
    np.testing.assert_allclose(choice.tried, [0.6, 0.7, 0.6])
    np.testing.assert_array_equal(choice.strengths, [1, 10, 100])
    assert not choice.at_the_edge


def test_an_order_that_diverges_counts_as_none_right():
    """Without it .9 would be the greatest mean; with it that is .45, below .5."""
    choice = choose_strength((1, 10), np.array([[0.5, 0.5], [0.9, np.nan]]))
    assert choice.strength == 1
    np.testing.assert_allclose(choice.tried, [0.5, 0.45])
    assert choice.at_the_edge


def test_of_equals_the_least_and_of_nothing_nothing():
    assert choose_strength((3, 5), np.full((2, 2), np.nan)).strength == 3
    nothing = fixed_strength()
    assert (nothing.strength, len(nothing.tried)) == (0, 0)
