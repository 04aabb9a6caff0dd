"""Features in the place of images: computed once, from a file, refused."""

import jax
import numpy as np
import pytest

from everlight.continual.methods.method import incompatibility
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.pretrained import trunk_features
from everlight_data.pretrained.trunk_features import LITE0
from everlight_data.registry import IMAGE_SETS
from everlight_data.sets.data_set import DataSet
from everlight_data.sets.image_set import ImageSet
from everlight_experiments.cli import options_of
from everlight_experiments.commands.benchmark_registry import load_benchmarks
from everlight_experiments.commands.grid import runs_of
from everlight_experiments.commands.run import run_benchmark
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.iirc.paper import PAPER
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.usage import parse_options

NAMES = ("a <b>", "c", "d & e", "é")
WIDTH = 6


def loaded(options):
    """Return the first setting's benchmark."""
    return next(iter(load_benchmarks(options).values()))


def stored(result):
    return result.data.shared(METHODS["naive"])


def some_set(rng):
    """Return ten training and two test images of each class."""
    train, test = np.arange(40) % 4, np.arange(8) % 4
    images = rng.integers(0, 256, (48, 16, 16, 3), dtype=np.uint8)
    return ImageSet("pictures", images, train, test, NAMES)


@pytest.fixture
def pictures(rng, monkeypatch):
    images = some_set(rng)
    monkeypatch.setitem(IMAGE_SETS, "procedural", DataSet("", load=lambda request: images))
    return images


@pytest.fixture
def trunk(monkeypatch, pictures):
    """Replace the trunk by features that separate classes; return the shapes of its calls."""
    calls = []

    def computed(images, steps):
        images = (images / 255).astype("f4")
        calls.append(images.shape)
        number = np.concatenate([pictures.train_labels, pictures.test_labels])
        result = np.eye(4, WIDTH, dtype=np.float32)[number] + 0.01 * images[:, :1, 0, 0]
        return result.astype("f4")

    monkeypatch.setattr(trunk_features, "trunk_features", computed)
    return calls


def requested(tmp_path, *words, benchmark="procedural", features=LITE0):
    arguments = [benchmark, *(() if features is None else ("--features", str(features)))]
    return options_of("run", [*arguments, *words, "--runs", str(tmp_path / "runs")])


SMALL = "--classes", "4", "--tasks", "2"


def test_features_are_computed_once(tmp_path, trunk):
    """They have the size of the original images, whatever the preset's."""
    settings = requested(tmp_path, *SMALL)
    first = loaded(settings)
    again = loaded(settings)
    assert trunk == [(48, 16, 16, 3)]
    np.testing.assert_array_equal(stored(first).images, stored(again).images)
    (remaining,) = (tmp_path / "runs" / "features").glob("*.npz")
    damaged = bytearray(remaining.read_bytes())
    damaged[100] ^= 1
    remaining.write_bytes(damaged)
    assert loaded(settings).data.checksums == first.data.checksums
    assert len(trunk) == 2


ON_THEM = {
    "icifar": ("--classes 4 --tasks 2 --per-class 4 2", "class-incremental"),
    "core50-nc": ("--frames 2", "NC"),
    "facts": ("--scenes 60 20 --facts 30", "random"),
}


@pytest.mark.parametrize("name", ON_THEM)
def test_the_papers_benchmarks_are_learned_from_features(name, tmp_path, monkeypatch):
    """Every method in the table that learns these benchmarks has features as inputs."""
    monkeypatch.setattr(
        trunk_features,
        "trunk_features",
        lambda images, steps: images[:, 8:16:4, 8:16:4, 0].reshape(len(images), -1).astype("f4"),
    )
    words, setting = ON_THEM[name]
    words = [*words.split(), "--seeds", "1", "--validation-seeds", "1"]
    options = requested(tmp_path, *words, benchmark=name)
    folder = RunFolder("run", name, options, shared=True)
    benchmark = load_benchmarks(options)[setting].prepared(folder)
    assert "1,280 features of EfficientNet-Lite0" in benchmark.training.words
    plain_options = requested(tmp_path, *words, benchmark=name, features=None)
    plain = load_benchmarks(plain_options)[setting]
    assert benchmark.data.checksums[-1] not in plain.data.checksums
    assert len(benchmark.data.checksums) == 4
    for method in (METHODS["naive"], METHODS["nearest mean"]):
        if incompatibility(method, benchmark.setting.capabilities) is None:
            sequence = benchmark.data.sequence(method, SequenceId("evaluation", 0, 0))
            data = benchmark.run_data(method, sequence)
            setup, _ = benchmark.training.setup(method, data)
            inputs = setup.gather(sequence.tasks.train.index[0, :3], None)
            assert inputs.shape == (3, 4)
            outputs, _ = setup.apply(*setup.init(jax.random.key(0)), inputs, False, None)
            assert outputs.logits.shape[0] == 3


