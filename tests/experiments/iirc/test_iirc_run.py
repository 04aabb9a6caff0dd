"""IIRC's command, benchmark and metrics, on a tiny configuration of the procedural world."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual import Protocol
from everlight.continual.methods.method import incompatibility
from everlight.continual.methods.registry import METHODS
from everlight.models import ResNet50
from everlight.scenarios.iirc import TaskConfiguration
from everlight_data.errors import DataError
from everlight_data.iirc import sets
from everlight_data.iirc.metadata import Metadata
from everlight_data.iirc.sets import IIRCData
from everlight_data.sets.image_set import ImageSet
from everlight_experiments.cli import options_of
from everlight_experiments.commands.run import run_benchmark
from everlight_experiments.continual.benchmarks.benchmark import Request
from everlight_experiments.continual.benchmarks.run_data import RunData, SequenceId, TrainedRun
from everlight_experiments.continual.paper import PaperOptions
from everlight_experiments.iirc import benchmark as iirc
from everlight_experiments.iirc import config as settings
from everlight_experiments.iirc.paper import PAPER, options
from everlight_experiments.run_folder.config_options import with_config
from tests.experiments.command_runs import arrays_of
from tests.refusals import refused

TINY = settings.PaperConfig(
    settings.IIRCConfig(
        data="procedural",
        side=8,
        net="mlp:16",
        per_class=(30, 2),
        protocol=Protocol(epochs=1, first_epochs=2, batch_size=32),
        exemplars_per_class=2,
    ),
    configurations=2,
    methods=("LUCIR", "finetune"),
    ablation=(1,),
)


def tiny_options(tmp_path, **changes):
    """Return the command's options with the tiny configuration, changed."""
    config = replace(TINY, **changes)
    return with_config(PaperOptions, config)(runs=tmp_path)


def test_the_report_states_which_epochs_are_kept():
    config = settings.PAPER_PRESETS["demo"]
    best = "incremental joint, ER-balanced, finetune: the epoch with the best in-task validation"
    assert PAPER.rule(config).startswith(best)
    last = replace(config.benchmark.protocol, select="last")
    changed = replace(config, benchmark=replace(config.benchmark, protocol=last))
    assert PAPER.rule(changed) == "All methods keep the last epoch."
    assert PAPER.rule(replace(config, methods=("LUCIR",))) == "All methods keep the last epoch."


