"""Free memory, and runs that need more."""

import os
import re

import pytest

from everlight_experiments import cli
from everlight_experiments.run_folder import memory


@pytest.mark.parametrize(
    "command",
    [
        "run digits --methods naive --seeds 1 --epochs 1",
        "tune digits --methods ER --vary epochs=1 --epochs 1",
        "plasticity permuted-labels --data digits --methods naive --seeds 2",
    ],
)
def test_runs_larger_than_the_free_memory_leave_no_folder(tmp_path, monkeypatch, command):
    monkeypatch.setattr(memory, "free_memory", lambda: 100_000)
    # 64 x 200 + 200 x 10 weights in 32 bits take 59 KB, and there are two: the best epoch's, or
    # the second seed's.
    words = [*command.split(), "--net", "mlp:200", "--runs", str(tmp_path)]
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    message = caught.value.code
    assert re.match(
        r"error: .* at least 0\.[1-9] MB, and 0\.1 MB are free; make them smaller, as with --net "
        r"and --(buffer-size|seeds)$",
        message,
    )
    assert not list(tmp_path.iterdir())


def test_free_memory_is_below_all_and_unknown_without_the_table(tmp_path, monkeypatch):
    complete = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < memory.free_memory() <= complete
    table = tmp_path / "meminfo"
    monkeypatch.setattr(memory, "_TABLE", table)
    assert memory.free_memory() is None
    table.write_text("MemTotal:       24684084 kB\nMemAvailable:        3 kB\n")
    assert memory.free_memory() == 3_072
