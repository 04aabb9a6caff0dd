"""Splits, overlap and labels, by hand and sample by sample against the authors' package."""

import pickle

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everlight.scenarios.iirc import TaskConfiguration, iirc
from everlight_data.iirc.metadata import official_metadata
from tests.scenarios.iirc_reference import SHARES, Reference, compare, samples

# Each class has twenty training samples; the classes take turns.
CLASSES = ("oak", "whale", "elm", "lamp")
TREES = {"tree": ("oak", "elm")}
TASKS = TaskConfiguration((("tree",), ("lamp", "elm"), ("oak", "whale")))
TRAIN, TEST = np.tile(np.arange(4), 20), np.array([3, 2, 1, 0])


def of_class(place, first, last, *labels):
    """Return the class's samples from `first` to before `last`, with these labels."""
    return {index: set(labels) for index in range(place + 4 * first, place + 4 * last, 4)}


def test_a_small_hierarchy_by_hand():
    full = iirc(TRAIN, TEST, CLASSES, TREES, TASKS)
    assert full.class_names == ("tree", "lamp", "elm", "oak", "whale")
    tree, lamp, elm, oak, whale = range(5)
    # Twice 2 of 20 samples validate; of the other 16, int(6.4) are trees' and the last int(12.8)
    # are the subclass's own.
    train = full.sequence.tasks.train
    assert samples(train, 0) == of_class(0, 4, 10, tree) | of_class(2, 4, 10, tree)
    assert samples(train, 1) == of_class(3, 4, 20, lamp) | of_class(2, 8, 20, elm)
    assert samples(train, 2) == of_class(0, 8, 20, oak) | of_class(1, 4, 20, whale)
    # Two samples give int(0.8) to the trees, and the last int(1.6) to the subclass.
    valid = full.sequence.tasks.valid
    assert samples(valid, 0) == {}
    assert samples(valid, 1) == of_class(3, 0, 2, lamp) | of_class(2, 1, 2, elm)
    assert samples(full.post_task.test) == {
        i: [{tree, oak}, {whale}, {tree, elm}, {lamp}][i % 4] for i in range(8, 16)
    }
    assert samples(full.sequence.test) == {
        80: {lamp},
        81: {tree, elm},
        82: {whale},
        83: {tree, oak},
    }
    member = [[False, True, False, True], [True, True, False, False], [False, False, True, True]]
    np.testing.assert_array_equal(full.sequence.test_member, member)
    np.testing.assert_array_equal(full.sequence.class_task, [0, 1, 1, 2, 2])
    np.testing.assert_array_equal(full.sequence.tasks.classes.sum(axis=1), [1, 2, 2])
    np.testing.assert_array_equal(full.sequence.tasks.id, [0, 1, 2])


def test_a_left_out_subclass_is_seen_as_its_superclass():
    tasks = TaskConfiguration((("tree",), ("oak", "whale")), left_out=("elm", "lamp"))
    full = iirc(TRAIN, TEST, CLASSES, TREES, tasks)
    tree, oak, whale = range(3)
    trees = of_class(0, 4, 10, tree) | of_class(2, 4, 10, tree)
    assert samples(full.sequence.tasks.train, 0) == trees
    assert samples(full.sequence.test) == {81: {tree}, 82: {whale}, 83: {tree, oak}}


def test_samples_have_all_labels_of_one_task_at_once():
    tasks = TaskConfiguration((("tree", "oak"), ("elm", "lamp", "whale")))
    tree, oak = range(2)
    first = samples(iirc(TRAIN, TEST, CLASSES, TREES, tasks).sequence.tasks.train, 0)
    assert first == of_class(0, 4, 20, tree, oak) | of_class(2, 4, 10, tree)


