"""The papers' benchmarks: sequences, scores and refusals, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.methods.method import INCOMPATIBILITIES, incompatibility, with_published
from everlight.continual.methods.registry import METHODS
from everlight.models import MLP, NetworkRequest
from everlight_data.errors import DataError
from everlight_data.images.core50.prepared import CATEGORY_NAMES, OBJECT_NAMES, Core50
from everlight_experiments.cl_metrics.config import PRESETS as ICIFAR
from everlight_experiments.cli import options_of
from everlight_experiments.commands.benchmark_registry import BENCHMARKS, load_benchmarks
from everlight_experiments.commands.load_and_train import load_suite
from everlight_experiments.continual.benchmarks.benchmark import Request
from everlight_experiments.continual.benchmarks.parts import network
from everlight_experiments.continual.benchmarks.run_data import SequenceId, TrainedRun
from everlight_experiments.continual.benchmarks.statements import statement_paragraph
from everlight_experiments.core50 import benchmark as core50_benchmark
from everlight_experiments.core50 import start
from everlight_experiments.core50.config import PAPER_PRESETS as CORE50_PAPER
from everlight_experiments.core50.config import PRESETS as CORE50
from everlight_experiments.core50.start import make_net
from everlight_experiments.core50_static.config import STATIC_PRESETS
from everlight_experiments.facts import benchmark as facts_benchmark
from everlight_experiments.facts.config import PAPER_PRESETS as FACTS_PAPER
from everlight_experiments.facts.config import PRESETS as FACTS
from everlight_experiments.iirc.benchmark import network_of
from everlight_experiments.iirc.config import IMAGENET
from everlight_experiments.iirc.config import PRESETS as IIRC
from everlight_experiments.images.metrics import mean_so_far
from everlight_experiments.run_folder.config_options import change_config

NAIVE = METHODS["naive"]


@pytest.fixture(scope="module")
def frames():
    """Return four frames of every object in every session, each of one pixel."""
    session, number, time = (axis.ravel() for axis in np.indices((11, 50, 4)))
    images = np.zeros((len(number), 1, 1, 3), np.uint8)
    return Core50("frames", images, session, number, 75 * time, OBJECT_NAMES, CATEGORY_NAMES)


@pytest.fixture(scope="module")
def core50(frames):
    """Return the three scenarios on these frames."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "load_procedural_core50", lambda count, world: frames)
        # Places in the sequences are then places in the frames.
        patch.setattr(start, "thin_test", lambda frames, count: frames)
        request = Request("core50", CORE50["demo"])
        return core50_benchmark.batch_benchmarks(request, "object", ("NI", "NC", "NIC"))


@pytest.mark.parametrize(("scenario", "batches"), [("NI", 6), ("NC", 9), ("NIC", 59)])
def test_orders_that_choose_hyperparameters_see_no_test_frame(core50, frames, scenario, batches):
    """Two training sessions test them, thinned as the test set is, and are not learned."""
    sequence = core50[scenario].data.sequence(NAIVE, SequenceId("validation", 0, 0))
    assert sequence.tasks.id.shape[0] == batches
    train = np.asarray(sequence.tasks.train.index)[np.asarray(sequence.tasks.train.mask)]
    tested = np.asarray(sequence.test.index)
    assert (
        sorted(train.tolist())
        == np.flatnonzero(np.isin(frames.session, [0, 1, 3, 4, 7, 8])).tolist()
    )
    assert set(frames.session[tested]) == {5, 10}
    assert len(set(tested.tolist())) == len(tested)
    np.testing.assert_array_equal(np.bincount(frames.object[tested]), 2 * 2)
    np.testing.assert_array_equal(np.asarray(sequence.test.labels)[:, 0], frames.object[tested])
    assert sequence.test_member.shape == (batches, len(tested))
    # Its order is the last published one, and evaluation begins with the first.
    if scenario == "NC":
        last = core50[scenario].data.sequence(NAIVE, SequenceId("evaluation", 0, 9))
        np.testing.assert_array_equal(sequence.class_task, last.class_task)


def test_before_weights_are_prepared_frames_are_shapes_alone(core50):
    stored = core50["NC"].data.shared(NAIVE).frames
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(stored))


def core50_metrics(benchmark, accuracy):
    """Return the score over time and by task of a run with these accuracies of classes."""
    seq_id = SequenceId("evaluation", 0, 0)
    sequence = benchmark.data.sequence(NAIVE, seq_id)
    arrays = {"class_accuracy": accuracy, "accuracy": accuracy[:, 0]}
    run = TrainedRun(arrays, sequence, seq_id, len(accuracy))
    metrics = benchmark.setting.metrics
    return metrics.score.compute(run), metrics.score_by_task.compute(run)