def test_the_report_has_the_findings_and_refuses_runs_of_another_configuration(tmp_path):
    report = PAPER.run(tiny_options(tmp_path))
    page = report.read_text()
    assert "LUCIR learns new labels less and less" in page
    assert "not run: A-GEM, ER-balanced" in page
    assert "exemplars per class" in page
    for picture in ("confusion",):
        assert (report.parent / f"{picture}.png").stat().st_size > 0
    first = arrays_of(report)
    # The 16 classes are three shapes first, then tasks of five, five and three.
    matrix = first[f"{iirc.SETTING}/LUCIR/pw-JS by task"]
    assert matrix.shape == (2, 4, 4)
    upper = np.broadcast_to(~np.tri(4, dtype=bool), (2, 4, 4))
    np.testing.assert_array_equal(np.isnan(matrix), upper)
    newest = first[f"{iirc.SETTING}/LUCIR/pw-JS on the newest task"]
    np.testing.assert_array_equal(newest, np.diagonal(matrix, axis1=1, axis2=2))
    scores = first[f"{iirc.SETTING}/LUCIR/scores"]
    np.testing.assert_array_equal(scores[..., 0], first[f"{iirc.SETTING}/LUCIR/pw-JS"])
    # Only methods with exemplars are trained with another number of them.
    aside = {key for key in first if key.startswith("1 exemplars/") and key.endswith("pw-JS")}
    assert aside == {"1 exemplars/LUCIR/pw-JS"}
    # The first task brings superclasses, and in the end each sample has its subclass too.
    labels = first[f"{iirc.SETTING}/LUCIR/labels per sample"][..., 1]
    np.testing.assert_allclose(labels[:, [0, -1]], [[1, 2]] * 2)
    # In this world every subclass has a superclass, and no class is without one.
    by_type = first[f"{iirc.SETTING}/LUCIR/pw-JS by class type"]
    assert by_type.shape == (2, len(iirc.CLASS_TYPES))
    np.testing.assert_array_equal(np.isnan(by_type), [[False, False, True]] * 2)
    with pytest.raises(DataError, match=r"exemplars_per_class.*2.*3"):
        PAPER.run(tiny_options(tmp_path, benchmark=replace(TINY.benchmark, exemplars_per_class=3)))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Load two configurations of four classes of ten training images, two below a superclass."""
    labels = np.repeat(np.arange(4), 10)
    images = ImageSet(
        "noise", np.zeros((60, 4, 4, 3), np.uint8), labels, labels[::2], tuple("abcd")
    )
    orders = (
        TaskConfiguration((("top", "c"), ("a", "b", "d"))),
        TaskConfiguration((("top", "d"), ("b", "a", "c"))),
    )
    data = IIRCData(images, Metadata({"top": ("a", "b")}, orders, 0.2))
    return iirc.load_inputs(TINY.benchmark, data, tmp_path_factory.mktemp("runs"), validation=True)


@pytest.fixture(scope="module")
def benchmark(loaded):
    return iirc.iirc_benchmark(TINY.benchmark, loaded, 0)


def test_the_head_has_no_outputs_for_classes_that_no_task_introduces(loaded, tmp_path):
    """The authors' lite set has ten tasks that introduce a part of the classes."""
    order = TaskConfiguration((("top", "c"), ("a",)), left_out=("b", "d"))
    data = loaded.data._replace(metadata=Metadata({"top": ("a", "b")}, (order,), 0.2))
    assert data.classes == 3
    benchmark = iirc.iirc_benchmark(
        TINY.benchmark, iirc.load_inputs(TINY.benchmark, data, tmp_path), 0
    )
    naive = METHODS["naive"]
    sequence = benchmark.data.sequence(naive, SequenceId("evaluation", 0, 0))
    assert sequence.class_task.shape == (3,)
    arguments = benchmark.run_data(naive, sequence)
    setup, strategy_arguments = benchmark.training.setup(naive, arguments)
    inputs = jax.ShapeDtypeStruct((2, 4, 4, 3), jnp.float32)

    def outputs(key, inputs):
        return setup.apply(*setup.init(key), inputs, False, None)[0].logits

    assert (
        jax.eval_shape(outputs, jax.random.key(0), inputs).shape
        == (2, strategy_arguments.classes)
        == (2, 3)
    )


def test_the_last_configurations_choose_hyperparameters_on_post_task_validation(benchmark):
    naive = METHODS["naive"]
    validation = benchmark.data.sequence(naive, SequenceId("validation", 0, 0))
    evaluation = benchmark.data.sequence(naive, SequenceId("evaluation", 0, 1))
    np.testing.assert_array_equal(validation.tasks.train.index, evaluation.tasks.train.index)
    tests = [
        np.asarray(item.test.index)[np.asarray(item.test.mask)] for item in (validation, evaluation)
    ]
    # The second fifth of ten images per class tests; the first validates within tasks.
    assert tests[0].tolist() == [start + place for start in (0, 10, 20, 30) for place in (2, 3)]
    assert np.all(tests[1] >= 40)
    trained = np.asarray(validation.tasks.train.index)[np.asarray(validation.tasks.train.mask)]
    assert not set(trained.tolist()) & set(tests[0].tolist())


