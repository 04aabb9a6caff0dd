"""Measured spectra of illuminants, surfaces and cameras on one wavelength grid.

`embedded_library` needs only the package colour-science. `measured_library` reads the two-camera
paper's data sets, or the nearest published ones, below EVERLIGHT_DATA. The releases are:

- Jiang et al. 2013: text with a camera's name, then rows of red, green, blue at 400 to 720 nm in
steps of 10 nm.
- Barnard et al. 2002: text with 102 illuminants at 380 to 780 nm in steps of 4 nm; lines of # are
comments.
- University of Eastern Finland: text with all colours in sequence, or a `.mat` with `munsell`.
- Psychtoolbox: `.mat` files with `sur_NAME` and `S_NAME`: first wavelength, step and number.
"""

import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from everlight_data.errors import DataError
from everlight_data.formats.arrays import read_npy, read_npz, take
from everlight_data.formats.files import refusing
from everlight_data.formats.matlab import MAX_BYTES, decode_mat
from everlight_data.names import nearest_names
from everlight_data.optional_packages import import_package
from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.preparing import Files, Original, Source, find, npz, read_text_of

# 5 nm keeps the emission lines of fluorescent lamps that a 10 nm grid would step over.
WAVELENGTHS = np.arange(400.0, 721.0, 5.0)

EMBEDDED_CAMERAS = ("Nikon 5100 (NPL)", "Sigma SDMerill (NPL)")

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


class SpectralLibrary(NamedTuple):
    """Spectra on `WAVELENGTHS` (nm); `note` describes their sources and omissions."""

    illuminants: Float[np.ndarray, "i w"]
    illuminant_names: tuple[str, ...]
    reflectances: Float[np.ndarray, "r w"]
    sensitivities: Float[np.ndarray, "c 3 w"]
    camera_names: tuple[str, ...]
    note: str

    def sensitivity(self, camera: str) -> Float[np.ndarray, "3 w"]:
        """Return a camera's sensitivity.

        Raises:
          DataError: the camera is unknown; the message gives the nearest names.
        """
        if camera not in self.camera_names:
            near = nearest_names(camera, self.camera_names)
            hint = f"nearest: {', '.join(near)}" if near else f"one of {list(self.camera_names)}"
            raise DataError(f"camera {camera!r} is not in the spectral library; {hint}")
        return self.sensitivities[self.camera_names.index(camera)]


def _on_grid(wavelengths: np.ndarray, values: np.ndarray, outside: float | None) -> np.ndarray:
    """Interpolate `[..., w]` linearly; with `outside` None, end values are repeated."""
    rows = values.reshape(-1, values.shape[-1])
    grid = [np.interp(WAVELENGTHS, wavelengths, row, left=outside, right=outside) for row in rows]
    return np.stack(grid).reshape(*values.shape[:-1], len(WAVELENGTHS))


def _unit_peak(spectra: np.ndarray) -> np.ndarray:
    return spectra / spectra.max(axis=-1, keepdims=True)


def embedded_library() -> SpectralLibrary:
    """Return the illuminants, surfaces and two cameras that colour-science ships.

    Illuminants are CIE illuminants and light sources that cover 400 to 720 nm. Low-pressure sodium
    is left out: its single line gives all surfaces the same colour, so no transform exists.
    Surfaces are the 190 of the rawtoaces training set and the 24 of a ColorChecker.

    Raises:
      MissingPackageError: colour-science is not installed.
    """
    colour = import_package("colour")
    spectra = dict(colour.SDS_ILLUMINANTS) | dict(colour.SDS_LIGHT_SOURCES)
    illuminants, left_out = {}, []
    for name, spectrum in spectra.items():
        covers = spectrum.wavelengths[0] <= 400 and spectrum.wavelengths[-1] >= 720
        if covers and name != "LPS":
            illuminants[name] = _on_grid(spectrum.wavelengths, spectrum.values, None)
        else:
            left_out.append(name)
    patches = colour.characterisation.read_training_data_rawtoaces_v1()
    checker = colour.SDS_COLOURCHECKERS["ColorChecker N Ohta"].values()
    reflectances = [_on_grid(patches.wavelengths, patches.values.T, None)]
    reflectances += [_on_grid(s.wavelengths, s.values[None], None) for s in checker]
    cameras = [colour.MSDS_CAMERA_SENSITIVITIES[name] for name in EMBEDDED_CAMERAS]
    sensitivities = np.stack([_on_grid(c.wavelengths, c.values.T, 0.0) for c in cameras])
    return SpectralLibrary(
        illuminants=_unit_peak(np.stack(list(illuminants.values()))),
        illuminant_names=tuple(illuminants),
        reflectances=np.clip(np.concatenate(reflectances), 0, None),
        sensitivities=sensitivities / sensitivities.max(axis=(1, 2), keepdims=True),
        camera_names=EMBEDDED_CAMERAS,
        note=(
            f"colour-science: {len(illuminants)} illuminants ({len(left_out)} left out: "
            f"{', '.join(left_out)}), 214 surfaces, 2 cameras"
        ),
    )


