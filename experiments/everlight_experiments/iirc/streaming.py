"""ImageNet for IIRC: which of its files a run needs."""

import zlib
from itertools import chain

import numpy as np

from everlight.scenarios.iirc import TaskConfiguration
from everlight_data.images.iirc_metadata import Metadata, OfficialName, official_metadata
from everlight_data.images.imagenet import ImageFiles, leave_out, list_imagenet
from everlight_data.images.jpeg_store import JpegStore
from everlight_experiments.common.progress import progress
from everlight_experiments.common.run_folder import RunFolder

CHECKED_AT_A_TIME = 1000
"""Files."""


def load_imagenet(name: OfficialName, count: int) -> tuple[ImageFiles, Metadata]:
    """The files that the first `count` configurations need, and what the metadata say of these.

    Raises:
      MissingDataError, DataError: as `list_imagenet`, or the package `iirc` is not installed.
    """
    official = official_metadata(name)
    orders = [order.tasks for order in official.configurations[:count]]
    introduced = {name for tasks in orders for name in chain.from_iterable(tasks)}
    hierarchy = {
        name: members for name, members in official.hierarchy.items() if name in introduced
    }
    wanted = {own for each in introduced for own in hierarchy.get(each, (each,))}
    files = list_imagenet(wanted, name)
    every = (*hierarchy, *files.class_names)
    configurations = []
    for tasks in orders:
        own = set(chain.from_iterable(tasks))
        left_out = tuple(name for name in every if name not in own)
        configurations.append(TaskConfiguration(tasks, left_out))
    return files, Metadata(hierarchy, tuple(configurations), official.valid_fraction)


def leave_out_undecodable(folder: RunFolder, files: ImageFiles, store: JpegStore) -> ImageFiles:
    """The files without those that are no whole images; every file is decoded, once a run.

    Raises:
      DataError: the run has checked other files before, or one is too large for the store.
    """
    facts = {"files": fingerprint(files)}
    found = folder.read_unit("undecodable", facts)
    if found is None:
        places, parts = np.arange(len(files.images)), []
        with progress("checking files", len(places), unit="file") as bar:
            for start in range(0, len(places), CHECKED_AT_A_TIME):
                some = places[start : start + CHECKED_AT_A_TIME]
                parts.append(store.undecodable(some))
                bar.update(len(some))
        found = {"places": np.concatenate(parts)}
        folder.save_unit("undecodable", facts, **found)
    left = leave_out(files, found["places"])
    folder.log(event="files", count=len(left.images), remarks=list(left.remarks))
    return left


def fingerprint(files: ImageFiles) -> int:
    """Tells one listing from another: splits depend on every file and on their order."""
    return zlib.crc32(files.images)
