"""Options that the benchmark of a command does not read are refused, if the user gave them."""

from dataclasses import replace
from typing import get_args

import pytest

from everlight_data.errors import DataError
from everlight_experiments.cl_metrics.paper import PAPER as CL_METRICS
from everlight_experiments.cli import options_of
from everlight_experiments.commands.benchmark_registry import load_benchmarks
from everlight_experiments.continual.benchmarks.config import refuse_options
from everlight_experiments.core50.paper import PAPER as CORE50
from everlight_experiments.core50_static.paper import PAPER as CORE50_STATIC
from everlight_experiments.facts.paper import PAPER as FACTS
from everlight_experiments.run_folder.config_options import given_options
from everlight_experiments.run_folder.options import Preset
from everlight_experiments.usage import parse_options
from tests.refusals import refused

ONLINE = "digits --setting online"
BUDGET = "digits --compute-budget 9"
UNREAD = {
    "digits --test-every 3": "with --data digits, which has its own test images",
    "images --data tfds:mnist --test-every 3": "with --data tfds:mnist, which has",
    "images --data mine --test-data tests --test-every 3": "with --test-data; leave it out",
    "digits --online-batch 3": "without --setting online; leave it out, or give that setting",
    "digits --features-learning-rate 0.5": "without --features; give --learning-rate",
    "digits --stream permuted --order natural": "with --stream permuted, whose tasks have all",
    "mnist --exemplars-per-class 5": "with --buffer-size; give that, or --buffer-size None",
    f"{BUDGET} --epochs 7": "with --compute-budget, in whose place it stands; leave one",
    f"{BUDGET} --first-epochs 7": "with --compute-budget",
    f"{BUDGET} --epoch-steps 7": "with --compute-budget",
    f"{BUDGET} --milestones 3": "with --compute-budget",
    f"{ONLINE} --epochs 7": "with --setting online, which has one pass in batches of --online-b",
    f"{ONLINE} --updates-per-batch 5": "with --setting online, which has one pass",
    f"{ONLINE} --batch-size 7": "with --setting online; give --online-batch",
    "digits --plateau-patience 3": "without --plateau-factor; give this too",
    "digits --plateau-threshold 3": "without --plateau-factor",
    "digits --epochs 5 --milestones 3 5": "from the last of 5 epochs on; give smaller ones",
    "facts --milestone-factor 0.5": "without --milestones; give them too",
    "facts --select best": "here, where no task has validation images; give last",
    "facts --plateau-factor 0.5": "here, where no task has validation images; leave it out",
    "iirc --superclasses 3": "without --data tiny-imagenet; leave it out",
    "iirc --undecodable skip": "with --data procedural, whose images are in memory",
    "iirc --memory-limit 9": "with --data procedural, whose images are in memory",
    "iirc --features-learning-rate 0.5": "without --features; give --learning-rate",
    "iirc --milestone-factor 0.5": "without --milestones",
    "core50-ni --partial": "without --data core50; leave it out",
    "core50-ni --preset paper --frames 9": "with --data core50, which has all of its frames",
    "core50-ni --preset paper --hidden 9": "with --net Mid-CaffeNet; leave it out",
    "core50-ni --preset paper --channels 9 9": "with --net Mid-CaffeNet",
    "core50-ni --preset paper --pretraining.epochs 9": "with --net Mid-CaffeNet",
    "core50-ni --gain 2": "by core50-ni; leave it out",
    "core50-nc --nic.first 9": "by core50-nc; leave it out",
    "facts --memory-limit 9": "without --splits; leave it out",
    "facts --data vrd --scenes 9 9": "without --data procedural; leave it out",
    "facts --splits mine --scenes 9 9": "with --splits; leave it out",
}
PAPERS = {"cl-metrics": CL_METRICS, "core50-static": CORE50_STATIC, "facts": FACTS}


@pytest.mark.parametrize(("words", "reason"), UNREAD.items())
def test_options_of_another_variant_are_refused(tmp_path, words, reason):
    options = options_of("run", [*words.split(), "--runs", str(tmp_path)])
    *_, option = [word for word in words.split() if word.startswith("--")]
    refused(f"^{option} is not read {reason}", lambda: load_benchmarks(options), DataError)