def measured_library(reflectance_count: int = 1995, seed: int = 0) -> SpectralLibrary:
    """Return the 28 cameras of Jiang et al. 2013, the SFU illuminants, and up to 2,116 surfaces.

    The paper's 1,995 surfaces (Barnard et al. 2002) are not published as one file. This library has
    Munsell matte, Vrhel, Nickerson, Krinov and Macbeth measurements instead, and draws
    `reflectance_count` of them with `seed`.

    Raises:
      MissingDataError: a data set is missing.
      DataError: `reflectance_count` is below 1 or above the number of surfaces.
    """
    camera_names, camera_grid, sensitivities = _read_spectra(
        "cameras", ("names", "wavelengths_nm", "sensitivities")
    )
    (illuminants,) = _read_spectra("illuminants")
    measured = [
        _read_spectra("munsell", ("wavelengths_nm", "reflectance")),
        *(_read_spectra("psychtoolbox", (f"sur_{name}_wl", f"sur_{name}")) for name in SURFACES),
    ]
    sets = [_on_grid(grid, values, None) for grid, values in measured]
    surfaces = np.clip(np.concatenate(sets), 0, None)
    if not 1 <= reflectance_count <= len(surfaces):
        raise DataError(f"reflectance_count={reflectance_count}; give 1 to {len(surfaces)}")
    drawn = np.sort(np.random.default_rng(seed).permutation(len(surfaces))[:reflectance_count])
    illuminant_grid = np.linspace(380.0, 780.0, illuminants.shape[-1])
    names = tuple(str(name) for name in camera_names)
    return SpectralLibrary(
        illuminants=_unit_peak(_on_grid(illuminant_grid, illuminants, None)),
        illuminant_names=tuple(f"SFU {i}" for i in range(len(illuminants))),
        reflectances=surfaces[drawn],
        sensitivities=_on_grid(camera_grid, sensitivities, 0.0),
        camera_names=names,
        note=(
            f"{len(names)} cameras (Jiang et al. 2013), {len(illuminants)} SFU illuminants, "
            f"{reflectance_count} of {len(surfaces)} surfaces (Munsell, Vrhel, Nickerson, Krinov, "
            "Macbeth)"
        ),
    )


def _read_spectra(data_set: str, names: tuple[str, ...] = ()) -> list[np.ndarray]:
    """Return arrays of a data set's file, including spectra and their wavelengths.

    Raises:
      MissingDataError: the file is missing.
      DataError: the file is damaged, a number is not finite, or a spectrum is nowhere above 0. Or
        wavelengths do not increase, or their number differs from the spectra's.
    """
    row = DATA_SETS[data_set]
    (file,) = row.files
    path = row.locate(Path(file).name)
    if path.suffix == ".npy":
        arrays = [read_npy(path, row.remedy)]
    else:
        arrays = take(read_npz(path, row.remedy), path, names, row.remedy)
    numbers = [array for array in arrays if array.dtype.kind in "fiu"]
    grids = [array for array in numbers if array.ndim == 1]
    spectra = [array for array in numbers if array.ndim > 1]
    with refusing(path, row.remedy):
        if not spectra or not all(np.isfinite(array).all() for array in numbers):
            raise ValueError("it has no spectra, or a number is not finite")
        if not all((array.max(axis=-1) > 0).all() for array in spectra):
            raise ValueError("a spectrum is nowhere above 0")
        if not all((np.diff(grid) > 0).all() for grid in grids):
            raise ValueError("its wavelengths do not increase")
        lengths = [values.shape[-1] for values in spectra]
        if grids and [grid.size for grid in grids] != lengths:
            raise ValueError("the numbers of wavelengths and spectral values differ")
    return arrays


def camera_files(source: Source) -> Files:
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


def illuminant_files(source: Source) -> Files:
    """Return the recipe of the illuminants' spectra, `[102, 101]`."""

    def make() -> bytes:
        spectra = _numbers(read_text_of(source, ILLUMINANTS)).reshape(ILLUMINANTS_SHAPE)
        stream = io.BytesIO()
        np.save(stream, spectra)
        return stream.getvalue()

    return {f"{ILLUMINANTS}.npy": make}


def munsell_files(source: Source) -> Files:
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


def psychtoolbox_files(source: Source) -> Files:
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
        prepare=file_by_file(camera_files),
        original=CAMERAS_ORIGINAL,
    ),
    "illuminants": DataSet(
        "102 illuminant spectra, 380 to 780 nm in steps of 4 nm",
        files=(f"sfu_illuminants/{ILLUMINANTS}.npy",),
        owner="Barnard et al. 2002, SFU colour constancy data (cs.sfu.ca/~colour/data)",
        source=f"{ILLUMINANTS}, or .illum.gz",
        bytes=83_000,
        prepare=file_by_file(illuminant_files),
    ),
    "munsell": DataSet(
        "1,269 Munsell matte reflectances, 380 to 800 nm in steps of 1 nm",
        files=("munsell_matte_1269/munsell380_800_1nm.npz",),
        owner="University of Eastern Finland, spectral color research group",
        source=f"{MUNSELL}.asc, .asc.gz or .mat (MATLAB 5)",
        bytes=1_270_000,
        prepare=file_by_file(munsell_files),
    ),
    "psychtoolbox": DataSet(
        "Vrhel, Nickerson, Krinov and Macbeth reflectances",
        files=("psychtoolbox_spectra/psychtoolbox_spectra.npz",),
        owner="Psychtoolbox (psychtoolbox.org; Debian's package psychtoolbox-3-common)",
        source="the folder PsychColorimetricMatFiles",
        bytes=500_000,
        prepare=file_by_file(psychtoolbox_files),
    ),
}
