"""Domain-incremental streams as options: what tasks have, what is refused, and one run."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

from everlight.continual.methods.registry import METHODS
from everlight.metrics import backward_transfer, forgetting
from everlight_data.errors import DataError
from everlight_data.images.digits import load_digits
from everlight_experiments.continual.benchmarks.run_data import PerRunData, RunData, SequenceId
from everlight_experiments.images.benchmark import compose
from everlight_experiments.images.config import DIGITS
from tests.experiments.command_runs import arrays_of, run

COUNT = 1797


def benchmark_of(stream, **changes):
    config = replace(DIGITS, stream=stream, tasks=(4,), **changes)
    benchmark = compose(config)
    assert benchmark.setting.name == "domain-incremental"
    return benchmark


def inputs_of(benchmark, index):
    """Return network inputs of images, in evaluation."""
    naive = METHODS["naive"]
    data = RunData(benchmark.data.shared(naive), PerRunData(jnp.zeros(10, int), jnp.float32(0)))
    setup, _ = benchmark.training.setup(naive, data)
    return np.asarray(jax.jit(lambda i: setup.gather(i, None))(jnp.asarray(index)))


def test_rotated_tasks_have_the_angles_of_scipy():
    benchmark = benchmark_of("rotated", pixels="unit")
    start, turned = (inputs_of(benchmark, [5 + task * COUNT])[0, ..., 0] for task in (0, 2))
    expected = ndimage.rotate(start, 90, reshape=False, order=1)
    np.testing.assert_allclose(turned, expected, atol=1e-5)


def drawn_inputs(stream, order, index):
    """Return inputs of a run of one seed, where every seed draws its stream."""
    benchmark, naive = benchmark_of(stream, pixels="unit", stream_draws="seeded"), METHODS["naive"]
    sequence = benchmark.data.sequence(naive, SequenceId("evaluation", 0, order))
    data = benchmark.run_data(naive, sequence, 1.0, order)
    gather = jax.jit(lambda i, d: benchmark.training.setup(naive, d)[0].gather(i, None))
    return np.asarray(gather(jnp.asarray(index), data))[..., 0]


def test_every_seed_draws_permutations_of_its_own():
    index = [5, 5 + COUNT, 5 + 2 * COUNT]
    first, again, other = (drawn_inputs("permuted", order, index) for order in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    for inputs in (first, other):
        # Every task has the pixels of the image, in another order.
        ordered = np.sort(inputs.reshape(3, -1))
        np.testing.assert_array_equal(ordered, np.tile(ordered[0], (3, 1)))
        assert not (inputs[1] == inputs[2]).all()
    np.testing.assert_array_equal(first[0], other[0])
    assert not (first[1] == other[1]).all()


def test_labels_are_permuted_for_every_seed():
    benchmark = benchmark_of("permuted-labels", stream_draws="seeded")
    naive, images = METHODS["naive"], load_digits()
    maps = []
    for order in (0, 1):
        train = benchmark.data.sequence(naive, SequenceId("evaluation", 0, order)).tasks.train
        index, labels = np.asarray(train.index)[1] % COUNT, np.asarray(train.labels)[1, :, 0]
        maps.append([labels[images.train_labels[index] == c][0] for c in range(10)])
        assert sorted(maps[-1]) == list(range(10))
    assert maps[0] != maps[1]


def test_few_images_of_a_class_give_one_for_validation():
    """A tenth of eight images, rounded down, is none."""
    benchmark = benchmark_of("permuted", per_class=(8, 5))
    tested = benchmark.data.sequence(METHODS["naive"], SequenceId("validation", 0, 0))
    assert np.asarray(tested.test_member & tested.test.mask).sum(axis=1).tolist() == [10] * 4


def test_validation_images_are_no_training_images_and_no_test_images():
    benchmark, images = benchmark_of("rotated"), load_digits()
    learned, tested = (
        benchmark.data.sequence(METHODS["naive"], SequenceId(use, 0, 0))
        for use in ("evaluation", "validation")
    )
    train = {*np.asarray(learned.tasks.train.index).ravel().tolist()}
    valid = {*np.asarray(tested.test.index)[np.asarray(tested.test.mask)].tolist()}
    assert not train & valid
    assert max(index % COUNT for index in valid) < len(images.train_labels)
    assert len(train) + len(valid) == 4 * len(images.train_labels)


def test_domains_of_a_split_are_tasks_of_the_classes_in_the_order_of_the_seed():
    """Every sample is in the task that learns its class, under the class's place in it."""
    images = load_digits()
    split = compose(replace(DIGITS, stream="split-domains", tasks=(5,)))
    classes = compose(replace(DIGITS, tasks=(5,)))
    assert split.setting.name == "domain-incremental"
    assert "disjoint classes" not in split.setting.capabilities
    assert "5 tasks of 2 classes, labelled by position in their task" in split.data.counts
    for order in (0, 1):
        domains, by_class = (
            benchmark.data.sequence(METHODS["naive"], SequenceId("evaluation", 0, order))
            for benchmark in (split, classes)
        )
        train, learned = domains.tasks.train, by_class.tasks.train
        np.testing.assert_array_equal(train.index, learned.index)
        for task in range(5):
            mask = np.asarray(train.mask[task])
            pairs = {
                *zip(
                    images.train_labels[np.asarray(train.index[task])[mask]].tolist(),
                    np.asarray(train.labels[task])[mask, 0].tolist(),
                    strict=True,
                )
            }
            assert sorted(label for _, label in pairs) == [0, 1]
    # Inputs are the images themselves, and the network has an output per label.
    np.testing.assert_array_equal(inputs_of(split, [5]), inputs_of(classes, [5]))
    data = split.run_data(METHODS["naive"], domains)
    setup, _ = split.training.setup(METHODS["naive"], data)
    assert jax.eval_shape(setup.init, jax.random.key(0))[0]["head"]["kernel"].shape[-1] == 2