def test_joint_training_has_a_score_at_the_end_alone(benchmark):
    joint, seq_id = METHODS["joint"], SequenceId("evaluation", 0, 0)
    sequence = benchmark.data.sequence(joint, seq_id)
    predicted = np.packbits(np.ones((1, len(sequence.test.mask), 5), np.uint8), axis=-1)
    trained = TrainedRun({"predicted": predicted}, sequence, seq_id, tasks=2)
    for metric in benchmark.setting.metrics.all:
        assert np.shape(metric.compute(trained)) == metric.shape(trained), metric.name
    score = benchmark.setting.metrics.score.compute(trained)
    assert np.isnan(score[0])
    # All five labels for every sample: of a and b two are right, of c and d one; (2/5)², (1/5)².
    np.testing.assert_allclose(score[1], (0.4 * 0.4 + 0.2 * 0.2) / 2, rtol=1e-6)
    assert np.isnan(benchmark.setting.metrics.score_by_task.compute(trained)).all()


def test_the_metrics_of_a_run_share_one_computation(benchmark, monkeypatch):
    calls, plain = [], iirc.label_scores
    monkeypatch.setattr(
        iirc, "label_scores", lambda *arguments: calls.append(1) or plain(*arguments)
    )
    naive, seq_id = METHODS["naive"], SequenceId("evaluation", 0, 1)
    sequence = benchmark.data.sequence(naive, seq_id)
    predicted = np.zeros((2, len(sequence.test.mask), 1), np.uint8)
    runs = [TrainedRun({"predicted": predicted}, sequence, seq_id, tasks=2) for _ in range(2)]
    for item in runs:
        for metric in benchmark.setting.metrics.all:
            metric.compute(item)
    assert len(calls) == 2


def test_methods_that_make_no_sense_are_refused(benchmark):
    capabilities = benchmark.setting.capabilities
    refused = {name for name, row in METHODS.items() if incompatibility(row, capabilities)}
    # These methods need one label per sample, named hidden layers or the task at test.
    assert {"LwF", "iCaRL", "CWR+", "streaming LDA", "ER-tricks", "HAT", "PackNet"} <= refused
    assert not {"naive", "joint", "EWC", "ER", "A-GEM", "LUCIR", "BiC", "iCaRL-CNN"} & refused


@pytest.mark.parametrize(("name", "reach"), [("EWC", 2), ("MAS", 3)])
def test_penalties_know_how_far_momentum_carries(loaded, name, reach):
    config = replace(TINY.benchmark, learning_rate=0.3, learning_rates={"EWC": 0.2})
    created = iirc.iirc_benchmark(config, loaded, 0)
    _, strategy_arguments = created.training.setup(
        METHODS[name], RunData(loaded.inputs.stored, None)
    )
    assert strategy_arguments.implicit_rate == pytest.approx(reach)


@pytest.mark.parametrize("data", ["iirc_cifar100", "incremental_cifar100", "procedural"])
def test_cifar_is_normalized_as_by_the_authors(data, tmp_path):
    """Inputs are (x / 255 - mean) / deviation of their code; other sets have their own numbers."""
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    labels = np.arange(6) % 2
    inputs = ImageSet("noise", images, labels, labels[:0], ("a", "b"))
    order = TaskConfiguration((("a",), ("b",)))
    config = replace(TINY.benchmark, data=data)
    source = IIRCData(inputs, Metadata({}, (order,), 0.1))
    result = iirc.load_inputs(config, source, tmp_path).inputs.stored
    pixels = images / 255
    mean, deviation = (
        (pixels.mean((0, 1, 2)), pixels.std((0, 1, 2)))
        if data == "procedural"
        else ([0.5071, 0.4866, 0.4409], [0.2009, 0.1984, 0.2023])
    )
    np.testing.assert_allclose(
        (images - result.mean) / result.deviation, (pixels - mean) / deviation, atol=1e-4
    )