def test_core50_s_matrix_is_by_the_batch_that_brings_a_class(core50, rng):
    accuracy = rng.random((8, 50))
    over_time, matrix = core50_metrics(core50["NI"], accuracy)
    # In NI the first batch brings all of them.
    np.testing.assert_allclose(matrix[:, 0], accuracy.mean(axis=1))
    assert np.isnan(matrix[:, 1:]).all()
    np.testing.assert_array_equal(over_time, accuracy[:, 0])
    accuracy = rng.random((9, 50))
    _, matrix = core50_metrics(core50["NC"], accuracy)
    # One object of each category comes first.
    np.testing.assert_allclose(matrix[:, 0], accuracy[:, ::5].mean(axis=1))


def test_scores_over_time_are_means_of_the_tasks_so_far():
    result = mean_so_far(np.array([[0.8, 0.1], [0.4, 0.9]]))
    np.testing.assert_allclose(result, [0.8, 0.65])


def test_unsuitable_methods_state_their_reason(core50):
    def refused(capabilities):
        return {
            name for name, row in METHODS.items() if incompatibility(row, capabilities) is not None
        }

    several = {"incremental joint", "iCaRL-CNN", "iCaRL-norm"}
    several |= {name for name in METHODS if name.startswith("BiC-")}
    of_ni, of_nc = (core50[name].setting.capabilities for name in ("NI", "NC"))
    assert several | {"LUCIR", "HAT", "PackNet", "ER-ACE"} <= refused(of_nc)
    assert not {"ER", "iCaRL", "BiC", "CWR"} & refused(of_nc)
    assert refused(of_nc) | {"iCaRL", "BiC"} <= refused(of_ni)
    assert incompatibility(METHODS["iCaRL"], of_ni) == INCOMPATIBILITIES["disjoint classes"]


def test_a_published_hyperparameter_is_a_row_of_its_own():
    rows = with_published([METHODS["LwF"], METHODS["naive"]])
    assert [(row.name, row.hyperparameters) for row in rows] == [
        ("LwF", METHODS["LwF"].hyperparameters),
        ("LwF, published", (0.25,)),
        ("naive", ()),
    ]


def test_variants_are_rows_after_their_methods():
    words = ["digits", "--methods", "EWC", "ER", "--no-published", "--variants", "review"]
    loaded = load_suite(options_of("run", words))
    assert [method.name for method in loaded.methods] == ["naive", "EWC", "ER", "ER, review"]


def test_more_seeds_than_there_are_orders_are_refused():
    message = r"--seeds 9; core50-nc has 10 published orders.* give 8 or less"
    with pytest.raises(DataError, match=message):
        load_benchmarks(options_of("run", ["core50-nc", "--seeds", "9"]))


CONFIGS = {
    **{name: entry.configs for name, entry in BENCHMARKS.items()},
    "facts of the paper": FACTS_PAPER,
    "core50 at once": STATIC_PRESETS,
    "core50 of the paper": {name: item.benchmark for name, item in CORE50_PAPER.items()},
    "iirc on ImageNet": {"paper": IMAGENET.benchmark},
    "features": {"demo": options_of("run", ["digits", "--features", "efficientnet-lite0"]).config},
}


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(config, id=f"{name}-{preset}")
        for name, configs in CONFIGS.items()
        for preset, config in configs.items()
    ],
)
def test_every_configuration_states_how_it_was_chosen(config):
    """A value was published, needs no data, or was chosen on data that are not evaluated."""
    known = ("published", "not chosen on any data", "validation seed", "validation configuration")
    known += ("Nothing was tuned.",)
    assert any(word in statement_paragraph(config.chosen) for word in known)
    assert "by hand" not in statement_paragraph(config.chosen)


def classes_net(config):
    expected = NetworkRequest(config.classes, config.side, config.dtype, config.dropout)
    return network(config.net, expected, (config.side, config.side, 3)).make(NAIVE)


def facts_net(config):
    """Return the module with which the benchmark's setup is made."""
    created = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts_benchmark, "JointEmbedding", lambda *fields: created.append(fields))
        facts_benchmark.setup_factory(config, 5, 6)
    return facts_benchmark.JointEmbedding(*created[0])


NETS = {
    "icifar": (ICIFAR, classes_net),
    "core50": (CORE50, lambda config: make_net(config, 3)),
    "facts": (FACTS, facts_net),
    "iirc": (IIRC, lambda config: network_of(config, 5).make(NAIVE)),
}


@pytest.mark.parametrize("preset", ["demo", "paper"])
@pytest.mark.parametrize("name", NETS)
def test_every_network_computes_in_the_configured_dtype(name, preset):
    configs, created = NETS[name]
    for dtype in ("float32", "bfloat16"):
        net = created(change_config(configs[preset], {"dtype": dtype}, "--set"))
        assert not isinstance(net, MLP)
        assert jnp.dtype(net.dtype) == dtype
    with pytest.raises(DataError, match=r"dtype=float16: no --.*dtype 'float16'.* float32"):
        change_config(configs[preset], {"dtype": "float16"}, "--set")
