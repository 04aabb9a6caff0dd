"""The option --normalization first-task: statistics of each seed's first task, and no other's."""

import jax
import numpy as np
import pytest

from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_experiments.commands.load_net import load_net
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from tests.experiments.command_runs import loaded, run

SMALL = ("digits", "--epochs", "1", "--batch-size", "64", "--tasks", "5")
FIRST = (*SMALL, "--normalization", "first-task")
NAIVE = METHODS["naive"]


def gathered(benchmark, sequence):
    """Return inputs of all test samples, as the network reads them in a run on a sequence."""
    data = benchmark.run_data(NAIVE, sequence)
    setup, _ = benchmark.training.setup(NAIVE, data)
    return np.asarray(setup.gather(sequence.test.index, None))


def by_hand(values, sequence, axes):
    """Normalize test inputs in float64, by the samples that the first task trains on."""
    first = sequence.tasks.train
    index = np.asarray(first.index[0])[np.asarray(first.mask[0])]
    values = np.float64(values)
    mean, deviation = values[index].mean(axis=axes), values[index].std(axis=axes)
    return (values[np.asarray(sequence.test.index)] - mean) / deviation


def test_inputs_have_the_statistics_of_each_seed_s_first_task():
    benchmark, common = loaded(*FIRST), loaded(*SMALL)
    ids = [SequenceId("evaluation", 0, seed) for seed in (0, 1)]
    sequences = [benchmark.data.sequence(NAIVE, seq_id) for seq_id in ids]
    result = [gathered(benchmark, sequence) for sequence in sequences]
    for inputs, sequence in zip(result, sequences, strict=True):
        expected = by_hand(benchmark.data.images.images, sequence, axes=(0, 1, 2))
        np.testing.assert_allclose(inputs, expected, atol=1e-5)
    assert np.abs(result[0] - result[1]).max() > 0.01
    # The default statistics are those of all tasks, which are equal for all seeds.
    complete = [gathered(common, sequence) for sequence in sequences]
    np.testing.assert_array_equal(*complete)
    digits = benchmark.data.images
    trained = np.float64(digits.images[: len(digits.train_labels)])
    images = np.float64(digits.images[np.asarray(sequences[0].test.index)])
    np.testing.assert_allclose(complete[0], (images - trained.mean()) / trained.std(), atol=1e-5)


@pytest.fixture
def features(tmp_path, rng):
    values = rng.normal(size=(120, 6)) * np.repeat(np.arange(1, 7), 20)[:, None]
    values[:, 2] += 1e8  # So large that 32 bits round what varies.
    np.savez(tmp_path / "f.npz", features=values, labels=np.arange(120) // 20)
    return tmp_path / "f.npz"


def test_features_are_normalized_by_the_first_task(features):
    words = ["images", "--features", str(features), "--tasks", "3", "--normalization", "first-task"]
    benchmark = loaded(*words)
    with np.load(features) as arrays:
        current = arrays["features"]
    for seed in (0, 1):
        sequence = benchmark.data.sequence(NAIVE, SequenceId("evaluation", 0, seed))
        # Test rows come last; every fifth row of a class is a test row.
        is_test = np.arange(120) % 5 == 4
        rows = np.concatenate([current[~is_test], current[is_test]])
        stored = benchmark.data.shared(NAIVE)
        known = (rows - np.array(stored.offset)).astype(np.float32)
        order = [int(np.flatnonzero((known == row).all(axis=1))[0]) for row in stored.images]
        expected = by_hand(rows[order], sequence, axes=0)
        np.testing.assert_allclose(gathered(benchmark, sequence), expected, atol=1e-5)


def test_first_features_that_are_one_number_are_refused(tmp_path):
    values = np.random.default_rng(0).normal(size=(80, 3))
    values[:40] = 7
    np.savez(tmp_path / "f.npz", features=values.astype(np.float32), labels=np.arange(80) // 20)
    words = ["images", "--features", str(tmp_path / "f.npz"), "--tasks", "2", "--order", "natural"]
    benchmark = loaded(*words, "--normalization", "first-task")
    with pytest.raises(DataError, match=r"task 1, are the same number"):
        benchmark.per_run_data(benchmark.data.sequence(NAIVE, SequenceId("evaluation", 0, 0)))


def test_runs_trained_together_and_networks_read_back_have_each_seed_s_own(tmp_path):
    words = [*FIRST, "--methods", "naive", "--seeds"]
    both = run(tmp_path, *words, "2", "--keep-nets").parent
    separate = run(tmp_path / "alone", *words, "1", "--seed", "1").parent
    stored = "units/class-incremental-naive-1.npz"
    with np.load(both / stored) as together, np.load(separate / stored) as single:
        np.testing.assert_array_equal(together["losses"], single["losses"])
        final = together["matrix"][-1]
    benchmark = loaded(*FIRST)
    sequence = benchmark.data.sequence(NAIVE, SequenceId("evaluation", 0, 1))
    test = np.asarray(sequence.test.index)
    scores = load_net(both, "naive", 1, 4).predict(benchmark.data.images.images[test])
    right = scores.argmax(axis=1) == np.asarray(sequence.test.labels[:, 0])
    members = np.asarray(sequence.test_member)
    np.testing.assert_allclose([right[member].mean() for member in members], final, atol=1e-6)
    page = (both / "report.html").read_text()
    assert "inputs normalized by the training images of each seed" in page
    assert "which is optimistic" not in page.split("Training")[1].split("Duration")[0]


def test_runs_of_the_other_normalization_are_not_read_back(tmp_path):
    """Values identify a run; those from before the option are those of all tasks."""
    first, common = loaded(*FIRST).fingerprint(NAIVE), loaded(*SMALL).fingerprint(NAIVE)
    assert (first["normalization"], common["normalization"]) == ("first-task", None)
    words = ["--methods", "naive", "--seeds", "1"]
    page = run(tmp_path, *SMALL, *words).read_text()
    assert "inputs normalized by the training images of all tasks, which is optimistic" in page
    with pytest.raises(DataError, match=r"normalization: stored None, now 'first-task'"):
        run(tmp_path, *FIRST, *words)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--pixels", "unit"], "--pixels unit takes no statistics"),
        (["--stream", "rotated"], "--stream rotated has the same images in every task"),
        (
            ["--net", "vit", "--pretrained", "ViT-B_16.npz"],
            "--pretrained has the statistics of its release",
        ),
    ],
)
def test_where_it_changes_nothing_it_is_refused(words, reason):
    with pytest.raises(DataError, match=f"^--normalization first-task: {reason}; leave it out$"):
        loaded(*FIRST, *words)


def test_other_pixels_than_a_released_networks_are_refused():
    words = ("--net", "vit", "--pretrained", "ViT-B_16.npz", "--pixels", "unit")
    with pytest.raises(DataError, match=r"^--pixels unit, .*; give --pixels channels$"):
        loaded(*SMALL, *words)


def test_seeds_of_a_program_are_data_and_not_constants():
    """Another seed's statistics are leaves of the same shapes, which compile nothing again."""
    benchmark = loaded(*FIRST)
    current = [
        benchmark.per_run_data(benchmark.data.sequence(NAIVE, SequenceId(use, 0, seed)))
        for use, seed in (("evaluation", 0), ("evaluation", 1), ("validation", 0))
    ]
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), item) for item in current]
    assert shapes[0] == shapes[1] == shapes[2]
    assert len({float(item.normalization[0][0]) for item in current}) == 3
