"""Recipe of the 28 camera sensitivities of Jiang et al. 2013.

The release is text with a camera's name, then rows of red, green, blue at 400 to 720 nm in steps of
10 nm.
"""

import numpy as np

from everlight_data.formats.originals import Original
from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.preparing import Source, npz, one_file, read_member_text

CAMERAS_FILE = "camspec_database.txt"
CAMERAS_ORIGINAL = Original(
    24_619, "067a7629d0836d0bc95f27b53f157ec0cf7e965beb66074426117c17fe1cda11"
)
CAMERA_WAVELENGTHS = np.arange(400, 721, 10)


def camera_sensitivities(source: Source) -> bytes:
    """Return the cameras' sensitivities, `[c, 3, 33]`, in their published scale."""
    text = read_member_text(source, CAMERAS_FILE)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # A line of dashes ends the description of the source.
    rule = next((n for n, line in enumerate(lines) if set(line) == {"-"}), -1)
    rows = lines[rule + 1 :]
    names, numbers = rows[::4], [row.split() for n, row in enumerate(rows) if n % 4]
    if not names or len(rows) % 4:
        raise ValueError(f"{len(rows)} lines, not four per camera")
    return npz(
        names=np.array(names),
        wavelengths_nm=CAMERA_WAVELENGTHS,
        sensitivities=np.array(numbers, float).reshape(-1, 3, len(CAMERA_WAVELENGTHS)),
    )


DATA_SETS = {
    "cameras": DataSet(
        "28 camera sensitivities, 400 to 720 nm in steps of 10 nm",
        files=("camspec_jiang2013/camspec.npz",),
        owner="Jiang et al. 2013, camera spectral sensitivity database "
        "(gujinwei.org/research/camspec)",
        source=CAMERAS_FILE,
        size_bytes=20_000,
        prepare=file_by_file(one_file("camspec.npz", camera_sensitivities)),
        original=CAMERAS_ORIGINAL,
    )
}