def test_computed_features_are_a_file_of_features(tmp_path, trunk, pictures):
    actual = loaded(requested(tmp_path, *SMALL))
    (remaining,) = (tmp_path / "runs" / "features").glob("*.npz")
    reference = loaded(requested(tmp_path, *SMALL, features=remaining))
    np.testing.assert_array_equal(stored(actual).images, stored(reference).images)
    # Columns of a file may be of any scale, those of one network are of one.
    assert actual.data.checksums == reference.data.checksums[:4]
    assert (len(actual.data.checksums), len(reference.data.checksums)) == (4, 5)
    train = np.asarray(stored(actual).images[:40], np.float64)
    np.testing.assert_allclose(stored(actual).mean, train.mean(), rtol=1e-5)
    np.testing.assert_allclose(stored(actual).deviation, train.std(), rtol=1e-5)
    np.testing.assert_allclose(stored(reference).mean, train.mean(0), rtol=1e-5, atol=1e-7)
    deviation = np.where(train.std(0) > 0, train.std(0), 1)
    np.testing.assert_allclose(stored(reference).deviation, deviation, rtol=1e-4)
    assert "hidden layers" not in actual.setting.capabilities


def test_a_head_on_features_has_a_learning_rate_of_its_own(tmp_path, trunk):
    """The option's default was tuned for it, as the report states."""
    actual = loaded(requested(tmp_path, *SMALL))
    assert actual.fingerprint(METHODS["naive"])["learning_rate"] == 0.001
    assert "SGD with learning rate 0.001" in actual.training.words
    assert "Features learning rate: among 0.0003, 0.001 and 0.003" in actual.selection.words
    other = loaded(requested(tmp_path, *SMALL, "--features-learning-rate", "0.5"))
    assert other.fingerprint(METHODS["naive"])["learning_rate"] == 0.5
    assert "Features learning rate" not in other.selection.words
    plain = loaded(requested(tmp_path, *SMALL, features=None))
    assert plain.fingerprint(METHODS["naive"])["learning_rate"] == 0.01


UNREAD = {
    "procedural": (
        *("--net linear", "--dropout 0.1 0.1 0.1", "--pixels unit", "--dtype bfloat16"),
        *("--learning-rate 0.1", "--side 24"),
    ),
    "iirc": (
        *("--side 24", "--net resnet:2", "--remat", "--dtype bfloat16", "--learning-rate 0.1"),
        "--learning-rates LUCIR 0.5",
    ),
    "core50-nc": (
        *("--weights w.npz", "--pretraining.epochs 2", "--channels 4 8", "--hidden 8"),
        *("--dense-rate 2", "--dtype bfloat16"),
    ),
    "facts": ("--trunk 8 16", "--branch 8"),
}


@pytest.mark.parametrize(
    ("benchmark", "words"), [(name, words) for name in UNREAD for words in UNREAD[name]]
)
def test_options_that_features_replace_are_refused(tmp_path, benchmark, words):
    option = words.split()[0]
    remedy = "give --features" if option == "--learning-rate" else "leave it out$"
    with pytest.raises(DataError, match=f"^{option}[^ ]* is not read with --features; {remedy}"):
        load_benchmarks(requested(tmp_path, *words.split(), benchmark=benchmark))


def test_grids_and_papers_refuse_them_too(tmp_path):
    values = ["--set", "features=x.npz", "net=linear"]
    grid = options_of("grid", ["--benchmarks", "procedural", *values])
    with pytest.raises(DataError, match=r"^--net is not read with --features"):
        load_benchmarks(runs_of(grid)["procedural"])
    words = ["--features", "x.npz", "--net", "resnet:2", "--runs", str(tmp_path)]
    with pytest.raises(DataError, match=r"^--net is not read with --features"):
        PAPER.run(parse_options(PAPER.options(words), words))


def test_a_run_s_configuration_may_have_what_features_replace(tmp_path, trunk):
    """The command line may not; and the report does not state that the user gave it."""
    options = requested(tmp_path, *SMALL, "--net", "linear", features=None)
    path = str(RunFolder("run", "procedural", options).path / "config.json")
    words = ["--config", path, "--features", LITE0, "--runs", str(tmp_path / "runs")]
    changed = loaded(options_of("run", words)).selection.changed
    assert "features" in changed
    assert "net" not in changed
    with pytest.raises(DataError, match=r"^--net is not read with --features"):
        loaded(options_of("run", [*words, "--net", "cnn"]))


def save(path, values, labels):
    np.savez(path, features=values, labels=labels)
    return str(path)


def test_a_file_alone_is_a_benchmark(tmp_path, rng):
    """Every fifth row of a class tests; the report has no pictures of the data."""
    labels = np.array(NAMES)[np.arange(40) % 4]
    values = rng.normal(size=(40, 3))
    path = save(tmp_path / "mine.npz", values, labels)
    result = loaded(requested(tmp_path, "--tasks", "2", benchmark="images", features=path))
    assert result.data.images.class_names == tuple(sorted(NAMES))
    of_a = np.flatnonzero(np.arange(40) % 4 == 0)
    np.testing.assert_allclose(stored(result).images[32], values[of_a[4]], rtol=1e-6)
    assert (
        result.data.note == "mine.npz: 40 rows of 4 classes, of which 8 test (of a class one in 5)"
    )
    assert result.training.words.startswith("a linear head on 3 features of mine.npz")
    assert "32 training images (8 per class)" in result.data.counts
    assert result.data.sections(tmp_path) == []