def test_shots_and_noise_are_in_the_training_samples_alone():
    images = load_digits()
    config = replace(DIGITS, shots=5, label_noise=0.25)
    benchmark = compose(config)
    sequence = benchmark.data.sequence(METHODS["naive"], SequenceId("evaluation", 0, 0))
    train, test = sequence.tasks.train, sequence.test
    sizes = np.asarray(train.mask).sum(axis=1)
    assert sizes[1:].tolist() == [10] * 4
    assert sizes[0] > 200
    index, labels = np.asarray(train.index)[train.mask], np.asarray(train.labels)[train.mask][:, 0]
    wrong = np.mean(images.train_labels[index] != labels)
    assert 0.15 < wrong < 0.35
    tested = np.asarray(test.index)[test.mask] - len(images.train_labels)
    np.testing.assert_array_equal(images.test_labels[tested], test.labels[test.mask][:, 0])
    assert "5 images per class after the first" in benchmark.data.counts


def test_tasks_of_unequal_sizes_have_equal_weights_in_words():
    uneven, even = (compose(replace(DIGITS, tasks=(tasks,))).data.counts for tasks in (4, 5))
    assert uneven.endswith("; 4 tasks of 2 or 3 classes, with equal weights in the accuracy")
    assert even.endswith("; 5 tasks of 2 classes")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--shots 5", "--stream rotated brings no new labels; leave out --shots"),
        ("--setting online", "--stream rotated is domain-incremental; leave out --setting"),
        (
            "--tasks 5 5",
            "--stream rotated has equally many classes in every task; give --tasks one",
        ),
        ("--metrics confusion", "--stream rotated has no --metrics of classes"),
    ],
)
def test_incompatible_options_of_streams_are_refused(words, message, tmp_path):
    with pytest.raises(DataError, match=message):
        run(tmp_path, "digits", "--stream", "rotated", *words.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--tasks 4", "--tasks 4 of 10 classes; give a number of tasks that divides them"),
        ("--cycles 2", "has the same labels in every task; leave out --cycles"),
        (
            "--stream-draws seeded",
            "draws permutations or angles; give --stream permuted or rotated",
        ),
    ],
)
def test_incompatible_options_of_a_split_into_domains_are_refused(words, message, tmp_path):
    with pytest.raises(DataError, match=message):
        run(tmp_path, "digits", "--stream", "split-domains", *words.split())


def test_a_run_has_a_matrix_over_all_tasks(tmp_path):
    words = "digits --stream rotated --tasks 3 --epochs 1 --seeds 1 --methods naive --net linear"
    report = run(tmp_path, *words.split())
    matrix = arrays_of(report)["domain-incremental/naive/accuracy by task"][0]
    # An angle that was not seen is predicted worse than the newest one.
    assert matrix[0, 0] > matrix[0, 2] + 0.2
    assert "3 tasks of all classes (rotated)" in report.read_text()


def test_a_recurring_class_counts_once(tmp_path):
    """After the third of four tasks, of two groups of classes, two accuracies are averaged."""
    words = "digits --tasks 2 --cycles 2 --epochs 1 --seeds 1 --methods joint --net linear"
    report = run(tmp_path, *words.split())
    results = arrays_of(report)
    for name in ("naive", "joint"):
        of = f"class-incremental/{name}/accuracy"
        matrix, curve = results[f"{of} by task"][0], results[of][0]
        assert np.isnan(matrix[:, 2:]).all()
        np.testing.assert_allclose(curve[1:], matrix[1:, :2].mean(axis=1))
        assert np.isfinite(curve[-1])
    naive = results["class-incremental/naive/accuracy by task"][0]
    # Learned again, the first group is known and the second forgotten.
    assert naive[2, 0] > naive[1, 0] + 0.2
    page = report.read_text()
    assert "the same test images, which count once" in page
    assert "its test set is an earlier task" in page
    assert np.isnan(forgetting(jnp.asarray(naive)))
    assert np.isnan(backward_transfer(jnp.asarray(naive)))


def test_steps_are_not_evaluated_where_classes_recur():
    config = replace(DIGITS, cycles=2, protocol=replace(DIGITS.protocol, evaluate_steps=5))
    with pytest.raises(DataError, match="--cycles 2 with --evaluate-steps, whose scores"):
        compose(config)


def test_classes_recur_with_other_images_in_repeated_tasks():
    config = replace(DIGITS, tasks=(5,), cycles=2)
    result = compose(config)
    assert "disjoint classes" not in result.setting.capabilities
    assert (
        "10 tasks of 2 classes, each class in 2 of them with other training" in result.data.counts
    )
    train = result.data.sequence(METHODS["naive"], SequenceId("evaluation", 0, 0)).tasks.train
    index = np.asarray(train.index)[np.asarray(train.mask)]
    assert len({*index.tolist()}) == len(index)
    with pytest.raises(DataError, match=r"--cycles 999; a class has \d+ images"):
        compose(replace(config, cycles=999), setting="online")
