"""Recipe of the 102 illuminants of Barnard et al. 2002.

The release is text with spectra at 380 to 780 nm in steps of 4 nm; lines of # are comments.
"""

import io

import numpy as np

from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.preparing import Source, one_file, parse_numbers, read_member_text

ILLUMINANTS_FILE = "measured_with_sources.illum"
ILLUMINANTS_SHAPE = (102, 101)


def illuminant_spectra(source: Source) -> bytes:
    """Return the illuminants' spectra, `[102, 101]`."""
    spectra = parse_numbers(read_member_text(source, ILLUMINANTS_FILE)).reshape(ILLUMINANTS_SHAPE)
    stream = io.BytesIO()
    np.save(stream, spectra)
    return stream.getvalue()


DATA_SETS = {
    "illuminants": DataSet(
        "102 illuminant spectra, 380 to 780 nm in steps of 4 nm",
        files=(f"sfu_illuminants/{ILLUMINANTS_FILE}.npy",),
        owner="Barnard et al. 2002, SFU colour constancy data (cs.sfu.ca/~colour/data)",
        source=f"{ILLUMINANTS_FILE}, or .illum.gz",
        size_bytes=83_000,
        prepare=file_by_file(one_file(f"{ILLUMINANTS_FILE}.npy", illuminant_spectra)),
    )
}