def with_tasks(*tasks, left_out=()):
    return {"configuration": TaskConfiguration(tasks, left_out)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hierarchy": {"tree": ("oak", "elm", "fir")}}, "'tree' has 'fir', which is not a class"),
        ({"hierarchy": TREES | {"wood": ("elm",)}}, "'elm' is under 'tree' and 'wood'"),
        ({"hierarchy": {"lamp": ("oak",)}}, "superclass 'lamp' is also a class of the data"),
        ({"data_classes": ("oak", "oak", "elm", "lamp")}, "has 'oak' more than once"),
        (with_tasks(("tree", "pine")), "task 0 introduces 'pine', which is neither"),
        (with_tasks(("tree",), ("oak", "tree")), "'tree' is introduced in task 0 and in task 1"),
        (with_tasks(("tree",), ("oak", "elm", "lamp")), "'whale' must .* it is neither"),
        (with_tasks(("tree", *CLASSES), left_out=("elm",)), "'elm' must .* it is both"),
        (
            with_tasks(("whale", "elm"), ("tree",), ("oak", "lamp")),
            "task 0 introduces 'elm' before its superclass 'tree', in task 1",
        ),
        (with_tasks(("tree", *CLASSES), ()), "task 1 introduces no class"),
        ({"train_labels": np.append(TRAIN, 4)}, "train_labels holds 4; give 0 to 3"),
        ({"test_labels": np.array([-1])}, "test_labels holds -1"),
        ({"train_labels": TRAIN[:8]}, "class 'tree' has no training samples"),
        ({"test_labels": np.array([0, 1])}, "task 1 has no samples in test_labels"),
    ],
)
def test_bad_input_is_named(change, message):
    options = {
        "train_labels": TRAIN,
        "test_labels": TEST,
        "data_classes": CLASSES,
        "hierarchy": TREES,
        "configuration": TASKS,
    }
    with pytest.raises(ValueError, match=message):
        iirc(**options | change)


# --- The authors' package -----------------------------------------------------------------------


@pytest.fixture
def package():
    return pytest.importorskip("iirc.datasets_loader")


@pytest.fixture
def cifar(tmp_path, package, rng):
    """Write small CIFAR-100 files; an image has its index, and class 0 has 7 training images."""
    meta = package._get_tasks_configuration("incremental_cifar100")[1]
    names = sorted(meta)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    labels = {
        "train": rng.permutation(np.repeat(np.arange(100), [7, 8, *range(9, 58), *[20] * 49])),
        "test": rng.permutation(np.arange(300) % 100),
    }
    contents = {"meta": {b"fine_label_names": [name.encode() for name in names]}}
    for part, values in labels.items():
        data = np.zeros((len(values), 3, 1024), np.uint8)
        data[:, 0, 0], data[:, 1, 0] = np.divmod(np.arange(len(values)), 256)
        contents[part] = {b"data": data.reshape(-1, 3072), b"fine_labels": values.tolist()}
    for part, content in contents.items():
        (folder / part).write_bytes(pickle.dumps(content))
    return tmp_path, names, labels


def cifar_pair(package, cifar, benchmark, number, setting="incomplete"):
    folder, names, labels = cifar

    def index_of(split, image):
        high, low, _ = image.getpixel((0, 0))
        return 256 * high + low + (len(labels["train"]) if split == "test" else 0)

    splits, shares = package._get_dataset(benchmark, str(folder))
    tasks, numbers = package._get_tasks_configuration(benchmark, number, joint=setting == "joint")
    kind = "IIRC" if benchmark.startswith("iirc") else "CIL"
    reference = Reference(splits, shares, tasks, kind, index_of)
    hierarchy, configurations, fraction = official_metadata(benchmark)
    words = (labels["train"], labels["test"], names, hierarchy, configurations[number])
    actual = iirc(*words, setting, fraction)
    assert actual.class_names == tuple(numbers)
    return actual, reference


@pytest.mark.parametrize("benchmark", ["iirc_cifar100", "incremental_cifar100"])
@pytest.mark.parametrize("number", range(10))
def test_every_official_cifar_configuration_is_the_package_s(package, cifar, benchmark, number):
    compare(*cifar_pair(package, cifar, benchmark, number))


