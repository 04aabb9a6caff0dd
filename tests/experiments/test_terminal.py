"""Text for a terminal: aligned tables, and no control characters but those of progress bars."""

import io

from everlight_experiments import cli
from everlight_experiments.terminal import PrintableStream, aligned_row, aligned_rows


def test_names_of_folders_are_printed_with_escapes(tmp_path, capsys, monkeypatch):
    """The name holds codes that terminals obey: a colour, the bell, the direction of text."""
    name = "a\x1b[31mb\x07c\u202ed"
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path / name))
    cli.main(["data", "list"])
    message = capsys.readouterr().out
    assert f"EVERLIGHT_DATA={tmp_path}/a\\x1b[31mb\\x07c\\u202ed" in message
    assert all(item.isprintable() or item == "\n" for item in message)


def test_progress_bars_may_move_the_cursor_and_text_may_not():
    stream = io.StringIO()
    printed = PrintableStream(stream)
    printed.writelines(["a\tb\r\n", "\x1b[A", "\n\x1b[A\x1b[A", "of a file: \x1b[A"])
    assert stream.getvalue() == "a\tb\r\n\x1b[A\n\x1b[A\x1b[Aof a file: \\x1b[A"
    assert printed.isatty() is stream.isatty()


def test_columns_of_tables_are_as_wide_as_their_longest_cell():
    rows = [("method", "runs", ""), ("ER", "2/10", "3 s")]
    assert aligned_rows(rows) == ["method  runs", "ER      2/10  3 s"]
    assert aligned_rows([("a", "1"), ("b", "10")], left=1) == ["a   1", "b  10"]
    assert aligned_row(["a", "1"], [3, 2], left=1) == "a     1"
