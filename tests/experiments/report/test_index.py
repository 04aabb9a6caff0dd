"""The page over all runs, and what is exported of one."""

import csv
import json
import os
import struct
import sys

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.runs.configs import write_config
from everlight_data.runs.folders import ReportTexts, write_report_texts
from everlight_data.writing import save_sealed
from everlight_experiments.report.export import ExportOptions, export
from everlight_experiments.report.index import ReportsOptions, write_index
from everlight_experiments.report.writer import Column, Figure, Report, Summary, Table, write_report
from tests.experiments.report.event_files import read_events

HOSTILE = "<script>alert(1)</script>"


def make_run(runs, name, preset="demo", headline=None, when=0):
    folder = runs / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"settings": {"preset": preset}}))
    last = folder / "config.json"
    if headline is not None:
        last = folder / "report.html"
        last.write_text("<h1>another</h1>")
        write_report_texts(folder, ReportTexts(headline, ""))
    os.utime(last, (when, when))
    return folder


def test_runs_are_listed_newest_first_with_links_to_their_reports(tmp_path):
    make_run(tmp_path, "old-demo", headline="It's old", when=86400)
    make_run(tmp_path, "new one#2", preset="small", headline="New", when=2 * 86400)
    make_run(tmp_path, "begun", when=0)
    (tmp_path / "no-run").mkdir()
    page = write_index(ReportsOptions(tmp_path)).read_text()
    assert page.index("New</a>") < page.index("It&#39;s old</a>") < page.index("not finished")
    assert 'href="./new%20one%232/report.html"' in page
    assert "<td>small</td>" in page
    assert "1970-01-03 00:00" in page
    assert "no-run" not in page
    assert page.count("<a ") == 2


def test_a_name_that_is_no_text_is_linked_by_its_bytes(tmp_path):
    make_run(tmp_path, os.fsdecode(b"bad\xff\x1b"), headline="Done")
    page = write_index(ReportsOptions(tmp_path)).read_text()
    assert 'href="./bad%FF%1B/report.html"' in page


def test_names_and_headlines_are_escaped_and_nothing_is_loaded(tmp_path):
    make_run(tmp_path, "a&b", preset=HOSTILE, headline=HOSTILE)
    page = write_index(ReportsOptions(tmp_path)).read_text()
    assert page.count("<script") == 1
    assert page.count("&lt;script&gt;alert(1)") == 2
    assert "a&amp;b" in page
    assert "http" not in page


def test_results_stand_beside_a_run(tmp_path):
    folder = make_run(tmp_path, "run")
    (folder / "plot.png").write_bytes(b"picture")
    figure, table = Figure("", folder / "plot.png"), Table("", [Column("a")], [])
    summary = Summary(("A < B & C.",), figure, table)
    write_report(folder, "Title > x", Report([("Selection rule", "")], summary=summary))
    page = write_index(ReportsOptions(tmp_path)).read_text()
    assert "Title &gt; x</a><br>A &lt; B &amp; C.</td>" in page


def test_a_damaged_run_is_listed_with_the_reason(tmp_path):
    make_run(tmp_path, "fine", headline="Fine")
    (make_run(tmp_path, "broken", headline="x") / "config.json").write_text("{")
    (make_run(tmp_path, "earlier", headline="x") / "report.json").unlink()
    (make_run(tmp_path, "other", headline="x") / "report.json").write_text('{"headline": 1}')
    page = write_index(ReportsOptions(tmp_path)).read_text()
    assert "Fine</a>" in page
    assert "broken/config.json" in page
    assert "earlier/report.json does not exist. Run it again" in page
    assert "other/report.json is damaged" in page


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no run"):
        write_index(ReportsOptions(tmp_path))