def test_a_folder_of_idx_files_has_its_own_test_images(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").touch()
    options = options_of("run", ["images", "--data", str(tmp_path), "--test-every", "3"])
    message = f"^--test-every is not read with --data {tmp_path}, which has its own test images"
    refused(message, lambda: load_benchmarks(options), DataError)


@pytest.mark.parametrize(
    ("paper", "words", "reason"),
    [
        (
            "cl-metrics",
            "--online-batch 3",
            "without --setting online; leave it out, or give that setting",
        ),
        ("core50-static", "--partial", "without --data core50; leave it out"),
        ("core50-static", "--preset paper --hidden 5", "with --net Mid-CaffeNet; leave it out"),
        ("facts", "--memory-limit 9", "without --splits; leave it out"),
        ("facts", "--data vrd --scenes 9 9", "without --data procedural; leave it out"),
        (
            "facts",
            "--preset small --large-scale.plateau-patience 3",
            "without --large-scale.plateau-factor; give this too",
        ),
        (
            "facts",
            "--mid-scale.select best",
            "here, where no task has validation images; give last",
        ),
        ("facts", "--mid-scale.milestones 6", "from the last of 6 epochs on; give smaller ones"),
    ],
)
def test_papers_refuse_them_too(tmp_path, paper, words, reason):
    options = options_of(f"paper {paper}", [*words.split(), "--runs", str(tmp_path)])
    *_, option = [word for word in words.split() if word.startswith("--")]
    refused(f"^{option} is not read {reason}$", lambda: PAPERS[paper].run(options), DataError)


@pytest.mark.parametrize(
    ("paper", "words"),
    [
        *((paper, f"--preset {preset}") for paper in PAPERS for preset in get_args(Preset)),
        ("core50-static", "--hidden 9 --frames 9 --pretraining.epochs 9"),
        ("core50-static", "--preset paper --partial"),
        ("facts", "--splits mine --memory-limit 9"),
        ("facts", "--scenes 9 9 --mid-scale.select last --mid-scale.milestones 5"),
    ],
)
def test_papers_read_their_presets_and_other_options(tmp_path, paper, words):
    """The experiment begins after the options are checked."""
    options = options_of(f"paper {paper}", [*words.split(), "--runs", str(tmp_path)])

    def begin(*arguments):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        PAPERS[paper]._replace(experiment=begin).run(options)


@pytest.mark.parametrize(
    ("words", "reason"),
    {
        "--scenarios NI --nc.first 9": "without --scenarios NC; leave it out",
        "--scenarios NC NI --nic.later 9": "without --scenarios NIC; leave it out",
        "--scenarios NI --gain 2": "without --scenarios NC or NIC; leave it out",
    }.items(),
)
def test_options_of_scenarios_that_do_not_run_are_refused(tmp_path, words, reason):
    arguments = [*words.split(), "--runs", str(tmp_path)]
    options = parse_options(CORE50.options(arguments), arguments)
    *_, option = [word for word in words.split() if word.startswith("--")]
    refused(f"^{option} is not read {reason}", lambda: CORE50.run(options), DataError)


def test_a_scenario_that_is_named_twice_is_refused():
    config = replace(CORE50.presets["demo"], scenarios=("NC", "NI", "NI"))
    refused("^--scenarios has NI twice; give it once$", lambda: config.check_changed([]), DataError)


def test_options_of_scenarios_that_run_are_not_refused():
    config = replace(CORE50.presets["demo"], scenarios=("NI", "NC"))
    config.check_changed(["ni.first", "nc.later-rate", "gain", "scenarios"])


@pytest.mark.parametrize(
    "words",
    [
        "core50-ni --preset paper",
        "mnist --setting online --online-batch 3 --no-boundaries --evaluate-steps 9",
        "mnist --buffer-size None --exemplars-per-class 5",
        "mnist --epochs 4 --milestones 3 --milestone-factor 0.5",
        "images --data mine --test-every 3 --plateau-factor 0.5 --plateau-patience 3",
        "digits --setting class-incremental online --epochs 7 --online-batch 3",
        "core50-nc --nc.first 9 --gain 2 --frames 9 --hidden 9 --pretraining.epochs 9",
        "core50-nc --preset paper --partial",
        "iirc --data tiny-imagenet --superclasses 3",
        "iirc --data iirc_imagenet_lite --undecodable skip --memory-limit 9",
        "facts --splits mine --memory-limit 9",
        "facts --data procedural --scenes 9 9",
    ],
)
def test_options_that_are_read_and_values_of_presets_are_not_refused(words):
    """CORe50's preset paper has numbers of frames and of pretraining, which it does not read."""
    options = options_of("run", words.split())
    settings = options.setting or ("class-incremental",)
    refuse_options(given_options(options), options.config.unread(options.benchmark, settings))
