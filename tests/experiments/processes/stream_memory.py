"""Growth of a process that trains one pass over a tree of JPEG files: `SCRATCH LIMIT`.

Prints JSON. The same sequence is trained before on one small file that stands for all, so that what
compiling and checkpoints take is not counted; growth is the peak of the resident size after that,
less the resident size before the tree's store is opened.
"""

import ctypes
import gc
import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.sources import StreamedImages
from everlight_data.iirc.metadata import imagenet_listing
from everlight_data.images.imagenet import list_imagenet
from everlight_data.images.inputs.as_inputs import imagenet_statistics
from everlight_data.images.inputs.jpeg_store import JpegStore
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.continual.training.runs import SharedTraining, train_runs
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions
from tests.experiments.checkpoint_intervals import due_every
from tests.experiments.processes.killed_stream import WNIDS, keep, make_build, runs_of

PROTOCOL = Protocol(epochs=1, batch_size=16, evaluation_batch=16)


def resident(field: str) -> int:
    """Return bytes of memory: VmRSS at present, VmHWM at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])


def main() -> None:
    scratch, limit = Path(sys.argv[1]), int(sys.argv[2])
    files = list_imagenet(imagenet_listing("iirc_imagenet_full"), WNIDS)
    sizes = [(files.folder / name.decode()).stat().st_size for name in files.images]
    open_store = partial(JpegStore, side=32, memory_limit=limit, workers=2)
    smallest = files.images[np.argmin(sizes)]
    store = open_store(files.folder, np.full(len(sizes), smallest))

    def source(data):
        # Whatever store is open: what is compiled serves both.
        def read(*places_and_keys):
            return store.read(*places_and_keys)

        return StreamedImages(read, (32, 32, 3), *data)

    Checkpoints.due = due_every(1)
    build = make_build(source)

    def train(folder):
        runs = RunFolder("paper", folder, ExperimentOptions(runs=scratch))
        training = SharedTraining(
            build, PROTOCOL, imagenet_statistics(), keep, announce=store.announce
        )
        return train_runs(runs, runs_of(files)[:1], training)[0]

    train("warm")
    store = None
    # Memory that the warm-up freed goes back to the system, or growth would hide in it.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    started = time.monotonic()
    store = open_store(files.folder, files.images)
    stored = train("tree")
    answer = {
        "tree": sum(sizes),
        "files": len(sizes),
        "before": before,
        "growth": resident("VmHWM") - before,
        "seconds": round(time.monotonic() - started, 1),
        "finite": all(np.isfinite(array).all() for array in stored.values()),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