def test_events_become_scalars_under_their_texts(tmp_path):
    events = [
        {"rule": "honest", "method": "net", "mean_error": [2.5, None, 1.5]},
        {"unit": "a", "seconds": 3},
        {"unit": "a", "seconds": 4, "remarks": ["none"]},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    expected = [
        ("honest/net/mean_error", 0, 2.5),
        ("honest/net/mean_error", 2, 1.5),
        ("a/seconds", 0, 3),
        ("a/seconds", 1, 4),
    ]
    for _ in range(2):  # A second time replaces the first.
        assert read_events(export(ExportOptions(tmp_path, "tensorboard"))) == expected


def test_matrices_are_written_for_spreadsheets_and_for_other_languages(tmp_path):
    matrices = np.array([[[0.5, np.nan], [0.25, 1.0]], [[0.75, 0.0], [0.125, 0.5]]])
    fields = {
        "class-incremental/ER, reservoir/accuracy by task": matrices,
        "class-incremental/ER, reservoir/steps": np.full((2, 2), 4),
        "task-incremental/ER/seconds": np.zeros(2),
    }
    save_sealed(tmp_path / "results.npz", **fields)
    with export(ExportOptions(tmp_path, "matrices")).open() as stream:
        result = json.load(stream)
    assert result == {
        "class-incremental/ER, reservoir/accuracy by task": [
            [[0.5, None], [0.25, 1.0]],
            [[0.75, 0.0], [0.125, 0.5]],
        ]
    }
    (path,) = (tmp_path / "matrices").iterdir()
    assert path.name == "class-incremental_ER,_reservoir_accuracy_by_task.csv"
    with path.open(newline="") as stream:
        lines = list(csv.reader(stream))
    assert lines[0] == ["run", "after task", "task 0", "task 1"]
    assert lines[1:] == [
        ["0", "0", "0.5", "nan"],
        ["0", "1", "0.25", "1.0"],
        ["1", "0", "0.75", "0.0"],
        ["1", "1", "0.125", "0.5"],
    ]


def test_every_matrix_has_a_table_of_its_own(tmp_path):
    arrays = {}
    for name, value in (("nearest mean", 0.25), ("nearest_mean", 0.75)):
        arrays[f"NC/{name}/accuracy by task"] = np.full((1, 2, 2), value)
        arrays[f"NC/{name}/steps"] = np.full((1, 2), 4)
    save_sealed(tmp_path / "results.npz", **arrays)
    export(ExportOptions(tmp_path, "matrices"))
    tables = [path.read_text() for path in sorted((tmp_path / "matrices").iterdir())]
    assert ["0.25" in table for table in tables] == [True, False]
    assert ["0.75" in table for table in tables] == [False, True]


def test_a_run_without_matrices_is_reported(tmp_path):
    save_sealed(tmp_path / "results.npz", errors=np.zeros((2, 3)))
    with pytest.raises(DataError, match="has no accuracy matrices"):
        export(ExportOptions(tmp_path, "matrices"))


def test_a_missing_library_is_named_with_its_installation(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    line = r'wandb is not installed: pip install "everlight\[wandb\]"'
    with pytest.raises(DataError, match=line):
        export(ExportOptions(tmp_path, "wandb"))


def read_records(content):
    """Yield the records of W&B's file, by the definition of LevelDB's log.

    A header of seven bytes precedes blocks of 32 KiB. Each part of a record has a checksum, a
    length and a kind: a complete record, or the first, a middle or the last part of one.
    """
    place, part = 7, b""
    while place < len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        part += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield part
            part = b""


@pytest.mark.slow
def test_an_offline_run_holds_the_same_scalars(tmp_path):
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    lines = [{"method": "net", "error": [2.5, None, 1.5]}, {"unit": "a", "seconds": 3}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(item) + "\n" for item in lines))
    write_config(tmp_path / "config.json", {"seed": 7}, {})
    (path,) = export(ExportOptions(tmp_path, "wandb")).glob("offline-run-*/*.wandb")
    results, config = [], {}
    for content in read_records(path.read_bytes()):
        record = Record.FromString(content)
        row = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        results += [row] if row else []
        config |= {item.key: item.value_json for item in record.run.config.update}
    assert config["seed"] == "7"
    stored = [{key: row[key] for key in row if not key.startswith("_")} for row in results]
    assert stored == [
        {"net/error": 2.5, "net/error/step": 0},
        {"net/error": 1.5, "net/error/step": 2},
        {"a/seconds": 3, "a/seconds/step": 0},
    ]
