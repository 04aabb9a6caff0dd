"""Compiled programs are kept where they should be, and a second process finds them."""

import os
import subprocess
import sys

import pytest

from everlight_experiments.run_folder import compilation

CODE = """
import jax, logging
from everlight_experiments.run_folder.compilation import keep_compiled_programs
keep_compiled_programs()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
print(float(jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((3, 3)))))
print(hits.count("/jax/compilation_cache/cache_hits"), jax.config.jax_compilation_cache_dir)
"""


def run(**environment):
    stored = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=stored | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    value, printed = done.stdout.splitlines()
    hits, folder = printed.split()
    return float(value), int(hits), folder


def test_a_second_process_compiles_nothing_again(tmp_path):
    first, second = (run(XDG_CACHE_HOME=str(tmp_path)) for _ in range(2))
    assert first == (27.0, 0, str(tmp_path / "everlight"))
    assert second[0] == 27.0
    assert second[1] > 0
    assert any((tmp_path / "everlight").iterdir())


def test_the_user_s_own_choice_of_folder_stands(tmp_path):
    folder = str(tmp_path / "mine")
    assert run(JAX_COMPILATION_CACHE_DIR=folder)[2] == folder


@pytest.mark.parametrize(
    ("inputs", "plugins", "expected"),
    [
        ({}, (), "--xla_backend_optimization_level=2"),
        ({"XLA_FLAGS": "--xla_a=1"}, (), "--xla_a=1 --xla_backend_optimization_level=2"),
        (
            {"XLA_FLAGS": "--xla_backend_optimization_level=0"},
            (),
            "--xla_backend_optimization_level=0",
        ),
        ({}, ("cuda",), None),
        ({"JAX_PLATFORMS": "cpu"}, ("cuda",), "--xla_backend_optimization_level=2"),
    ],
)
def test_less_is_optimized_where_the_cpu_computes(monkeypatch, inputs, plugins, expected):
    monkeypatch.setattr(os, "environ", dict(inputs))
    monkeypatch.setattr(compilation, "entry_points", lambda group: plugins)
    monkeypatch.setattr(compilation, "find_spec", lambda name: None)
    compilation.compile_faster()
    assert os.environ.get("XLA_FLAGS") == expected


@pytest.mark.parametrize(
    ("inputs", "expected"), [({}, "12"), ({"PJRT_NPROC": "5"}, "5"), ({"NPROC": "5"}, None)]
)
def test_xla_has_more_threads_than_devices_unless_they_are_set(monkeypatch, inputs, expected):
    """Batched Cholesky factors of all devices wait for each other with one thread per device."""
    for name in ("PJRT_NPROC", "NPROC"):
        monkeypatch.delenv(name, raising=False)
    for name, value in inputs.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(compilation.os, "sched_getaffinity", lambda process: {0, 1, 2})
    compilation.enough_threads()
    assert os.environ.get("PJRT_NPROC") == expected
    os.environ.pop("PJRT_NPROC", None)


def test_the_tpu_s_compiler_learns_its_machine_from_the_environment(monkeypatch):
    monkeypatch.setattr(os, "environ", {"TPU_ACCELERATOR_TYPE": "v5litepod-8"})
    compilation.describe_tpu()
    assert os.environ == {
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
    }


def test_systems_without_affinity_have_their_number_of_cores(monkeypatch):
    """macOS and Windows have no `sched_getaffinity`."""
    monkeypatch.delattr(compilation.os, "sched_getaffinity", raising=False)
    for count, cores in ((6, 6), (None, 1)):
        monkeypatch.setattr(compilation.os, "cpu_count", lambda count=count: count)
        assert compilation.usable_cores() == cores
