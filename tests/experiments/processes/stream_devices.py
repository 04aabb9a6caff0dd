"""Two strategies that learn from files on one device and on two; prints JSON.

Of each what is left in the end, on one device and on two; of the first from images in memory too.
Then what is announced and read first, and the message about a file of the second device's run that
is not a whole image.
"""

import json
import zlib
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.continual import StoredImages, flax_setup
from everlight.continual.engine.driver import Runs, drive_runs
from everlight.continual.strategies.naive import naive
from everlight.models import MLP
from everlight.scenarios.class_incremental import class_incremental
from everlight.scenarios.shapes import same_shapes
from everlight_data.errors import DataError
from everlight_data.iirc.metadata import imagenet_listing
from everlight_data.images.imagenet import list_imagenet
from everlight_data.images.inputs.as_inputs import imagenet_statistics, naming_files, stream_centers
from everlight_data.images.inputs.jpeg_store import JpegStore
from tests.continual.engine.setups.image_strategies import PROTOCOL, STRATEGIES

WNIDS = ("n01440764", "n01443537", "n01484850", "n02085620")
ORDERS = (((0, 1), (2, 3)), ((2, 3), (0, 1)))
SIDE = 8


@cache
def make_build(name, store=None):
    objective, strategy = {**STRATEGIES, "naive": (STRATEGIES["ewc"][0], naive)}[name]

    def build(data):
        images = data if store is None else stream_centers(store, data)
        setup = flax_setup(MLP(4, (5,)), images, objective, optax.sgd(0.05))
        return setup, strategy(setup)

    return build


def some_runs(files):
    """Return sequences and keys."""
    labels = files.train_labels, files.test_labels
    sequences = same_shapes([class_incremental(*labels, order, 4, 0.25) for order in ORDERS])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *sequences)
    return stacked, jax.random.split(jax.random.key(3))


def final_states(name, rows, data, store=None, announce=None):
    """Return losses and checksums of the final state of every run, with one run per device."""
    runs = Runs(make_build(name, store), PROTOCOL, data, *rows)
    *_, last = drive_runs(runs, announce=announce)
    results = []
    for number in range(len(runs.key)):
        leaves = [np.asarray(leaf[number]) for leaf in jax.tree.leaves(last.result)]
        bits = [zlib.crc32(np.ascontiguousarray(leaf)) for leaf in leaves]
        results.append({"bits": bits, "losses": np.asarray(last.result.losses[number]).tolist()})
    return results


def final_states_in_turn(name, rows, *arguments):
    """Run the same on one device, one run after another."""
    single = [jax.tree.map(lambda leaf, n=n: leaf[n : n + 1], rows) for n in range(len(rows[1]))]
    return [actual for run in single for actual in final_states(name, run, *arguments)]


def recorded_reads(store):
    """Record the calls of a store from now on."""
    read, results = store.read, []

    def recorded(index):
        results.append(index.tolist())
        return read(index)

    store.read = recorded
    return results


def main() -> None:
    files = list_imagenet(imagenet_listing("iirc_imagenet_full"), WNIDS)
    runs, store = some_runs(files), JpegStore(files.folder, files.images, SIDE, 10**6)
    stored = StoredImages.of(
        jnp.asarray(store.read(np.arange(len(files.images)))), *imagenet_statistics()
    )
    streamed = imagenet_statistics(), store, store.announce
    answer = {"stored": final_states_in_turn("naive", runs, stored)}
    for name in ("naive", "icarl"):
        answer[name] = [
            item(name, runs, *streamed) for item in (final_states_in_turn, final_states)
        ]
    events, answer["read"] = [], recorded_reads(store)
    final_states("naive", runs, imagenet_statistics(), store, events.append)
    answer["announced"] = [order.tolist() for order in events]
    path = files.folder / files.images[files.train_labels.tolist().index(2)].decode()
    path.write_bytes(path.read_bytes()[:300])
    answer["broken"] = str(path)
    try:
        with naming_files(store):
            final_states("naive", runs, *streamed)
    except DataError as error:
        answer["error"] = str(error)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
