"""Results of finished runs: final scores by setting and method, options by name."""

import json

import numpy as np
import pytest

from everlight_data.errors import DataError, MissingDataError
from everlight_data.finished_runs import name_other_options, read_finished_run
from everlight_data.writing import save_sealed


def finished(folder, rate):
    folder.mkdir()
    save_sealed(
        folder / "results.npz",
        draws=np.arange(2),
        data=np.arange(4),
        measure=np.array("accuracy"),
        **{"online/ER/accuracy": np.array([[0.1, 0.2], [0.3, 0.4]]), "online/ER/steps": np.ones(2)},
    )
    settings = {"seed": 0, "config": {"learning_rate": rate, "protocol": {"epochs": 2}}}
    (folder / "config.json").write_text(json.dumps({"settings": settings}))
    return folder


def test_finals_and_options_are_read_by_name(tmp_path):
    first, second = (read_finished_run(finished(tmp_path / str(rate), rate)) for rate in (0.1, 0.5))
    np.testing.assert_array_equal(first.finals["online"]["ER"], [0.2, 0.4])
    assert (first.name, first.score, first.data) == ("0.1", "accuracy", (0, 1, 2))
    assert first.options == {"seed": 0, "learning_rate": 0.1, "protocol.epochs": 2}
    assert name_other_options([first, second]) == "learning_rate: 0.1 | 0.5"
    assert name_other_options([first, second], {"learning_rate"}) == "none"


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(MissingDataError, match=r"results\.npz does not exist\. Name the folder of"):
        read_finished_run(tmp_path)
    save_sealed(tmp_path / "results.npz", draws=np.arange(2))
    with pytest.raises(DataError, match=r"results\.npz lacks data, measure\. Name the folder"):
        read_finished_run(tmp_path)