@pytest.mark.filterwarnings("ignore:complete_information_mode is set to True")
def test_complete_information_is_the_package_s(package, cifar):
    compare(*cifar_pair(package, cifar, "iirc_cifar100", 3, "complete"), complete=True)


@pytest.mark.filterwarnings("ignore:complete_information_mode is set to True")
def test_joint_is_the_package_s(package, cifar):
    compare(*cifar_pair(package, cifar, "iirc_cifar100", 0, "joint"), complete=True)


def test_incremental_joint_is_the_package_s(package, cifar):
    (sequence, *_), reference = cifar_pair(package, cifar, "iirc_cifar100", 5, "incremental joint")
    for name, part in (("train", sequence.tasks.train), ("intask_valid", sequence.tasks.valid)):
        reference.splits[name].enable_complete_information_mode()
        for task in range(22):
            reference.splits[name].load_tasks_up_to(task)
            assert samples(part, task) == reference(name)


@given(st.lists(st.integers(1, 120), min_size=1, max_size=14))
# One of ten subclasses is too small to validate, and the cap counts those that do.
@example([30] * 8 + [5])
@settings(max_examples=25)
def test_overlap_and_cap_round_as_in_the_package(sizes):
    pytest.importorskip("iirc")
    # One class is large, so that the superclass is never without samples.
    sizes = [60, *sizes]
    names = [f"fine {number}" for number in range(len(sizes))]
    content = {"train": [], "intask_valid": []}
    for name, size, end in zip(names, sizes, np.cumsum(sizes).tolist(), strict=True):
        held = int(0.1 * size)
        parts = [range(end - size + 2 * held, end), range(end - size, end - size + held)]
        for split, part in zip(content.values(), parts, strict=True):
            split.extend((place, ("coarse", name)) for place in part)
    tasks = [["coarse"], names]
    reference = Reference(content, SHARES, tasks, "IIRC", lambda _, place: place)
    configuration = TaskConfiguration(tuple(map(tuple, tasks)))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    actual = iirc(labels, np.array([0]), names, {"coarse": names}, configuration).sequence.tasks
    for name, part in (("train", actual.train), ("intask_valid", actual.valid)):
        for task in range(2):
            reference.splits[name].choose_task(task)
            assert samples(part, task) == reference(name)


def test_an_imagenet_tree_is_split_as_by_the_package(package, monkeypatch):
    """Its loader lists a made-up tree: 12 breeds, above the cap, 3 bears, an ungrouped class."""
    official, configurations, fraction = official_metadata("iirc_imagenet_full")
    grouped = {wnid for wnids in official.values() for wnid in wnids}
    introduced = [name for task in configurations[0].tasks for name in task]
    single = next(name for name in introduced if name not in grouped and name not in official)
    hierarchy = {"dog": official["dog"][:12], "bear": official["bear"][:3]}
    dogs, bears = map(list, hierarchy.values())
    classes = [*dogs, single, *bears]
    sizes = {"train": 60, "val": 3}

    def listed(path):
        split, wnid = path.split("/")[-2:]
        if wnid in sizes:
            return [name for name in (*grouped, *introduced) if name not in official]
        return [f"{i:02}.JPEG" for i in range(sizes[split])] if wnid in classes else []

    def index_of(split, path):
        _, wnid, file = path.rsplit("/", 2)
        place = int(file[:2])
        if split == "test":
            return len(classes) * sizes["train"] + classes.index(wnid) * sizes["val"] + place
        return classes.index(wnid) * sizes["train"] + place

    with monkeypatch.context() as patch:
        patch.setattr(package.os, "listdir", listed)
        splits, shares = package._get_dataset("iirc_imagenet_full", "root")
    tasks = [["dog"], ["bear", *dogs[:7]], [single, *dogs[7:], *bears]]
    reference = Reference(splits, shares, tasks, "IIRC", index_of)
    train, test = (np.repeat(np.arange(16), size) for size in sizes.values())
    configuration = TaskConfiguration(tuple(map(tuple, tasks)))
    compare(iirc(train, test, classes, hierarchy, configuration, "incomplete", fraction), reference)
