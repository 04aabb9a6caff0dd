"""Methods that `--methods all` leaves out, and refusals of those that apply in no setting."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from everlight.continual.methods.method import INCOMPATIBILITIES
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_experiments.cli import options_of
from everlight_experiments.commands.benchmark_registry import BENCHMARKS
from everlight_experiments.commands.load_and_train import (
    applicable_methods,
    load_suite,
    refuse_inapplicable,
    refuse_without_values,
)
from everlight_experiments.continual.benchmarks.parts import feature_head
from everlight_experiments.iirc import benchmark as iirc
from everlight_experiments.iirc.config import PRESETS
from everlight_experiments.images import benchmark as images_benchmark
from everlight_experiments.images.config import DIGITS
from tests.refusals import refused

FOR_PRETRAINED = {"APER", "task arithmetic", "TIES", "latent replay"}
REPRODUCTIONS = {
    "CWR as coded": ("core50-ni", "core50-nc", "core50-nic"),
    **dict.fromkeys(("iCaRL-CNN", "iCaRL-norm", "BiC-whole-pwJS"), ("iirc",)),
}
CAPABILITIES = frozenset(("one label", "class scores", "last weights"))


def stored(benchmark, capabilities, *requested):
    options = SimpleNamespace(benchmark=benchmark, methods=requested)
    settings = [SimpleNamespace(capabilities=names) for names in capabilities]
    benchmarks = {str(place): SimpleNamespace(setting=item) for place, item in enumerate(settings)}
    rows, lines = applicable_methods(options, benchmarks, list(METHODS.values()))
    return {*METHODS} - {row.name for row in rows}, lines


def test_rows_of_the_registry_state_where_they_belong():
    stated = {name: row.benchmarks for name, row in METHODS.items() if row.benchmarks}
    assert stated == REPRODUCTIONS
    assert {name for names in stated.values() for name in names} <= {*BENCHMARKS}
    advised = {name for name, row in METHODS.items() if row.advised}
    assert advised == FOR_PRETRAINED


def test_all_leaves_out_reproductions_and_methods_for_pretrained_layers():
    missing, lines = stored("digits", [CAPABILITIES], "all")
    assert missing == FOR_PRETRAINED | {*REPRODUCTIONS}
    assert len(lines) == 3
    (advice,) = [line for line in lines if "TIES" in line]
    assert advice == (
        "--methods all leaves out task arithmetic, TIES, APER, latent replay, which "
        f"{INCOMPATIBILITIES['pretrained layers']}; give --pretrained or --features; "
        "--methods runs it by name"
    )
    assert any("CWR as coded" in line and "core50-ni" in line for line in lines)


@pytest.mark.parametrize("benchmark", ["core50-nc:small", "iirc"])
def test_papers_benchmarks_and_pretrained_layers_keep_them(benchmark):
    result, _ = stored(benchmark, [CAPABILITIES | {"pretrained layers"}], "all")
    belongs = {name for name, names in REPRODUCTIONS.items() if benchmark.split(":")[0] in names}
    assert result == {*REPRODUCTIONS} - belongs
    assert belongs


def test_a_name_runs_them_and_one_line_warns_of_layers_drawn_at_random():
    missing, lines = stored("digits", [CAPABILITIES], "TIES", "CWR as coded", "ER")
    assert not missing & {"TIES", "CWR as coded", "ER"}
    warning = [line for line in lines if line.startswith("of little use here")]
    expected = (
        f"TIES, which {INCOMPATIBILITIES['pretrained layers']}; give --pretrained or --features"
    )
    assert warning == [f"of little use here: {expected}"]
    assert "CWR as coded" not in warning[0]


def test_one_setting_with_pretrained_layers_is_enough():
    missing, _ = stored("digits", [CAPABILITIES, CAPABILITIES | {"pretrained layers"}], "all")
    assert not missing & FOR_PRETRAINED


def refuse(requirements, remedies=(), requested="M", version="", capabilities=((),)):
    """Check a method M with these requirements against settings with the capabilities."""
    row = METHODS["naive"]._replace(name="M", requirements=requirements, version=version)
    settings = [
        SimpleNamespace(setting=SimpleNamespace(capabilities={*names}, remedies=dict(remedies)))
        for names in capabilities
    ]
    refuse_inapplicable(dict(enumerate(settings)), (requested,), [row])


BLURRY = {
    "disjoint classes": ("--blurry 0",),
    "task-incremental": ("--setting task-incremental", "--blurry 0"),
}


@pytest.mark.parametrize(
    ("requirements", "remedies", "advice"),
    [
        (["multi-label"], {}, ""),
        (["task boundaries"], {}, "; give --boundaries"),
        (
            ["task-incremental", "hidden layers"],
            {},
            "; give --setting task-incremental and --net mlp:256,256",
        ),
        (["pretrained transformer"], {}, "; give --net vit --pretrained ViT-B_16.npz"),
        (["disjoint classes"], BLURRY, "; give --blurry 0"),
        (["disjoint classes", "task-incremental"], {}, ""),
        (["task-incremental", "disjoint classes"], {}, "; give --setting task-incremental"),
        (
            ["task-incremental", "disjoint classes"],
            BLURRY,
            "; give --setting task-incremental and --blurry 0",
        ),
    ],
)
def test_a_method_that_applies_in_no_setting_is_refused_with_its_remedy(
    requirements, remedies, advice
):
    line = f"M {INCOMPATIBILITIES[requirements[0]]}{advice}"
    refused(f"^{re.escape(line)}$", lambda: refuse(requirements, remedies), DataError)


def test_methods_that_nobody_requested_or_one_setting_takes_are_not_refused():
    missing = ["multi-label"]
    refuse(missing, requested="all")
    refuse(missing, capabilities=((), missing))
    refused("^M needs", lambda: refuse(missing, requested="all", version="v1"), DataError)


def test_methods_without_a_value_are_named_where_no_image_is_for_selection():
    words = ["digits", "--validation-fraction", "0", "--methods", "SI", "online EWC", "ER"]
    expected = "--hyperparameters 'online EWC=100' SI=0.01 "
    refused(expected, lambda: refuse_without_values(load_suite(options_of("run", words))))
    values = ["--hyperparameters", "SI=1", "online EWC=2", "--no-published"]
    refuse_without_values(load_suite(options_of("run", [*words, *values])))


def test_epochs_that_the_online_setting_does_not_read_are_named():
    words = ["digits", "--setting", "class-incremental", "online", "--methods", "joint"]
    suite = load_suite(options_of("run", [*words, "--epochs", "7"]))
    (line,) = suite.lines
    assert line.startswith("--epochs changes nothing in the setting online")
    epochs = {
        name: benchmark.training.protocol(suite.methods[-1]).epochs
        for name, benchmark in suite.benchmarks.items()
    }
    assert epochs == {"class-incremental": 7, "online": 1}
    assert not load_suite(options_of("run", words)).lines
    assert not load_suite(options_of("run", ["digits", "--epochs", "7"])).lines


def test_the_command_leaves_them_out_of_split_digits():
    loaded = load_suite(options_of("run", ["digits", "--methods", "all", "--no-published"]))
    names = {row.name for row in loaded.methods}
    assert not names & (FOR_PRETRAINED | {*REPRODUCTIONS})
    assert {"ER", "SLCA", "CoFiMA", "CWR*", "nearest mean"} <= names
    assert len(loaded.lines) == 3
    requested = ["digits", "--methods", "TIES", "--no-published"]
    assert [row.name for row in load_suite(options_of("run", requested)).methods] == [
        "naive",
        "TIES",
    ]


@pytest.mark.parametrize(
    ("changes", "pretrained"),
    [({}, False), ({"features": "f.npz"}, True), ({"pretrained": Path("v.npz")}, True)],
)
def test_images_have_pretrained_layers_where_they_are_given(changes, pretrained):
    config = replace(DIGITS, **changes)
    net = feature_head("features", 10)
    result = images_benchmark.capabilities_of(net, "class-incremental", config, False)
    assert ("pretrained layers" in result) == pretrained


@pytest.mark.parametrize("features", [None, "efficientnet-lite0"])
def test_iirc_has_pretrained_layers_with_features_alone(features):
    config = replace(PRESETS["demo"], features=features)
    result = iirc.capabilities_of(config, feature_head("features", 10))
    assert ("pretrained layers" in result) == (features is not None)


@pytest.mark.parametrize(
    ("methods", "lines"),
    [
        ("SI", ["--buffer-size", "--replay-batch-size"]),
        ("SI ER", []),
        ("ER-balanced", ["--replay-batch-size"]),
    ],
)
def test_memory_options_that_no_method_reads_are_named(methods, lines):
    words = f"digits --methods {methods} --buffer-size 20"
    suite = load_suite(options_of("run", [*words.split(), "--replay-batch-size", "8"]))
    unread = [line.partition(" ")[0] for line in suite.lines if "no method of this run" in line]
    assert unread == lines
