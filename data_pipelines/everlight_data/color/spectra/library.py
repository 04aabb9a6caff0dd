"""Libraries of spectra of illuminants, surfaces and cameras on one wavelength grid.

`embedded_library` needs only the package colour-science. `measured_library` reads the two-camera
paper's data sets, or the nearest published ones, below EVERLIGHT_DATA.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from everlight_data.color.spectra import cameras, illuminants, munsell, psychtoolbox
from everlight_data.color.spectra.psychtoolbox import SURFACES
from everlight_data.errors import DataError
from everlight_data.formats.arrays import read_npy, read_npz, take
from everlight_data.formats.files import refusing
from everlight_data.names import check_name
from everlight_data.optional_packages import import_package

# 5 nm keeps the emission lines of fluorescent lamps that a 10 nm grid would step over.
WAVELENGTHS = np.arange(400.0, 721.0, 5.0)

EMBEDDED_CAMERAS = ("Nikon 5100 (NPL)", "Sigma SDMerill (NPL)")
_ROWS = cameras.DATA_SETS | illuminants.DATA_SETS | munsell.DATA_SETS | psychtoolbox.DATA_SETS


class Spectra(NamedTuple):
    """Measured spectra."""

    names: tuple[str, ...]
    """Names, if the file has them."""
    wavelengths: Float[np.ndarray, "w"] | None
    """Wavelengths in nm, if the file has them."""
    values: Float[np.ndarray, "*n w"]


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
        check_name("camera", camera, self.camera_names)
        return self.sensitivities[self.camera_names.index(camera)]


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
            illuminants[name] = _interpolate(spectrum.wavelengths, spectrum.values, None)
        else:
            left_out.append(name)
    patches = colour.characterisation.read_training_data_rawtoaces_v1()
    checker = colour.SDS_COLOURCHECKERS["ColorChecker N Ohta"].values()
    reflectances = [_interpolate(patches.wavelengths, patches.values.T, None)]
    reflectances += [_interpolate(s.wavelengths, s.values[None], None) for s in checker]
    cameras = [colour.MSDS_CAMERA_SENSITIVITIES[name] for name in EMBEDDED_CAMERAS]
    sensitivities = np.stack([_interpolate(c.wavelengths, c.values.T, 0.0) for c in cameras])
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
    sensitivities = _read_spectra("cameras", "sensitivities", "wavelengths_nm", "names")
    illuminants = _read_spectra("illuminants").values
    measured = [
        _read_spectra("munsell", "reflectance", "wavelengths_nm"),
        *(_read_spectra("psychtoolbox", f"sur_{name}", f"sur_{name}_wl") for name in SURFACES),
    ]
    sets = [_interpolate(spectra.wavelengths, spectra.values, None) for spectra in measured]
    surfaces = np.clip(np.concatenate(sets), 0, None)
    if not 1 <= reflectance_count <= len(surfaces):
        raise DataError(f"reflectance_count={reflectance_count}; give 1 to {len(surfaces)}")
    drawn = np.sort(np.random.default_rng(seed).permutation(len(surfaces))[:reflectance_count])
    illuminant_grid = np.linspace(380.0, 780.0, illuminants.shape[-1])
    return SpectralLibrary(
        illuminants=_unit_peak(_interpolate(illuminant_grid, illuminants, None)),
        illuminant_names=tuple(f"SFU {i}" for i in range(len(illuminants))),
        reflectances=surfaces[drawn],
        sensitivities=_interpolate(sensitivities.wavelengths, sensitivities.values, 0.0),
        camera_names=sensitivities.names,
        note=(
            f"{len(sensitivities.names)} cameras (Jiang et al. 2013), {len(illuminants)} SFU "
            f"illuminants, {reflectance_count} of {len(surfaces)} surfaces (Munsell, Vrhel, "
            "Nickerson, Krinov, Macbeth)"
        ),
    )


def _read_spectra(
    data_set: str, values: str = "", wavelengths: str = "", names: str = ""
) -> Spectra:
    """Return the spectra of a data set's file.

    Args:
      data_set: name of the data set.
      values: array of the spectra in an `.npz` file.
      wavelengths: array of their wavelengths there.
      names: array of their names there, if it has them.

    Raises:
      MissingDataError: the file is missing.
      DataError: the file is damaged, a number is not finite, or a spectrum is nowhere above 0. Or
        wavelengths do not increase, or their number differs from the spectra's.
    """
    row = _ROWS[data_set]
    (file,) = row.files
    path = row.locate(Path(file).name)
    if path.suffix == ".npy":
        stored = {"": read_npy(path, row.remedy)}
    else:
        keys = [key for key in (names, wavelengths, values) if key]
        arrays = take(read_npz(path, row.remedy), path, keys, row.remedy)
        stored = dict(zip(keys, arrays, strict=True))
    spectra, grid = stored[values], stored[wavelengths] if wavelengths else None
    with refusing(path, row.remedy):
        numbers = [spectra] if grid is None else [spectra, grid]
        if spectra.ndim < 2 or not all(np.isfinite(array).all() for array in numbers):
            raise ValueError("it has no spectra, or a number is not finite")
        if not (spectra.max(axis=-1) > 0).all():
            raise ValueError("a spectrum is nowhere above 0")
        if grid is not None and (grid.ndim != 1 or not (np.diff(grid) > 0).all()):
            raise ValueError("its wavelengths do not increase")
        if grid is not None and grid.size != spectra.shape[-1]:
            raise ValueError("the numbers of wavelengths and spectral values differ")
        return Spectra(tuple(map(str, stored[names])) if names else (), grid, spectra)


def _interpolate(wavelengths: np.ndarray, values: np.ndarray, outside: float | None) -> np.ndarray:
    """Interpolate `[..., w]` linearly; with `outside` None, end values are repeated."""
    rows = values.reshape(-1, values.shape[-1])
    grid = [np.interp(WAVELENGTHS, wavelengths, row, left=outside, right=outside) for row in rows]
    return np.stack(grid).reshape(*values.shape[:-1], len(WAVELENGTHS))


def _unit_peak(spectra: np.ndarray) -> np.ndarray:
    return spectra / spectra.max(axis=-1, keepdims=True)
