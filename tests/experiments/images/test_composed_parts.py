"""Parts of a composed benchmark: memory, replay, sequences, networks, grids."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual import Batch
from everlight.continual.ema import Averaged
from everlight.continual.engine.tasks import init_learner
from everlight.continual.methods.method import StrategyArguments, incompatibility
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.images.digits import load_digits
from everlight_experiments.cl_metrics import config as cl_metrics
from everlight_experiments.cli import options_of
from everlight_experiments.commands.benchmark_registry import load_benchmarks
from everlight_experiments.commands.load_and_train import load_suite
from everlight_experiments.commands.user_benchmark import identified_by_file
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.continual.benchmarks.statements import Statement, statement_paragraph
from everlight_experiments.core50 import config as core50
from everlight_experiments.facts import config as facts
from everlight_experiments.iirc import config as iirc
from everlight_experiments.images.benchmark import compose
from everlight_experiments.images.config import DIGITS

NAIVE = METHODS["naive"]
FIRST = SequenceId("evaluation", 0, 0)


def composed(tmp_path, config, setting="class-incremental"):
    return compose(config, setting=setting, runs=tmp_path)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return composed(tmp_path_factory.mktemp("runs"), DIGITS)


def test_a_buffer_size_is_every_memory_s(tmp_path):
    """The size is the total of exemplars and reservoirs; without it each class has its number."""
    arguments = StrategyArguments(tasks=5, classes=10, exemplars_per_class=20, buffer_size=60)
    for name in ("iCaRL", "iCaRL-CNN", "LUCIR", "BiC", "ER-balanced", "A-GEM"):
        assert METHODS[name].row_arguments(arguments)["buffer_size"] == 60
        assert "buffer_size" not in METHODS[name].row_arguments(
            arguments._replace(buffer_size=None)
        )
    for name in ("ER", "DER++", "ER-ACE", "GDumb"):
        assert METHODS[name].row_arguments(arguments)["buffer_size"] == 60
        assert (
            METHODS[name].row_arguments(arguments._replace(buffer_size=None))["buffer_size"] == 200
        )
    assert METHODS["GEM"].row_arguments(arguments)["per_task"] == 12
    requested = composed(tmp_path, replace(DIGITS, buffer_size=60))
    assert requested.fingerprint(METHODS["ER"])["buffer_size"] == 60
    assert requested.training.words.endswith("memory of 60 samples in total")
    data = requested.run_data(NAIVE, requested.data.sequence(NAIVE, FIRST))
    assert requested.training.setup(METHODS["ER"], data)[1].total_buffer_size == 60


DRAWING = (
    *("ER", "DER", "DER++", "X-DER-RPC", "CLS-ER", "MIR", "ER-ACE", "ER-AML", "SCR"),
    *("OnPro", "A-GEM", "ER-tricks", "HAL", "ER-MKD", "ER-ACE-MKD", "DER++-MKD", "SS-IL"),
    *("FDR", "PCR", "OCM"),
)
OTHER_SIZES = {
    # The size is a quarter of the batch.
    ("SS-IL", None): 4,
    # The authors have 256, and five candidates per replayed sample; the memory holds 100.
    ("A-GEM", None): 100,
    ("MIR", None): 80,
    ("MIR", 64): 100,
}
"""Samples drawn beside a batch of 16 by method and size that is set, where they are not as many."""


@pytest.mark.parametrize(("size", "drawn"), [(None, 16), (64, 64)])
def test_the_replay_batch_size_is_that_of_the_methods_that_draw_and_of_no_other(
    size, drawn, tmp_path
):
    requested = composed(tmp_path, replace(DIGITS, replay_batch_size=size))
    assert requested.fingerprint(NAIVE)["replay_batch_size"] == size
    assert ("replayed in batches of 64" in requested.training.words) == (size == 64)
    sequence = requested.data.sequence(NAIVE, FIRST)
    data = requested.run_data(NAIVE, sequence)
    task = jax.tree.map(lambda leaf: leaf[0], sequence.tasks)
    key, index = jax.random.key(0), jnp.arange(16)
    batch = Batch(index, index[:, None], jnp.ones(16), jnp.zeros(16, bool))
    for name in DRAWING:
        setup, arguments = requested.training.setup(METHODS[name], data)
        strategy = METHODS[name].make(setup, arguments)

        def draw(strategy=strategy, setup=setup):
            memory = strategy.init(key, init_learner(setup, 10, key))
            return strategy.draw(memory, batch, task, key)

        result = jax.tree.leaves(jax.eval_shape(draw), is_leaf=lambda leaf: isinstance(leaf, Batch))
        sizes = {leaf.index.shape[0] for leaf in result if isinstance(leaf, Batch)}
        assert OTHER_SIZES.get((name, size), drawn) in sizes
    # DGR and BI-R draw from generators, latent replay from stored outputs of a layer.
    others = set(METHODS) - {*DRAWING, "DGR", "BI-R", "latent replay"}
    for name in others:
        _, arguments = requested.training.setup(METHODS[name], data)
        assert "replay_batch_size" not in METHODS[name].row_arguments(arguments), name


def test_training_images_are_augmented_in_every_step_and_others_never(tmp_path):
    requested = composed(tmp_path, replace(DIGITS, augmentation="crop-and-flip"))
    assert ", images changed by crop-and-flip; " in requested.training.words
    assert requested.fingerprint(NAIVE)["augmentation"] == "crop-and-flip"
    data = requested.run_data(NAIVE, requested.data.sequence(NAIVE, FIRST))
    setup, _ = requested.training.setup(NAIVE, data)
    index, key = jnp.zeros(200, int), jax.random.key(3)
    result = np.asarray(setup.gather(index, key)).reshape(200, -1)
    # Windows and mirrors of the first image, of which there are 162.
    assert 50 < len(np.unique(result, axis=0)) <= 162
    plain = composed(tmp_path, DIGITS).training.setup(NAIVE, data)[0]
    np.testing.assert_array_equal(setup.gather(index, None), plain.gather(index, None))
    np.testing.assert_array_equal(plain.gather(index, key), plain.gather(index, None))
    with pytest.raises(DataError, match="--augmentation changes images; leave out --features"):
        composed(tmp_path, replace(DIGITS, augmentation="crop-and-flip", features="x.npz"))


def test_with_a_decay_methods_predict_by_an_average_or_are_left_out(tmp_path):
    requested = composed(tmp_path, replace(DIGITS, ema_decay=0.9))
    data = requested.run_data(NAIVE, requested.data.sequence(NAIVE, FIRST))
    setup, arguments = requested.training.setup(METHODS["ER"], data)
    strategy = METHODS["ER"].make(setup, arguments)
    key = jax.random.key(0)
    memory = jax.eval_shape(lambda: strategy.init(key, init_learner(setup, 10, key)))
    assert isinstance(memory, Averaged)
    assert requested.fingerprint(METHODS["ER"])["ema_decay"] == 0.9
    plain = composed(tmp_path, DIGITS).setting.capabilities
    left = {
        name
        for name, row in METHODS.items()
        if incompatibility(row, plain) is None
        and incompatibility(row, requested.setting.capabilities) is not None
    }
    assert {"ER-MKD", "IMM mean", "TIES", "CLS-ER", "ER-tricks", "GDumb", "BiC", "RanPAC"} <= left
    assert not {"naive", "EWC", "ER", "DER++", "LUCIR", "iCaRL"} & left


@pytest.mark.parametrize(
    ("name", "presets"),
    [
        ("iirc", iirc.PRESETS),
        ("core50-ni", core50.PRESETS),
        ("icifar", cl_metrics.PRESETS),
        ("facts", {preset: item.scale for preset, item in facts.PRESETS.items()}),
    ],
)
def test_the_replay_batch_size_is_an_option_of_every_paper_s_benchmark(name, presets):
    assert presets["demo"].replay_batch_size is None
    config = options_of("run", [name, "--replay-batch-size", "64"]).config
    assert getattr(config, "scale", config).replay_batch_size == 64


def test_requested_hyperparameters_replace_the_tables():
    words = ["digits", "--methods", "EWC", "MAS", "LwF"]
    options = options_of("run", [*words, "--hyperparameters", "LwF=2", "EWC=1e6,1e2,1e2"])
    rows = {row.name: row.hyperparameters for row in load_suite(options).methods}
    assert rows["EWC"] == (100, 1e6)
    assert rows["LwF"] == (2,)
    assert rows["MAS"] == METHODS["MAS"].hyperparameters
    # The published one stays a row where there is a choice.
    assert "MAS, published" in rows
    assert "LwF, published" not in rows


def test_a_prepared_benchmark_has_the_data_and_the_training_that_are_made(digits):
    others = digits.data._replace(note="prepared"), digits.training._replace(words="prepared")
    selection = digits.selection._replace(
        chosen=(Statement("Given."),), grids={"EWC": (7.0,)}, validation_tasks=2
    )
    requested = digits._replace(selection=selection, prefix="p", name="n")
    unprepared = requested._replace(prepare=lambda folder: others)
    expected = requested._replace(data=others[0], training=others[1])
    assert unprepared.prepared(None) == expected
    assert requested.prepared(None) is requested
    of_a_file = identified_by_file(unprepared, "version").prepared(None)
    assert of_a_file.fingerprint(NAIVE) == {**expected.fingerprint(NAIVE), "file": "version"}


def test_the_report_names_the_options_that_were_given(tmp_path):
    """The report states no selection for the user's value, only for the preset's."""
    words = ["digits", "--epochs", "3", "--runs", str(tmp_path)]
    (benchmark,) = load_benchmarks(options_of("run", words)).values()
    chosen = benchmark.selection.words
    assert chosen.startswith("Given by the user: epochs. Without these: Learning rate: among")
    assert "Epochs: among" in statement_paragraph(DIGITS.chosen)
    assert "Epochs: among" not in chosen
    assert chosen.endswith("Batch size, buffer size and exemplars per class: not tuned.")


@pytest.mark.parametrize(
    ("inputs", "rest"),
    [
        (["seed"], "Epochs, batch size and rate: those of A et al. 2020. Steps: 3. All is well."),
        (["epochs"], "Batch size and rate: those of A et al. 2020. Steps: 3. All is well."),
        (["rate", "protocol.batch-size"], "Epochs: those of A et al. 2020. Steps: 3. All is well."),
        (["epochs", "rate", "batch-size", "steps"], "All is well."),
    ],
)
def test_options_that_were_given_are_taken_out_of_a_list(digits, inputs, rest):
    statements = (
        Statement("those of A et al. 2020.", ("epochs", "batch-size", "rate")),
        Statement("3.", ("steps",)),
        Statement("All is well."),
    )
    result = digits.selection._replace(chosen=statements).with_changed(inputs).words
    assert result == f"Given by the user: {', '.join(inputs)}. Without these: {rest}"


def test_options_of_parts_without_a_name_are_distinguished(tmp_path):
    """Data, network and scale of facts are three of them."""
    words = ["facts", "--side", "8", "--scenes", "60", "20", "--facts", "30", "--tasks", "2"]
    first, *_ = load_benchmarks(options_of("run", [*words, "--runs", str(tmp_path)])).values()
    assert first.selection.words.startswith("Given by the user: scenes, side, facts, tasks. ")


@pytest.mark.parametrize("use", ["evaluation", "validation"])
def test_orders_are_of_one_shape_and_no_test_sample_chooses(use, digits):
    labels = load_digits().train_labels
    train = len(labels)
    shapes = set()
    for order in (0, 1, 5):
        sequence = digits.data.sequence(NAIVE, SequenceId(use, 0, order))
        shapes.add(str(jax.tree.map(np.shape, sequence)))
        tests = np.unique(sequence.test.index[sequence.test.mask])
        trained = np.unique(sequence.tasks.train.index[sequence.tasks.train.mask])
        assert np.all(tests < train) if use == "validation" else np.all(tests >= train)
        assert not set(tests) & set(trained)
        # A tenth of every class validates, and is trained on by no order.
        assert len(trained) == train - sum(np.bincount(labels) // 10)
        assert not np.any(sequence.tasks.valid.mask)
    assert len(shapes) == 1
