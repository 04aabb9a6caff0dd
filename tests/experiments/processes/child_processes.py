"""Modules of this folder in processes of their own."""

import os
import socket
import subprocess
import sys


def start(module, root, *arguments, **environment):
    """Begin a module; below `root` are its data and, unless they are elsewhere, its programs."""
    command = [sys.executable, "-m", f"tests.experiments.processes.{module}", *map(str, arguments)]
    programs = {
        "JAX_COMPILATION_CACHE_DIR": str(root / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    environment = programs | os.environ | {"EVERLIGHT_DATA": str(root)} | environment
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes)


def end(child, status=0):
    """Wait for a child that ends with a status; return what it printed."""
    output, errors = child.communicate()
    assert child.returncode == status, errors
    return output


def pair_of_processes():
    """Return the values of `--distributed` for two processes that join at a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [f"{number}/2@127.0.0.1:{port}" for number in range(2)]


def stored_runs(runs):
    """Return the content of the file of every finished run, by its name."""
    stored = runs / "paper-run-demo" / "units"
    return {path.name: path.read_bytes() for path in stored.glob("*.npz")}
