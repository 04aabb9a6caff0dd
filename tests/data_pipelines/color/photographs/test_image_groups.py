"""Groups of images by a list or by words, and folds of whole groups."""

import numpy as np
import pytest

from everlight_data.color.photographs.camera_images import (
    CameraImages,
    split_across,
    split_in_folds,
)
from everlight_data.color.photographs.image_groups import (
    group_folds,
    read_assigned_folds,
    read_image_groups,
)
from everlight_data.errors import DataError

WORDS = [f"n{row}" for row in range(49)]
NAMES = {"A1": ("x", "y", "z"), "B2": ("x", "w")}
LIST = """image,group,camera
x,hall,A1
y,park,A1
z,hall,A1
w,hall,B2
x,pier,B2
x,elsewhere,C3
"""


def test_a_list_groups_images_of_several_cameras(tmp_path):
    path = tmp_path / "groups.csv"
    path.write_text(LIST)
    groups = read_image_groups(path, NAMES)
    words = {"A1": ["hall", "park", "hall"], "B2": ["pier", "hall"]}
    flat = np.concatenate([groups[camera] for camera in NAMES])
    expected = np.concatenate([words[camera] for camera in NAMES])
    np.testing.assert_array_equal(flat[:, None] == flat, expected[:, None] == expected)


def test_one_camera_s_groups_may_be_words(tmp_path):
    path = tmp_path / "groups.txt"
    path.write_text("park hall\npark")
    (groups,) = read_image_groups(path, {"A1": NAMES["A1"]}).values()
    assert groups.tolist() == [1, 0, 1]
    with pytest.raises(DataError, match=r"groups\.txt has 3 words for 2 images"):
        read_image_groups(path, {"B2": NAMES["B2"]})
    with pytest.raises(DataError, match="no list of 2 cameras"):
        read_image_groups(path, NAMES)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("x,hall,A1", "v,hall,A1", "has no group of 1 images by A1: x"),
        ("x,hall,A1", "z,park,A1\nx,hall,A1", "puts z of A1 into two groups"),
        ("x,hall,A1", "x,,A1", "has an empty group for x of A1"),
        (",B2", ",D4", "has no images by B2, but by A1, C3, D4"),
        ("camera", "model", "lacks the columns camera"),
    ],
)
def test_lists_that_do_not_group_every_image_are_refused(tmp_path, old, new, message):
    path = tmp_path / "groups.csv"
    path.write_text(LIST.replace(old, new))
    with pytest.raises(DataError, match=message):
        read_image_groups(path, NAMES)


def test_two_images_of_one_name_have_no_group(tmp_path):
    path = tmp_path / "groups.csv"
    path.write_text(LIST)
    with pytest.raises(DataError, match="A1 has two images x; rename one"):
        read_image_groups(path, {"A1": ("x", "y", "x")})


def grouped(rng, count, groups):
    images = rng.uniform(0.1, 0.9, (count, 4, 4, 3)).astype(np.float32)
    names = tuple(f"n{row}" for row in range(count))
    masks, truth = np.ones((count, 4, 4), np.float32), images[:, 0, 0]
    return CameraImages(images, masks, truth, names, groups=np.array(groups))


def test_folds_of_a_camera_hold_whole_groups(rng):
    groups = [0, 1, 1, 2, 2, 2, 3, 4, 4, 0]
    (data,) = split_in_folds({"A1": grouped(rng, 10, groups)}, seed=3).values()
    assert len({len(fold) for fold in data.folds}) == 1
    tested = [{*fold.tolist()} for fold in data.folds]
    assert sorted(row for rows in tested for row in rows) == list(range(10))
    owners = [{groups[row] for row in rows} for rows in tested]
    assert sum(map(len, owners)) == 5
    assert list(data.names) == [f"n{row}" for row in range(10)]
    assert "left out" not in data.note


def test_across_cameras_images_keep_their_groups(rng):
    cameras = {"A1": grouped(rng, 3, [5, 7, 5]), "B2": grouped(rng, 2, [7, 9])}
    data = split_across(cameras)["B2"]
    assert data.groups.tolist() == [5, 7, 5, 7, 9]
    assert data.folds[0].tolist() == [3, 4]


@pytest.mark.parametrize("seed", [0, 1])
def test_drawn_folds_have_whole_groups(seed, rng):
    groups = rng.integers(0, 9, 40)
    folds = group_folds(groups, None, seed, WORDS[:40])
    owners = [set(groups[fold].tolist()) for fold in folds]
    assert len(folds) == 3
    assert sum(map(len, owners)) == len(set().union(*owners)) == len(np.unique(groups))
    assert set(folds.ravel().tolist()) == set(range(40))


def test_given_folds_are_taken_and_may_not_divide_a_group(tmp_path):
    path = tmp_path / "folds.txt"
    path.write_text("1 1 2 2 3 3 3")
    assigned = read_assigned_folds(path, 7)
    folds = group_folds(np.array([0, 0, 1, 1, 2, 3, 3]), assigned, 0, WORDS[:7])
    assert [sorted({*fold.tolist()}) for fold in folds] == [[0, 1], [2, 3], [4, 5, 6]]
    with pytest.raises(DataError, match=r"members of one group \(n1, n2\)"):
        group_folds(np.array([0, 1, 1, 2, 3, 4, 5]), assigned, 0, WORDS[:7])


def test_too_few_groups_are_refused():
    with pytest.raises(DataError, match="need 3 groups or more, and there are only 2"):
        group_folds(np.array([0, 0, 1, 1]), None, 0, WORDS[:4])


def test_drawn_folds_balance_members():
    sizes = [10, 10, 6, 4, 1, 1, 1]
    folds = group_folds(np.repeat(np.arange(7), sizes), None, 0, WORDS)
    assert [len({*fold.tolist()}) for fold in folds] == [11, 11, 11]


@pytest.mark.parametrize("sizes", [(36, 3, 3, 3), (43, 1, 1)])
def test_a_group_that_leaves_too_few_others_is_refused(sizes):
    with pytest.raises(DataError, match=f"the largest group has {sizes[0]}"):
        group_folds(np.repeat(np.arange(len(sizes)), sizes), None, 0, WORDS)
