"""Values that identify runs: all of a configuration but those that it names."""

from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from everlight_experiments.cl_metrics.config import PRESETS as ICIFAR
from everlight_experiments.continual.benchmarks.config import BenchmarkConfig
from everlight_experiments.core50.config import PRESETS as CORE50
from everlight_experiments.core50_static.config import STATIC_PRESETS
from everlight_experiments.facts.config import PRESETS as FACTS
from everlight_experiments.iirc.config import PRESETS as IIRC


@pytest.mark.parametrize(
    "config", [presets["demo"] for presets in (ICIFAR, IIRC, CORE50, STATIC_PRESETS, FACTS)]
)
def test_all_fields_but_the_named_ones_identify_a_run(config):
    names, left_out = {field.name for field in fields(config)}, set(config.not_identifying)
    # The limit of the facts' memory is a field of a part.
    assert left_out <= names | {"memory_limit"}
    assert set(config.fingerprint()) == names - left_out


def test_a_new_field_identifies_a_run():
    @dataclass(frozen=True, kw_only=True)
    class Extended(type(CORE50["demo"])):
        momentum: float = 0.9

    config = Extended(**vars(CORE50["demo"]))
    assert replace(config, momentum=0.5).fingerprint() != config.fingerprint()


def test_fields_of_parts_count_too():
    config = FACTS["demo"]
    photographs = replace(config, data=replace(config.data, photographs=Path("photographs")))
    assert photographs.fingerprint()["data"]["photographs"] == "photographs"
    assert photographs.fingerprint() != config.fingerprint()
    limited = replace(config, data=replace(config.data, memory_limit=1))
    assert limited.fingerprint() == config.fingerprint()


def test_values_are_those_that_json_gives_back():
    @dataclass(frozen=True)
    class Sized(BenchmarkConfig):
        sizes: tuple[int, ...] = (3, 4)

    assert Sized().fingerprint() == {"sizes": [3, 4]}
