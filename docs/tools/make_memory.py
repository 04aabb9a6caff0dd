"""Write the first table of `docs/pages/memory.md`: every reader's peak memory on a large file.

python -m docs.tools.make_memory
"""

import datetime
import json
import multiprocessing
import os
import pickle
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import scipy.io

from everlight_data.color.photographs.linear_pictures import read_picture
from everlight_data.color.photographs.thumbnails import read_thumbnails
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.formats.arrays import read_npz
from everlight_data.formats.matlab import read_mat
from everlight_data.formats.tables import read_csv, read_json
from everlight_data.formats.torch_state import read_torch_state
from everlight_data.formats.unpickle import load_restricted
from everlight_data.images.user_files.feature_files import features_alone
from everlight_data.writing import read_sealed, save_sealed
from tests.data_pipelines.formats.torch_files import state, tensor, write
from tests.dng_writer import write_dng

PAGE = Path(__file__).parents[1] / "pages" / "memory.md"
HEAD = """# Memory of the readers

Reading one of these files takes {least:.0f} to {most:.0f} MB of memory at its peak.
The greatest peak has the file: {kind}.

Measured by `python -m docs.tools.make_memory` on {date}, {cores} CPU cores. Each file is read in a
separate process. Peak is the resident memory above that after a small file of the same kind,
native libraries included. Read is the size of the arrays and texts that a reader returns.

Sizes are checked before memory is allocated; the limits stand in each reader's module (`MAX_BYTES`,
`MAX_PIXELS`). `tests/data_pipelines/hostile_files/test_fuzz.py` feeds mutated files to every
reader. None may take more than four times the memory or five times the time of the whole file. As
these files are small, 2 MB and 0.5 seconds are always allowed.

| file | size, MB | read, MB | peak, MB |
|---|---|---|---|
"""
LONG_RUNS = "\n## Long runs\n"
"""Heading of the rest of the page, which is written by hand."""
LARGE, SMALL = 40_000_000, 40_000
AGAIN = "Again."
Case = tuple[Callable[[Path, np.ndarray], None], Callable[[Path], Any]]
"""Function that writes numbers into a file, and the file's reader."""


def _npz(path: Path, **arrays: np.ndarray) -> None:
    with path.open("wb") as stream:
        np.savez(stream, **arrays)


def _image(numbers: np.ndarray) -> np.ndarray:
    side = int((len(numbers) * 8 / 6) ** 0.5)
    return np.random.default_rng(0).integers(0, 65536, (side, side, 3), np.uint16)


def _thumbnails(path: Path, numbers: np.ndarray) -> None:
    images = np.float32(numbers[: len(numbers) // 3072 * 3072].reshape(-1, 32, 32, 3))
    _npz(path, images=images, illuminant_rgb=np.ones((len(images), 3)))


def _features(path: Path, numbers: np.ndarray) -> None:
    rows = numbers[: len(numbers) // 100 * 100].reshape(-1, 100)
    _npz(path, features=rows, labels=np.arange(len(rows)) % 4)


def _mat(path: Path, numbers: np.ndarray) -> None:
    with path.open("wb") as stream:
        scipy.io.savemat(stream, {"a": numbers}, do_compression=True)


def _torch(path: Path, numbers: np.ndarray) -> None:
    storage = numbers.view("<f4")
    write(path, state(a=tensor("1", len(storage), storage.shape, (1,))), {"1": storage})


def _csv(path: Path, numbers: np.ndarray) -> None:
    path.write_text(
        "\n".join(f"{a:.6f},{b:.6f}" for a, b in numbers[: len(numbers) // 8 * 2].reshape(-1, 2))
    )


def _dng(path: Path, numbers: np.ndarray) -> None:
    image = _image(numbers)[:-1:, :-1] if len(_image(numbers)) % 2 else _image(numbers)
    write_dng(path, image / 65535, color_matrix=np.eye(3), as_shot_neutral=(0.6, 1, 0.7))


CASES: dict[str, Case] = {
    "arrays (`.npz`)": (lambda path, a: _npz(path, a=a), lambda path: read_npz(path, AGAIN)),
    "results with a checksum (`.npz`)": (
        lambda path, a: save_sealed(path, a=a),
        lambda path: read_sealed(path, AGAIN),
    ),
    "thumbnails (`.npz`)": (_thumbnails, lambda path: read_thumbnails(path, AGAIN)),
    "features (`.npz`)": (_features, lambda path: features_alone(str(path), 4)),
    "pickle": (
        lambda path, a: path.write_bytes(pickle.dumps({"a": a}, 2)),
        lambda path: load_restricted(path, str(path), "latin1"),
    ),
    "MATLAB, compressed (`.mat`)": (_mat, lambda path: read_mat(path, ["a"])),
    "PyTorch weights (`.pth`)": (_torch, lambda path: read_torch_state(path, AGAIN)),
    "JSON": (
        lambda path, a: path.write_text(json.dumps(a[: len(a) // 4].tolist())),
        lambda path: read_json(path, AGAIN),
    ),
    "CSV": (_csv, lambda path: read_csv(path, AGAIN)),
    "PNG of 16 bits": (
        lambda path, a: path.write_bytes(imagecodecs.png_encode(_image(a), level=1)),
        lambda path: read_picture(path, AGAIN),
    ),
    "raw photo (`.dng`)": (_dng, read_raw),
}


def save(name: str, path: Path, size: int) -> None:
    """Write a case's file of about so many bytes."""
    CASES[name][0](path, np.random.default_rng(0).random(size // 8))


def measure(name: str, small: Path, large: Path) -> tuple[int, int]:
    """Return the bytes that are read of a large file, and the peak above that of a small one."""
    _, read = CASES[name]
    read(small)
    before = _peak()
    content = read(large)
    return _bytes(content), _peak() - before


def _call_in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def _peak() -> int:
    """Return the greatest resident memory of this process so far."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def _bytes(value: Any) -> int:
    """Return the bytes of all arrays and texts within a value."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(_bytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_bytes, value))
    return len(value) if isinstance(value, str | bytes) else 8


def render() -> str:
    """Return the text of the page, with the present page's other measurements."""
    _, _, others = PAGE.read_text(encoding="utf-8").partition(LONG_RUNS)
    rows, peaks = [], {}
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            suffix = (re.findall(r"\.\w+", name) or [".png"])[0]
            small, large = (Path(folder) / f"{word}{suffix}" for word in ("small", "large"))
            _call_in_process(save, name, small, SMALL)
            _call_in_process(save, name, large, LARGE)
            size, (read, peaks[name]) = (
                large.stat().st_size,
                _call_in_process(measure, name, small, large),
            )
        peak = peaks[name] / 1e6
        rows.append(f"| {name} | {size / 1e6:.1f} | {read / 1e6:.1f} | {peak:.0f} |")
        print(rows[-1], flush=True)
    date = datetime.date.today().strftime("%-d %B %Y")
    kind = max(peaks, key=peaks.__getitem__)
    least, most = min(peaks.values()) / 1e6, peaks[kind] / 1e6
    peaks_of = {"kind": kind, "least": least, "most": most}
    head = HEAD.format(date=date, cores=os.cpu_count(), **peaks_of)
    return head + "\n".join(rows) + "\n" + LONG_RUNS + others


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
