"""Recipe of the 1,269 Munsell chips of the University of Eastern Finland.

The release is text with all colours in sequence, or a `.mat` with `munsell`.
"""

import numpy as np

from everlight_data.formats.matlab import MAX_BYTES, decode_mat
from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.preparing import (
    Source,
    find,
    npz,
    one_file,
    parse_numbers,
    read_member_text,
)

MUNSELL_STEM = "munsell380_800_1"
MUNSELL_WAVELENGTHS = np.arange(380, 801)


def munsell_reflectances(source: Source) -> bytes:
    """Return the chips' reflectances, `[1269, 421]`."""
    if any(file.name.endswith(".mat") for file in source.files()):
        path = find(source, f"{MUNSELL_STEM}.mat")
        (columns,) = decode_mat(source.read(path, MAX_BYTES), path, ["munsell"])
        spectra = columns.T
    else:
        spectra = parse_numbers(read_member_text(source, f"{MUNSELL_STEM}.asc"))
    return npz(
        wavelengths_nm=MUNSELL_WAVELENGTHS,
        reflectance=spectra.reshape(-1, len(MUNSELL_WAVELENGTHS)).astype(np.float32),
    )


DATA_SETS = {
    "munsell": DataSet(
        "1,269 Munsell matte reflectances, 380 to 800 nm in steps of 1 nm",
        files=("munsell_matte_1269/munsell380_800_1nm.npz",),
        owner="University of Eastern Finland, spectral color research group",
        source=f"{MUNSELL_STEM}.asc, .asc.gz or .mat (MATLAB 5)",
        size_bytes=1_270_000,
        prepare=file_by_file(one_file("munsell380_800_1nm.npz", munsell_reflectances)),
    )
}
