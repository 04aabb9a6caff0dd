"""Several processes as one run: what cannot be joined, and what one process does alone."""

import jax
import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.runs.processes import gather_arrays, is_first
from everlight_experiments.run_folder.processes import broadcast_from_first, join_processes


@pytest.mark.parametrize(
    ("distributed", "message"),
    [
        ("two", "give cluster, or number/processes@host:port, such as 0/2@localhost:1234"),
        ("0/2@localhost", "give cluster, or number/processes@host:port"),
        ("2/2@localhost:1234", "processes are counted from 0"),
    ],
)
def test_invalid_process_options_are_refused(distributed, message):
    with pytest.raises(DataError, match=message):
        join_processes(distributed)


def test_a_missing_cluster_is_reported(monkeypatch, capsys):
    def initialize(initialization_timeout):
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    with pytest.raises(DataError, match="no cluster gives this process its number"):
        join_processes("cluster")
    assert "waits for the others, 300 s at most" in capsys.readouterr().out


def test_one_process_is_recognized():
    join_processes(None)
    assert is_first()
    result = {"a": np.arange(3)}
    assert broadcast_from_first(lambda: result) is result
    assert broadcast_from_first(lambda: None) is None
    np.testing.assert_array_equal(gather_arrays(np.arange(3)), [[0, 1, 2]])
