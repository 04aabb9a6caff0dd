"""Files of events: plain JSON in order, each once, and a line that a kill cut short left out."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.runs.events import append_event, read_scalars, whole_events


def test_lines_are_json_in_order(tmp_path):
    path = tmp_path / "events.jsonl"
    append_event(path, {"step": 0, "loss": np.float32(0.5), "split": "é\nnew line"})
    append_event(path, {"step": np.int64(1), "losses": jnp.array([1.0, 2.0]), "matrix": np.eye(2)})
    append_event(path, {"seconds": np.nan, "losses": np.array([1, np.inf])})
    first, second, third = path.read_text().splitlines()
    assert json.loads(first) == {"step": 0, "loss": 0.5, "split": "é\nnew line"}
    assert json.loads(second) == {"step": 1, "losses": [1, 2], "matrix": [[1, 0], [0, 1]]}
    assert third == '{"seconds": null, "losses": [1.0, null]}'


def test_events_are_read_back_once_but_for_a_line_cut_short(tmp_path):
    path = tmp_path / "events.jsonl"
    append_event(path, {"unit": "a", "seconds": 1.5})
    with path.open("a") as stream:
        stream.write('{"unit": "b", "sec')
    assert whole_events(path.read_text()) == [{"unit": "a", "seconds": 1.5}]
    for _ in range(2):
        append_event(path, {"unit": "c", "seconds": 3.0})
    assert [event["unit"] for event in whole_events(path.read_text())] == ["a", "c"]


@pytest.mark.parametrize(
    "line",
    ["[" * 5_000 + "]" * 5_000, "9" * 5_000, f'{{"loss": 1{"0" * 400}}}'],
    ids=["brackets", "digits", "more than a float"],
)
def test_lines_that_no_program_can_read_are_refused(line, tmp_path):
    path = tmp_path / "metrics.jsonl"
    append_event(path, {"split": "train", "loss": [0.5, 2]})
    assert list(read_scalars(path, "")) == [("train/loss", 0, 0.5), ("train/loss", 1, 2.0)]
    with path.open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(DataError, match=r"metrics\.jsonl is damaged .*Again\."):
        list(read_scalars(path, "Again."))
