"""Recipe of the reflectances of Psychtoolbox.

The release has `.mat` files with `sur_NAME` and `S_NAME`: first wavelength, step and number.
"""

import numpy as np

from everlight_data.formats.matlab import MAX_BYTES, decode_mat
from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.preparing import Source, find, npz, one_file

SURFACES = ("vrhel", "nickerson", "krinov", "macbeth")


def psychtoolbox_reflectances(source: Source) -> bytes:
    """Return the reflectances `sur_NAME` and their wavelengths `sur_NAME_wl`."""
    arrays = {}
    for name in SURFACES:
        path = find(source, f"sur_{name}.mat")
        content = source.read(path, MAX_BYTES)
        sampling, columns = decode_mat(content, path, [f"S_{name}", f"sur_{name}"])
        if sampling.size != 3 or not np.array_equal(sampling, np.rint(sampling)):
            raise ValueError(f"S_{name} is {sampling.ravel().tolist()}, not three whole numbers")
        first, step, count = sampling.astype(int).ravel()
        if count != len(columns):
            raise ValueError(f"S_{name} states {count} wavelengths, sur_{name} {len(columns)}")
        arrays[f"sur_{name}"] = columns.T
        arrays[f"sur_{name}_wl"] = first + step * np.arange(count)
    return npz(**arrays)


DATA_SETS = {
    "psychtoolbox": DataSet(
        "Vrhel, Nickerson, Krinov and Macbeth reflectances",
        files=("psychtoolbox_spectra/psychtoolbox_spectra.npz",),
        owner="Psychtoolbox (psychtoolbox.org; Debian's package psychtoolbox-3-common)",
        source="the folder PsychColorimetricMatFiles",
        size_bytes=500_000,
        prepare=file_by_file(one_file("psychtoolbox_spectra.npz", psychtoolbox_reflectances)),
    )
}
