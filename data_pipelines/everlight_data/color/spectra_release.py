"""Recipes that turn published measured spectra into the arrays that `spectra` reads.

- Jiang et al. 2013: text with a camera's name, then rows of red, green, blue at 400 to 720 nm in
steps of 10 nm.
- Barnard et al. 2002: text with 102 illuminants at 380 to 780 nm in steps of 4 nm; lines of # are
comments.
- University of Eastern Finland: text with all colours in sequence, or a `.mat` with `munsell`.
- Psychtoolbox: `.mat` files with `sur_NAME` and `S_NAME`: first wavelength, step and number.
"""

import io

import numpy as np

from everlight_data.formats.matlab import MAX_BYTES, decode_mat
from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.preparing import Files, Original, Source, find, npz, read_text_of

CAMERAS = "camspec_database.txt"
CAMERAS_ORIGINAL = Original(
    24_619, "067a7629d0836d0bc95f27b53f157ec0cf7e965beb66074426117c17fe1cda11"
)
CAMERA_WAVELENGTHS = np.arange(400, 721, 10)
ILLUMINANTS = "measured_with_sources.illum"
ILLUMINANTS_SHAPE = (102, 101)
MUNSELL = "munsell380_800_1"
MUNSELL_WAVELENGTHS = np.arange(380, 801)
SURFACES = ("vrhel", "nickerson", "krinov", "macbeth")


def cameras(source: Source) -> Files:
    """Return the recipe of the cameras' sensitivities, `[c, 3, 33]`, in their published scale."""

    def make() -> bytes:
        text = read_text_of(source, CAMERAS)
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

    return {"camspec.npz": make}


def illuminants(source: Source) -> Files:
    """Return the recipe of the illuminants' spectra, `[102, 101]`."""

    def make() -> bytes:
        spectra = _numbers(read_text_of(source, ILLUMINANTS)).reshape(ILLUMINANTS_SHAPE)
        stream = io.BytesIO()
        np.save(stream, spectra)
        return stream.getvalue()

    return {f"{ILLUMINANTS}.npy": make}


def munsell(source: Source) -> Files:
    """Return the recipe of the chips' reflectances, `[1269, 421]`."""

    def make() -> bytes:
        if any(name.endswith(".mat") for name, _ in source.files()):
            path = find(source, f"{MUNSELL}.mat")
            (columns,) = decode_mat(source.read(path, MAX_BYTES), path, ["munsell"])
            spectra = columns.T
        else:
            spectra = _numbers(read_text_of(source, f"{MUNSELL}.asc"))
        return npz(
            wavelengths_nm=MUNSELL_WAVELENGTHS,
            reflectance=spectra.reshape(-1, len(MUNSELL_WAVELENGTHS)).astype(np.float32),
        )

    return {"munsell380_800_1nm.npz": make}


def psychtoolbox(source: Source) -> Files:
    """Return the recipe of the reflectances `sur_NAME` and their wavelengths `sur_NAME_wl`."""

    def make() -> bytes:
        arrays = {}
        for name in SURFACES:
            path = find(source, f"sur_{name}.mat")
            content = source.read(path, MAX_BYTES)
            sampling, columns = decode_mat(content, path, [f"S_{name}", f"sur_{name}"])
            if sampling.size != 3 or not np.array_equal(sampling, np.rint(sampling)):
                raise ValueError(
                    f"S_{name} is {sampling.ravel().tolist()}, not three whole numbers"
                )
            first, step, count = sampling.astype(int).ravel()
            if count != len(columns):
                raise ValueError(f"S_{name} states {count} wavelengths, sur_{name} {len(columns)}")
            arrays[f"sur_{name}"] = columns.T
            arrays[f"sur_{name}_wl"] = first + step * np.arange(count)
        return npz(**arrays)

    return {"psychtoolbox_spectra.npz": make}


def _numbers(text: str) -> np.ndarray:
    """Return all numbers of a text, without lines that begin with #."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return np.array(" ".join(lines).split(), float)


DATA_SETS = {
    "cameras": DataSet(
        "28 camera sensitivities, 400 to 720 nm in steps of 10 nm",
        files=("camspec_jiang2013/camspec.npz",),
        owner="Jiang et al. 2013, camera spectral sensitivity database "
        "(gujinwei.org/research/camspec)",
        source=CAMERAS,
        bytes=20_000,
        prepare=file_by_file(cameras),
        original=CAMERAS_ORIGINAL,
    ),
    "illuminants": DataSet(
        "102 illuminant spectra, 380 to 780 nm in steps of 4 nm",
        files=(f"sfu_illuminants/{ILLUMINANTS}.npy",),
        owner="Barnard et al. 2002, SFU colour constancy data (cs.sfu.ca/~colour/data)",
        source=f"{ILLUMINANTS}, or .illum.gz",
        bytes=83_000,
        prepare=file_by_file(illuminants),
    ),
    "munsell": DataSet(
        "1,269 Munsell matte reflectances, 380 to 800 nm in steps of 1 nm",
        files=("munsell_matte_1269/munsell380_800_1nm.npz",),
        owner="University of Eastern Finland, spectral color research group",
        source=f"{MUNSELL}.asc, .asc.gz or .mat (MATLAB 5)",
        bytes=1_400_000,
        prepare=file_by_file(munsell),
    ),
    "psychtoolbox": DataSet(
        "Vrhel, Nickerson, Krinov and Macbeth reflectances",
        files=("psychtoolbox_spectra/psychtoolbox_spectra.npz",),
        owner="Psychtoolbox (psychtoolbox.org; Debian's package psychtoolbox-3-common)",
        source="the folder PsychColorimetricMatFiles",
        bytes=500_000,
        prepare=file_by_file(psychtoolbox),
    ),
}
