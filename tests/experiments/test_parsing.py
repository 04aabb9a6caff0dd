"""`--config`: a run's config.json, a preset or a user's own file gives all options."""

import json
from dataclasses import asdict, replace

import pytest

from everlight_data.errors import DataError
from everlight_data.runs.configs import write_config
from everlight_data.runs.descriptions import as_json
from everlight_experiments.cli import options_of
from everlight_experiments.commands.benchmark_registry import BENCHMARKS
from everlight_experiments.commands.option_defaults import read_options, run_options
from everlight_experiments.commands.options import RunOptions
from everlight_experiments.continual.benchmarks.statements import Statement
from everlight_experiments.images.config import DIGITS
from everlight_experiments.run_folder.folder import RunFolder

SHORT = "--tasks 2 --epochs 1 --seeds 1 --methods ER"
PICTURES = "--classes 4 --per-class 8 4"


@pytest.mark.parametrize(
    "words",
    [
        "digits --batch-size 64 --buffer-size 30 --setting online",
        f"procedural {PICTURES} --seed 3 --net mlp:8 --optimizer adam:b1=0.8",
        f"icifar {PICTURES} --net small-cnn:2,4,8 --setting task-incremental",
        "facts --scenes 60 20",
    ],
)
def test_config_json_holds_every_option_of_a_run(words, tmp_path):
    """The cases are the demo of a data set, of rendered images and of two papers."""
    runs = "--runs", str(tmp_path)
    options = options_of("run", [*words.split(), *SHORT.split(), *runs])
    folder = RunFolder("run", words.split()[0], options)
    stored = folder.path / "config.json"
    again = options_of("run", ["--config", str(stored), *runs])
    for name in ("config", "methods", "setting", "seed", "seeds"):
        assert getattr(again, name) == getattr(options, name)
    content = json.loads(stored.read_text())
    content["settings"]["seeds"] = "one"
    stored.write_text(json.dumps(content))
    with pytest.raises(DataError, match="seeds: 'one' is not of type int"):
        options_of("run", ["--config", str(stored)])
    folder.remove_empty()


def test_config_json_of_every_preset_is_read_back(tmp_path):
    path = tmp_path / "config.json"
    for name, preset in presets():
        options = run_options([name, "--preset", preset])()
        path.write_text(json.dumps({"settings": as_json(asdict(options))}))
        assert vars(read_options(RunOptions, path)) == vars(options)


def presets():
    """Return every benchmark's name with each of its presets."""
    return [(name, preset) for name, entry in BENCHMARKS.items() for preset in entry.configs]


def test_a_configuration_of_ones_own_is_a_python_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import replace\n"
        "from everlight_experiments.images.config import DIGITS\n"
        "MINE = replace(DIGITS, net='mlp:3')\nnumber = 3\n"
        "NET, TASKS = replace(DIGITS, net=5), replace(DIGITS, tasks='5')\n"
    )
    result = options_of("run", ["--config", f"{path}:MINE", "--epochs", "2"])
    assert (result.benchmark, result.config.net) == ("images", "mlp:3")
    assert result.config.protocol.epochs == 2
    assert options_of("run", ["digits", "--config", f"{path}:MINE"]).benchmark == "digits"
    for words, message in (
        ([f"{path}:number"], "is builtins.int; give the config.json of a run"),
        ([f"{path}:NET"], "NET: Config: net=5; give text"),
        ([f"{path}:TASKS"], "TASKS: Config: tasks='5'; give a tuple of an integer"),
        ([f"{path}:MIEN"], "has no 'MIEN'; did you mean 'MINE'"),
        (["nowhere.json"], "nowhere.json does not exist"),
    ):
        with pytest.raises(DataError, match=message):
            options_of("run", ["--config", *words])
    with pytest.raises(DataError, match=r"images.config.Config; iirc takes .*iirc"):
        options_of("run", ["iirc", "--config", f"{path}:MINE"])


def test_python_files_that_a_config_json_names_are_printed_before_they_run(tmp_path, capsys):
    net = "from everlight.models import MLP\ndef net(classes): return MLP(classes, (8,))\n"
    (tmp_path / "net.py").write_text(net)
    source_code = "from everlight.continual import naive\ndef mine(setup): return naive(setup)\n"
    (tmp_path / "own.py").write_text(source_code)
    words = ["--strategy", f"{tmp_path}/own.py:mine", "--net", f"{tmp_path}/net.py:net"]
    options = options_of("run", ["digits", *words, "--runs", str(tmp_path)])
    stored = RunFolder("run", "digits", options).path / "config.json"
    lines = [f"runs {tmp_path}/{name}, which {stored} names\n" for name in ("own.py", "net.py")]
    for more, expected in (([], lines), (["--net", "mlp:8"], lines[:1])):
        capsys.readouterr()
        options_of("run", ["--config", str(stored), *more])
        assert capsys.readouterr().out == "".join(expected)


def test_a_preset_is_a_configuration_too():
    result = options_of("run", ["--config", "digits", "--seeds", "2"])
    assert (result.benchmark, result.config, result.seeds) == ("digits", DIGITS, 2)
    assert options_of("run", ["--config", "iirc:small"]).preset == "small"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--config {run} --preset small", "config.json has all values; leave out --preset small"),
        ("digits:demo --config {run}", "config.json has all values; leave out :demo"),
        ("--config {file}:MINE --preset small", "MINE has all values; leave out --preset small"),
        ("iirc:small --preset paper", "iirc:small names its preset; leave out --preset paper"),
        ("mnist --config {run}", r"config.json is of digits; leave out mnist, or name that$"),
        ("mnist --config {file}:MINE", "MINE has the data 'digits'; name images instead of mnist"),
        ("iirc --config {run}", r"config.json is .*images.config.Config; iirc takes .*iirc"),
    ],
)
def test_a_preset_or_benchmark_that_a_configuration_excludes_is_refused(words, message, tmp_path):
    """Each would change the name of the run's folder and leave its values, or fail later."""
    options = options_of("run", ["digits", "--runs", str(tmp_path)])
    stored = RunFolder("run", "digits", options).path / "config.json"
    file = tmp_path / "mine.py"
    file.write_text("from everlight_experiments.images.config import DIGITS as MINE\n")
    with pytest.raises(DataError, match=message):
        options_of("run", words.format(run=stored, file=file).split())


@pytest.mark.parametrize(
    ("command", "other", "option"), [("tune", "run", "hyperparameters"), ("run", "tune", "vary")]
)
def test_a_config_json_of_another_command_is_named(command, other, option, tmp_path):
    path = tmp_path / "config.json"
    write_config(path, as_json(asdict(options_of(other, ["digits"]))), {})
    message = rf"{path} is of another command .* '{option}'; give .* of everlight {command}$"
    with pytest.raises(DataError, match=message):
        options_of(command, ["--config", str(path)])


def test_texts_of_the_report_may_differ_from_the_folder_s(tmp_path):
    """A later version may state differently how values were chosen."""
    options = options_of("run", ["digits", "--runs", str(tmp_path)])
    RunFolder("run", "digits", options).log(unit="a", seconds=1.0)
    (tmp_path / "run-digits-demo" / "units").mkdir()
    (tmp_path / "run-digits-demo" / "units" / "a.npz").write_bytes(b"work")
    texts = replace(options.config, chosen=(Statement("Otherwise."),), features_chosen=())
    RunFolder("run", "digits", replace(options, config=texts))
    rate = replace(options.config, learning_rate=0.5)
    with pytest.raises(DataError, match=r"other settings .*learning_rate"):
        RunFolder("run", "digits", replace(options, config=rate))
