"""Data sets prepared in tests, from sources that are made there."""

import zipfile

import numpy as np

from everlight_data.registry import STORED_SETS
from everlight_data.sets.data_set import PreparationRequest


def prepare(root, name, source):
    """Prepare a data set as the command does; sources made in tests are not the originals."""
    data = STORED_SETS[name]._replace(original=None)
    data.prepare(data, PreparationRequest(source, root / data.folder))
    return root / data.folder


def arrays(path):
    with np.load(path) as result:
        return {name: result[name] for name in result.files}


def assert_same_arrays(path, expected, names=None):
    result, target = arrays(path), arrays(expected)
    for name in names or target:
        np.testing.assert_array_equal(result[name], target[name])
        assert result[name].dtype == target[name].dtype


def zipped(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path
