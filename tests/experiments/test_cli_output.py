"""The command line's output: closed, full, or unable to take some names."""

import io
import os
import subprocess
import sys

import pytest

from everlight_experiments import cli


def child(*arguments, **options):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(options.pop("root")), *sys.path])
    }
    command = [sys.executable, "-m", "everlight_experiments", *arguments]
    return subprocess.run(command, env=environment, stderr=subprocess.PIPE, check=False, **options)


@pytest.mark.parametrize("words", [["methods"], ["--help"], ["data", "list"]])
def test_a_closed_pipe_ends_quietly_with_the_status_of_other_tools(request, words):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as closed:  # noqa: PTH123
        done = child(*words, root=request.config.rootpath, stdout=closed)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_full_output_leaves_no_traceback(request):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = child("--help", root=request.config.rootpath, stdout=full)
    assert done.returncode == 1
    assert b"error: the output: No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


def test_names_that_are_no_text_are_reported(tmp_path, monkeypatch):
    """A process gets such names, and its streams take nothing but text."""
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    outputs = {name: io.TextIOWrapper(io.BytesIO(), "utf-8") for name in ("stdout", "stderr")}
    for name, output in outputs.items():
        monkeypatch.setattr(sys, name, output)
    with pytest.raises(SystemExit) as refused:
        cli.main(["data", "prepare", "core50", os.fsdecode(b"no\xffwhere.zip")])
    print(refused.value, file=sys.stderr, flush=True)
    message = outputs["stderr"].buffer.getvalue()
    assert b"no\\udcffwhere.zip" in message


@pytest.mark.parametrize("arguments", [["--help"], ["methods"]])
def test_a_process_without_output_writes_nowhere(arguments, monkeypatch):
    """The process has no output after `>&-`."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    cli.main(arguments)
    assert sys.stdout.name == sys.stderr.name == os.devnull
