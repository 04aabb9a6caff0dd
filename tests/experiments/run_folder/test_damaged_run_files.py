"""Files of a run's folder that are damaged while the run continues."""

import pytest

from everlight_data.errors import DataError
from everlight_experiments.report.writer import Report, write_report
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions


@pytest.fixture
def folder(tmp_path):
    return RunFolder("paper", "run", ExperimentOptions(runs=tmp_path))


@pytest.mark.parametrize("damage", [b"\xff{", b"["])
def test_a_report_names_a_config_that_is_damaged_meanwhile(folder, damage):
    (folder.path / "config.json").write_bytes(damage)
    with pytest.raises(DataError, match=r"config\.json is damaged .*Write back what it held"):
        write_report(folder.path, "Title", Report([("Selection rule", "none")]))


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"[" * 100_000, b"9" * 5_000])
def test_damaged_events_are_named_with_what_to_do(folder, damage):
    with (folder.path / "metrics.jsonl").open("ab") as stream:
        stream.write(damage + b"\n")
    folder.log(unit="a", seconds=1.0)
    with pytest.raises(DataError, match=r"metrics\.jsonl .* only times of the report are lost"):
        folder.read_events()
