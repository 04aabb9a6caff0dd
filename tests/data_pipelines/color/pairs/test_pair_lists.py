"""Pairs by name, number and list, and their groups."""

import pytest

from everlight_data.color.pairs.pair_lists import match_images, read_groups
from everlight_data.errors import DataError


@pytest.mark.parametrize(
    ("main", "second", "rows"),
    [
        (("b", "a"), ("a", "b"), [[0, 1], [1, 0]]),
        (("C_5DSR_001", "C_5DSR_002"), ("N_D810_002", "N_D810_001"), [[0, 1], [1, 0]]),
        (("IMG_9", "IMG_10"), ("IMG_10", "IMG_9"), [[0, 1], [1, 0]]),
    ],
)
def test_images_of_equal_names_or_numbers_are_pairs(main, second, rows):
    assert match_images(main, second, None).tolist() == rows


@pytest.mark.parametrize(
    ("main", "second", "message"),
    [
        (("a", "b", "c"), ("a", "b"), r"^1 of 3 images of the main camera \(c\) have no partner"),
        (("a", "x"), ("a", "y"), r"main camera \(x\) and 1 of 2 images of the second camera \(y\)"),
        (("A_1", "B_1"), ("C_1", "D_2"), "two images of the main camera have one name or number"),
    ],
)
def test_images_without_a_partner_are_named(main, second, message):
    with pytest.raises(DataError, match=message):
        match_images(main, second, None)


def test_a_list_gives_the_pairs_in_its_order(tmp_path):
    path = tmp_path / "list.csv"
    path.write_text("main,second\nb,z\na,x\n")
    assert match_images(("a", "b", "c"), ("x", "y", "z"), path).tolist() == [[1, 2], [0, 0]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [("a,x\nb,x", "x in two pairs"), ("a,q", "no image 'q'"), ("a,x,x", "3 cells")],
)
def test_a_list_of_other_images_is_refused(tmp_path, rows, message):
    path = tmp_path / "list.csv"
    path.write_text(f"main,second\n{rows}\n")
    with pytest.raises(DataError, match=message):
        match_images(("a", "b"), ("x", "y"), path)


@pytest.mark.parametrize(
    ("main", "second", "view"),
    [(("a", "b", "a"), ("x", "y"), "main"), (("a", "b"), ("y", "x", "x"), "second")],
)
def test_a_listed_name_of_several_images_is_refused(tmp_path, main, second, view):
    """The first image of the name was taken."""
    path = tmp_path / "list.csv"
    path.write_text("main,second\nb,y\n")
    assert len(match_images(main, second, path)) == 1
    path.write_text("main,second\nb,y\na,x\n")
    with pytest.raises(DataError, match=f"name of several images of the {view} camera; give each"):
        match_images(main, second, path)


def test_groups_are_words_or_blocks(tmp_path):
    assert read_groups(None, 7, 3).tolist() == [0, 0, 0, 1, 1, 1, 2]
    path = tmp_path / "groups.txt"
    path.write_text("park\nhall\npark\n")
    assert read_groups(path, 3, 1).tolist() == [1, 0, 1]
    with pytest.raises(DataError, match=r"groups.txt has 3 words for 4 pairs"):
        read_groups(path, 4, 1)
