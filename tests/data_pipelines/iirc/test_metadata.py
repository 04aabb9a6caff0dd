"""IIRC's hierarchies and task orders against the paper and the authors' package."""

import json
from importlib import resources
from itertools import chain

import numpy as np
import pytest

from everlight.scenarios.iirc import SUBCLASS_SHARE, SUPERCLASS_CAP, SUPERCLASS_SHARE, iirc
from everlight_data.errors import DataError
from everlight_data.iirc import metadata
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32
from everlight_data.procedural.render import World
from everlight_data.procedural.world import class_names

TREES = {"tree": ("oak", "elm", "fir"), "bird": ("wren", "duck"), "fish": ("cod", "eel")}
DATA = (*chain.from_iterable(TREES.values()), *(f"thing {i}" for i in range(20)))


def sizes(configuration):
    return [len(task) for task in configuration.tasks]


def check_order(configuration, data_classes, hierarchy, first):
    """Check that every class occurs once, and every superclass before its classes."""
    task_of = {name: t for t, task in enumerate(configuration.tasks) for name in task}
    assert sorted(chain.from_iterable(configuration.tasks)) == sorted([*hierarchy, *data_classes])
    assert len(configuration.tasks[0]) == first
    assert set(configuration.tasks[0]) <= set(hierarchy)
    for superclass, members in hierarchy.items():
        assert all(task_of[superclass] < task_of[member] for member in members)


@pytest.mark.parametrize(
    ("name", "count", "tasks", "first", "others", "left_out", "fraction"),
    [
        ("iirc_cifar100", 10, 22, 10, 5, 0, 0.1),
        ("iirc_imagenet_full", 5, 35, 63, 30, 2, 0.04),
        ("iirc_imagenet_lite", 5, 10, 63, 30, 752, 0.04),
        ("incremental_cifar100", 10, 11, 50, 5, 0, 0.1),
        ("incremental_imagenet_full", 5, 29, 160, 30, 0, 0.04),
        ("incremental_imagenet_lite", 5, 10, 160, 30, 570, 0.04),
    ],
)
def test_official_metadata_are_the_paper_s(name, count, tasks, first, others, left_out, fraction):
    pytest.importorskip("iirc")
    hierarchy, configurations, result = metadata.official_metadata(name)
    assert len(configurations) == count
    for configuration in configurations:
        assert sizes(configuration) == [first] + [others] * (tasks - 1)
        assert len(configuration.left_out) == left_out
        if name.startswith("iirc"):
            assert set(configuration.tasks[0]) <= set(hierarchy)
    groups = {"iirc_cifar100": 15, "iirc_imagenet_full": 85, "iirc_imagenet_lite": 85}
    assert len(hierarchy) == groups.get(name, 0)
    assert result == fraction


def test_the_library_shares_samples_as_the_package_does():
    pytest.importorskip("iirc")
    path = resources.files("iirc") / "metadata" / "dataset_configurations.json"
    for data in ("iirc_cifar100", "iirc_imagenet"):
        official = json.loads(path.read_text("utf-8"))[data]
        assert official["superclass_data_pct"] == SUPERCLASS_SHARE
        assert official["subclass_data_pct"] == SUBCLASS_SHARE
        assert official["superclass_sampling_size_cap"] == SUPERCLASS_CAP
        assert official["posttask_valid_train_ratio"] == official["intask_valid_train_ratio"]


def test_the_lite_configuration_makes_a_sequence_of_all_imagenet():
    pytest.importorskip("iirc")
    hierarchy, configurations, fraction = metadata.official_metadata("iirc_imagenet_lite")
    lite = configurations[0]
    classes = [n for n in (*chain(*lite.tasks), *lite.left_out) if n not in hierarchy]
    # Its greatest superclass has 118 subclasses, of whose 46 training samples 8 / 118 * 40% is one.
    labels = np.repeat(np.arange(1000), 50)
    created = iirc(labels, np.arange(1000), classes, hierarchy, lite, valid_fraction=fraction)
    first = created.sequence.tasks.train
    number = created.class_names.index("dog")
    assert np.sum(np.asarray(first.labels[0, :, 0]) == number) == 118
    assert created.sequence.tasks.id.shape == (10,)


def test_tiny_imagenet_has_its_own_orders(real_data):
    pytest.importorskip("iirc")
    real_data("tiny_imagenet_32x32")
    hierarchy, configurations, fraction = metadata.tiny_imagenet_metadata()
    names = load_tiny_imagenet_32(classes=[0, 199]).class_names
    data_classes = [n for task in configurations[0].tasks for n in task if n not in hierarchy]
    assert set(names) < set(data_classes)
    assert len(data_classes) == 200
    assert len(hierarchy) == 34
    assert len(hierarchy["dog"]) == 6
    assert sum(map(len, hierarchy.values())) == 124
    assert all(len(members) >= 2 for members in hierarchy.values())
    for configuration in configurations:
        check_order(configuration, data_classes, hierarchy, 14)
        assert sizes(configuration) == [14] + [5] * 44
    assert len(set(configurations)) == 10
    assert fraction == 0.1


def test_tiny_imagenet_names_are_checked(tmp_path, monkeypatch):
    folder = tmp_path / "tiny_imagenet_32x32"
    folder.mkdir()
    (folder / "classes.json").write_text('{"wnids": ["n01443537"], "names": []}')
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    with pytest.raises(DataError, match="lists wnids and names of equal length"):
        metadata.tiny_imagenet_metadata()


def test_the_procedural_world_is_a_benchmark():
    world = World(superclasses=4, subclasses=3)
    hierarchy, configurations, _ = metadata.procedural_metadata(world, count=3)
    names = class_names(world)
    assert [len(members) for members in hierarchy.values()] == [3] * 4
    for shape, members in hierarchy.items():
        assert all(name.endswith(f" {shape}") for name in members)
    for configuration in configurations:
        check_order(configuration, names, hierarchy, 3)
        assert sizes(configuration)[1:] == [5, 5, 3]
    labels = np.tile(np.arange(12), 20)
    created = iirc(labels, np.arange(12), names, hierarchy, configurations[0])
    assert created.sequence.tasks.classes.shape == (4, 16)


def test_orders_are_drawn_in_the_paper_s_style():
    orders = [metadata.draw_configuration(DATA, TREES, 2, seed) for seed in range(20)]
    for order in orders:
        check_order(order, DATA, TREES, 2)
        assert sizes(order) == [2, 5, 5, 5, 5, 5, 3]
    assert len(set(orders)) == 20
    assert orders[3] == metadata.draw_configuration(DATA, TREES, 2, 3)
    assert {order.tasks[0][0] for order in orders} == set(TREES)


def test_impossible_orders_are_refused():
    with pytest.raises(DataError, match="first=4; give 1 to 3"):
        metadata.draw_configuration(DATA, TREES, 4, 0)
    # After the first superclass a task would hold its two subclasses and the other superclass.
    small = {"tree": ("oak", "elm"), "bird": ("wren", "duck")}
    with pytest.raises(DataError, match="increase first"):
        metadata.draw_configuration(tuple(chain(*small.values())), small, 1, 0)