def test_options_of_images_are_refused_with_only_a_file(tmp_path, rng):
    path = save(tmp_path / "mine.npz", rng.normal(size=(40, 3)), np.arange(40) % 4)
    options = ("--test-data", path, "--per-class", "4", "1")
    with pytest.raises(
        DataError, match=r"^--test-data, --per-class with only the features .*; leave"
    ):
        loaded(requested(tmp_path, *options, benchmark="images", features=path))


def test_columns_of_a_file_are_standardized_at_any_scale_and_offset(tmp_path, rng):
    """The reference is float64; row 32 is the first test row, the fifth of the first class."""
    labels = np.arange(40) % 4
    values = rng.normal(size=(40, 4)) * [1e-4, 1, 1e6, 0] + [0, 1e8, 0, 3.3]
    save(tmp_path / "mine.npz", values, labels)
    path = str((tmp_path / "mine.npz").rename(tmp_path / "MINE.NPZ"))
    result = stored(loaded(requested(tmp_path, "--tasks", "2", benchmark="images", features=path)))
    tests = np.array([16, 17, 18, 19, 36, 37, 38, 39])
    train = np.delete(values, tests, axis=0)
    exact = (values[16] - train[0] - (train - train[0]).mean(0)) / np.where(
        [True, True, True, False], train.std(0), 1
    )
    inputs = (np.asarray(result.images[32], np.float64) - result.mean) / result.deviation
    np.testing.assert_allclose(inputs, exact, atol=1e-4)
    assert inputs[3] == 0


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array(["1", "01", "2", "3"] * 12), r"the classes '1' and '01' are one number"),
        (np.array(["a", "", "b", "nan"] * 12), r"row 1 has '', an .*, the first of 24 such rows"),
    ],
)
def test_labels_that_are_missing_or_one_number_are_refused(tmp_path, labels, message):
    path = save(tmp_path / "mine.npz", np.eye(48, 2), labels)
    with pytest.raises(DataError, match=message):
        loaded(requested(tmp_path, "--tasks", "2", benchmark="images", features=path))


@pytest.mark.parametrize(
    ("values", "labels", "message"),
    [
        (np.zeros((48, 2)), np.arange(48) % 4, r"all 2 features of mine.npz are the same number"),
        (
            np.eye(47, 2),
            np.arange(47) % 4,
            r"has 47 rows; give a row for each of the benchmark's 48",
        ),
        (np.eye(48, 2), np.arange(48) % 3, r"row 3 is labelled '0', the image is '3'; give the"),
        (np.eye(48, 2), np.array(["c"] * 48), r"row 0 is labelled 'c', the image is 'a <b>'"),
        (np.full((48, 2), np.nan), np.arange(48) % 4, r"features of row 0 are not all numbers"),
        (np.full((48, 2), 1e300), np.arange(48) % 4, r"features of row 0 are not all numbers"),
        (np.eye(48, 2) * 3e38, np.arange(48) % 4, r"row 0 are not all numbers of at most 1e\+30"),
        (np.eye(48, 2) * 1e-39, np.arange(48) % 4, r"deviation of \de-40; scale them"),
        (np.eye(48, 2) * 1e-310, np.arange(48) % 4, r"deviation of 1e-310; scale them"),
        (np.zeros(48), np.arange(48) % 4, r"features have dtype float64 and shape \(48,\)"),
        (np.zeros((48, 2)), np.zeros(48), r"labels have dtype float64 and shape \(48,\)"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, pictures, values, labels, message):
    path = save(tmp_path / "mine.npz", values, labels)
    with pytest.raises(DataError, match=message):
        loaded(requested(tmp_path, *SMALL, features=path))


@pytest.mark.parametrize(
    ("benchmark", "name", "words", "message"),
    [
        ("procedural", "resnet", "", r"--features 'resnet'\. Give --features efficientnet"),
        ("procedural", "none.npz", "", r"none\.npz does not exist"),
        ("images", LITE0, "", r"give --data"),
        ("procedural", LITE0, "--tasks 5", r"--tasks 5 of 4 classes"),
        ("images", LITE0, "--data nowhere --side 64", r"no data 'nowhere'"),
        ("core50-nc", LITE0, "--net Mid-VGG", r"--net Mid-VGG at --side 32; give"),
    ],
)
def test_options_that_features_exclude_are_refused(
    tmp_path, trunk, benchmark, name, words, message
):
    words = *(SMALL if benchmark == "procedural" else ()), *words.split()
    with pytest.raises(DataError, match=message):
        run_benchmark(requested(tmp_path, *words, benchmark=benchmark, features=name))
    assert {item.name for item in (tmp_path / "runs").glob("*")} <= {"features"}
