"""Any setting of a plan from the command line: what it changes, and what it refuses."""

import dataclasses
import json
from typing import Literal, NamedTuple

import pytest
from everlight_experiments.common.plan_settings import (
    changed_plan,
    plan_in_force,
    take_plan_options,
)

from everlight.continual import Protocol
from everlight_data.errors import DataError
from everlight_experiments import cli
from everlight_experiments.common.settings import Share


class Part(NamedTuple):
    steps: int
    rate: float = 0.1


@dataclasses.dataclass(frozen=True)
class Plan:
    protocol: Protocol = dataclasses.field(default_factory=lambda: Protocol(epochs=3))
    channels: tuple[int, ...] = (4, 8)
    rate: float = 0.5
    data: str = "procedural"
    most: int | None = None
    parts: dict = dataclasses.field(default_factory=lambda: {"NI": Part(7)})
    pair: tuple[int, int] = (1, 2)
    kind: Literal["hat", "coat"] = "hat"
    shares: tuple[Share, ...] = (0.5,)


def test_options_are_taken_out_of_the_arguments():
    given = ["--seeds", "3", "--plan.protocol.epochs", "5", "--plan.per-class=(2, 1)", "digits"]
    rest, found = take_plan_options(given)
    assert rest == ["--seeds", "3", "digits"]
    assert found == {"protocol.epochs": 5, "per_class": (2, 1)}
    assert take_plan_options(["--plan.data", "cifar100", "--plan.learning-rate=1e-3"])[1] == {
        "data": "cifar100",
        "learning_rate": 1e-3,
    }
    with pytest.raises(DataError, match=r"--plan\.learning-rate without a value"):
        take_plan_options(["--plan.learning-rate"])
    # What is no number may be the command's own, as digits above.
    with pytest.raises(DataError, match=r"--plan\.sizes 100 50: .* as in --plan\.sizes 100,50$"):
        take_plan_options(["--plan.sizes", "100", "50"])
    assert take_plan_options(["--plan.sizes", "100,50"])[1] == {"sizes": (100, 50)}


def test_settings_are_changed_wherever_they_stand():
    changes = {
        "protocol.epochs": "5",
        "channels": "16",
        "rate": "1",
        "data": "cifar100",
        "most": "7",
        "parts.NI.steps": "2",
    }
    assert changed_plan(Plan(), changes) == Plan(
        Protocol(epochs=5), (16,), 1.0, "cifar100", 7, {"NI": Part(2)}
    )
    assert isinstance(changed_plan(Plan(), changes).rate, float)
    # As they are read back from config.json.
    assert changed_plan(Plan(), {"channels": [16, 8], "rate": 0.25}) == Plan(
        channels=(16, 8), rate=0.25
    )
    assert changed_plan(Plan(), {}) == Plan()


def test_names_with_hyphens_are_found_as_the_command_line_writes_them():
    plan = Plan(parts={"mid-scale": Part(7)})
    _, changes = take_plan_options(["--plan.parts.mid-scale.steps", "2"])
    assert changed_plan(plan, changes).parts == {"mid-scale": Part(2)}


def test_the_plan_in_force_is_shown_with_all_its_parts():
    shown = plan_in_force(Plan(most=3))
    assert shown["protocol"]["epochs"] == 3
    assert shown["protocol"]["select"] == "best"
    assert shown["parts"] == {"NI": {"steps": 7, "rate": 0.1}}
    assert (shown["channels"], shown["most"]) == ((4, 8), 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": "5"}, r"no setting --plan\.epochs; did you mean --plan\.protocol\.epochs\?"),
        ({"chosen": "well"}, r"no setting --plan\.chosen, at 'chosen'"),
        ({"protocol.epoch": "5"}, r"no setting --plan\.protocol\.epoch, at 'epoch'; .*'epochs'"),
        ({"protocl.epochs": "5"}, r"at 'protocl'; did you mean 'protocol'"),
        ({"protocol.epochs": "many"}, r"--plan\.protocol\.epochs many; give something like 3"),
        ({"protocol.epochs": "0"}, r"--plan\.protocol\.epochs 0; give 1 or more"),
        ({"rate": "1e999"}, r"--plan\.rate inf; give a finite number"),
        ({"pair": "3"}, r"--plan\.pair \(3,\); give 2 values"),
        ({"kind": "hard"}, r"no value --plan\.kind 'hard'; did you mean 'hat'"),
        ({"shares": "0.5,2"}, r"--plan\.shares 2; give 1 or less"),
        ({"protocol.epochs": "2.5"}, r"give something like 3"),
        ({"rate.of": "1"}, r"rate has no parts, it is 0\.5"),
        ({"protocol": "5"}, r"give something like|has parts"),
        ({"parts.NC.steps": "2"}, r"at 'NC'.* There are 'NI'"),
    ],
)
def test_what_cannot_be_changed_is_named(changes, message):
    with pytest.raises(DataError, match=message):
        changed_plan(Plan(), changes)


def test_what_was_given_is_not_said_to_be_chosen():
    @dataclasses.dataclass(frozen=True)
    class Chosen:
        rate: float = 0.5
        chosen: str = "on validation"

    assert changed_plan(Chosen(), {}).chosen == "on validation"
    said = changed_plan(Chosen(), {"rate": 1}).chosen
    assert said == "Given on the command line: rate. The rest: on validation"


def test_they_are_recorded_in_the_run(tmp_path, monkeypatch):
    found = []
    monkeypatch.setitem(
        cli.RUNS, "cl_metrics icifar", (cli.RUNS["cl_metrics icifar"][0], found.append)
    )
    cli.main(["cl_metrics", "icifar", "--plan.protocol.epochs", "5"])
    assert json.loads(json.dumps(dataclasses.asdict(found[0]), default=str))["plan"] == {
        "protocol.epochs": 5
    }
    found.clear()
    monkeypatch.setitem(cli.RUNS, "continual run", (cli.RUNS["continual run"][0], found.append))
    cli.main(
        ["continual", "run", "digits", "--exemplars-per-class", "4", "--replay-batch-size", "64"]
    )
    assert (found[0].exemplars_per_class, found[0].replay_batch_size) == (4, 64)
    with pytest.raises(SystemExit, match=r"--plan\.epochs: reports has no plan"):
        cli.main(["reports", "--plan.epochs", "5"])
