"""Grids of named values: read, combined, and the edges on which the best one lies."""

import pytest

from everlight_experiments.commands.value_grids import combinations, edges_of, label_of, read_grid


def test_all_combinations_are_made_of_literals_or_texts():
    result = list(combinations(read_grid(["learning_rate=.1,.2", "first-epochs=(1,2),None"])))
    assert [item["learning-rate"] for item in result] == [0.1, 0.1, 0.2, 0.2]
    assert [item["first-epochs"] for item in result] == [(1, 2), None] * 2
    words = read_grid(["dtype=float32,bfloat16"])
    assert words == {"dtype": ["float32", "bfloat16"]}
    assert label_of(result[0]) == "learning-rate=0.1, first-epochs=(1, 2)"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["rate"], "'rate'; give NAME=VALUE"),
        (["rate="], "'rate='; give NAME=VALUE,... with commas"),
        (["a-b=.1", "a_b=.2"], "has a-b twice"),
        (["rate=0.1,0.1"], "'rate=0.1,0.1' has a value twice"),
    ],
)
def test_other_texts_are_refused(texts, message):
    with pytest.raises(ValueError, match=message):
        read_grid(texts)


def test_the_edge_of_what_was_tried_is_a_number_s():
    changes = [{"rate": rate, "remat": switch} for rate, switch in ((0.1, False), (0.2, True))]
    assert edges_of(changes, 1) == ["rate"]
