"""`--method-arguments`: the command gives methods arguments of their functions or says why not."""

import json

import numpy as np
import pytest

from everlight.continual.methods.registry import METHODS
from everlight.continual.methods.replay_variants import with_variants
from everlight_data.errors import DataError
from everlight_experiments.images.config import CONFIGS, config_of
from everlight_experiments.images.methods.arguments import with_method_arguments
from tests.experiments import command_runs

DIGITS = CONFIGS["digits"]["demo"]
ROWS = [METHODS[name] for name in ("naive", "EWC", "ER", "DER++", "A-GEM", "ER-ACE", "iCaRL")]


def run(runs, words):
    fixed = "digits --net mlp:8 --epochs 1 --seeds 1 --no-published --buffer-size 50"
    report = command_runs.run(runs, *f"{fixed} {words}".split())
    return json.loads((report.parent / "config.json").read_text())["methods"], report


def test_a_method_and_its_variants_have_the_arguments_and_others_do_not():
    config = with_method_arguments(DIGITS, ["DER++:alpha=0.2,beta=1", "EWC:online=True"], ROWS)
    _, review = with_variants([METHODS["DER++"]], ("review",))
    for method in (METHODS["DER++"], review):
        assert config_of(config, method).arguments == {"alpha": 0.2, "beta": 1.0}
    assert config_of(config, METHODS["EWC"]).arguments == {"online": True}
    assert not config_of(config, METHODS["ER"]).arguments


def test_arguments_that_take_words_have_those_of_the_method_s_function():
    requested = ["ER-ACE:loss_over=all", "iCaRL:classifier=nearest mean,loss=softmax"]
    config = with_method_arguments(DIGITS, requested, ROWS)
    assert config_of(config, METHODS["ER-ACE"]).arguments == {"loss_over": "all"}
    options = {"classifier": "nearest mean", "loss": "softmax"}
    assert config_of(config, METHODS["iCaRL"]).arguments == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DER++:0.2", r"'DER\+\+:0.2'; give NAME:ARGUMENT=VALUE"),
        ("DER++:alpha=x", r"alpha of DER\+\+ is a number, not 'x'"),
        ("ER-ACE:loss_over=al", r"no loss_over of ER-ACE 'al'; did you mean 'all'"),
        ("ER-ACE:loss_over=1", r"no loss_over of ER-ACE '1'. There are 'seen', 'all'"),
        ("DER:alpha=1", r"no method among those that are run: 'DER'; did you mean 'DER\+\+'"),
        ("DER++:alfa=1", r"no argument of DER\+\+ 'alfa'; did you mean 'alpha'.* 'alpha', 'beta'"),
        ("DER++:alpha=True", r"alpha of DER\+\+ is a number, not True"),
        ("EWC:importance_samples=0.5", r"importance_samples of EWC is a whole number, not 0.5"),
        ("EWC:importance_samples=0", r"arguments EWC: importance_samples=0; give 1 or more"),
        ("DER++:alpha=-1", r"--method-arguments DER\+\+: alpha=-1.0; give 0 or more"),
        ("EWC:online=1", r"online of EWC is True or False, not 1"),
        ("EWC:regularization=1", r"is its hyper-parameter; give --hyperparameters 'EWC=1'"),
        ("ER:buffer_size=9", r"no argument of ER 'buffer_size'"),
    ],
)
def test_unknown_arguments_of_a_method_are_refused(text, message):
    with pytest.raises(DataError, match=message):
        with_method_arguments(DIGITS, [text], ROWS)


def test_two_entries_of_one_method_are_refused():
    with pytest.raises(DataError, match=r"has 'DER\+\+' twice; give all its arguments in one"):
        with_method_arguments(DIGITS, ["DER++:alpha=1", "DER++:beta=1"], ROWS)


def test_benchmarks_without_such_a_configuration_refuse_them():
    with pytest.raises(DataError, match=r"--method-arguments: .* leave it out"):
        with_method_arguments(object(), ["DER++:alpha=1"], ROWS)


def test_without_weight_on_the_memory_a_method_is_naive_and_the_record_names_it(tmp_path):
    settings, report = run(
        tmp_path, "--methods DER++ --method-arguments DER++:alpha=0,beta=0 --loss-classes all"
    )
    recorded = settings["class-incremental-DER++"]
    assert (recorded["alpha"], recorded["beta"], recorded["loss_over"]) == (0, 0, "all")
    results, of = command_runs.arrays_of(report), "class-incremental/{}/accuracy by task"
    np.testing.assert_array_equal(results[of.format("naive")], results[of.format("DER++")])


@pytest.mark.parametrize("name", ["ER-ACE", "ER-ACE-MKD", "X-DER-RPC"])
def test_methods_that_limit_their_loss_do_not_run_where_it_covers_all_classes(tmp_path, name):
    with pytest.raises(DataError, match="limits its loss to some of the classes"):
        run(tmp_path, f"--methods {name} --loss-classes all")