def test_a_linear_head_learns_from_features_of_the_images(tmp_path):
    plain = iirc.load_data(TINY.benchmark, 1, 0)
    images = plain.images
    numbers = np.concatenate([images.train_labels, images.test_labels])
    path, values = tmp_path / "features.npz", np.random.default_rng(0).random((len(numbers), 4))
    np.savez(path, features=values, labels=np.array(images.class_names)[numbers])
    config = replace(TINY.benchmark, features=str(path), learning_rates={"EWC": 0.2})
    request = Request("iirc", config, runs=tmp_path)
    (created,) = iirc.iirc_benchmarks(request).values()
    assert "a linear head on 4 features" in created.training.words
    assert "learning rate 0.01 and momentum" in created.training.words
    assert "for EWC" not in created.training.words
    assert "32×32 pixels" in created.data.note
    naive = METHODS["naive"]
    sequence = created.data.sequence(naive, SequenceId("evaluation", 0, 0))
    setup, _ = created.training.setup(naive, created.run_data(naive, sequence))
    assert setup.gather(sequence.tasks.train.index[0, :3], None).shape == (3, 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("ICARL 0.1", "no method of --learning-rates 'ICARL'; did you mean 'iCaRL"),
        ("naive -1", "--learning-rates -1.0; give 1e-09 to 100"),
        ("naive nan", "--learning-rates nan; give 1e-09 to 100"),
    ],
)
def test_learning_rates_have_bounds_and_names_of_methods(words, message, tmp_path):
    words = f"iirc --learning-rates {words} --runs {tmp_path}".split()
    refused(message, lambda: run_benchmark(options_of("run", words)), DataError)


def test_impossible_options_are_refused(tmp_path, monkeypatch):
    for changes, message in (
        ({"methods": ("ICARL",)}, r"no method 'ICARL'; did you mean 'iCaRL-CNN'.* are 'joint'"),
        ({"ablated": ("finetune",)}, "no method with exemplars --ablated 'finetune'"),
        ({"benchmark": replace(TINY.benchmark, remat=True)}, "remat is for resnet50"),
        ({"benchmark": replace(TINY.benchmark, learning_rates={"naive": 0.1})}, "rates 'naive'"),
    ):
        with pytest.raises(DataError, match=message):
            PAPER.run(tiny_options(tmp_path, **changes))
    request = Request("iirc", TINY.benchmark, seeds=9, validation_seeds=2, runs=tmp_path)
    with pytest.raises(DataError, match=r"--seeds 9; iirc has 10 .* give 8 or less"):
        iirc.iirc_benchmarks(request)
    procedural = sets.procedural_metadata
    monkeypatch.setattr(sets, "procedural_metadata", lambda world, _: procedural(world, 2))
    with pytest.raises(DataError, match="--configurations 3; procedural has 2"):
        PAPER.run(tiny_options(tmp_path, configurations=3))


def test_the_paper_s_settings_on_cifar_and_imagenet():
    def config_of(*words):
        arguments = ["--preset", "paper", *words]
        return options(arguments)().config

    assert config_of() == settings.FULL
    assert config_of("--data", "iirc_imagenet_full") == settings.IMAGENET
    config = settings.IMAGENET.benchmark
    assert (config.side, config.net, config.learning_rate) == (224, "resnet50", 0.1)
    assert config.learning_rates == {"iCaRL-CNN": 0.5, "A-GEM": 0.5}
    epochs = {name: iirc.protocol_of(config, method) for name, method in settings.FORMS.items()}
    assert epochs["joint"].epochs_of(0) == 180
    assert (epochs["ER-balanced"].epochs_of(0), epochs["ER-balanced"].epochs_of(1)) == (200, 100)
    assert (epochs["LUCIR"].select, epochs["ER-balanced"].select) == ("last", "best")


def test_networks_compute_as_configured(loaded):
    config = replace(settings.IMAGENET.benchmark, remat=True, dtype="bfloat16")
    net = iirc.network_of(config, 4)
    assert net.make("linear") == ResNet50(4, "linear", "bfloat16", True)
    begin = iirc.setup_factory(replace(TINY.benchmark, replay_batch_size=64), net, 5, 2)
    _, strategy_arguments = begin(METHODS["A-GEM"], RunData(loaded.inputs.stored, None))
    assert strategy_arguments.replay_batch_size == 64
