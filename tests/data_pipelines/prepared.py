"""Data sets prepared in tests, from sources that are made there."""

import zipfile

import numpy as np

from everlight_data.registry import STORED_SETS
from everlight_data.sets.data_set import PreparationRequest


def prepare(root, name, source):
    """As the command does, but that sources made in tests are not the originals."""
    data = STORED_SETS[name]._replace(original=None)
    data.prepare(data, PreparationRequest(source, root / data.folder))
    return root / data.folder


def arrays(path):
    with np.load(path) as found:
        return {name: found[name] for name in found.files}


def assert_same_arrays(path, expected, names=None):
    found, wanted = arrays(path), arrays(expected)
    for name in names or wanted:
        np.testing.assert_array_equal(found[name], wanted[name])
        assert found[name].dtype == wanted[name].dtype


def zipped(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path
