"""NUS-8 (Cheng, Prasad, Brown, JOSA A 2014): the release of photographs by eight cameras."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from everlight_data.color.photographs.camera_names import NUS8_CAMERAS
from everlight_data.color.photographs.linear_pictures import (
    checked_illuminants,
    linear,
    read_picture,
)
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import leads_outside, read_text, refusing
from everlight_data.formats.matlab import read_mat
from everlight_data.sets.chart_colors import ChartColors
from everlight_data.sets.constancy_set import ConstancySet, Photograph
from everlight_data.sets.data_set import DataSet

OWNER = "the dataset page of Cheng, Prasad and Brown 2014 (illuminant estimation, NUS)"


class RawLevels(NamedTuple):
    """Raw values of a camera at which its images are 0 and 1."""

    darkness: float
    saturation: float

    def scale(self, raw: np.ndarray) -> np.ndarray:
        """Return linear values; below the darkness level they are 0."""
        return linear(raw, self.darkness, self.saturation)

    def is_unsaturated(self, raw: np.ndarray) -> np.ndarray:
        """Return where no channel is saturated."""
        return (raw < self.saturation).all(axis=-1)


class OfficialNus(NamedTuple):
    """One camera of the release, with its photographs and the charts in them."""

    folder: Path
    photographs: ConstancySet
    levels: RawLevels

    def read_chart(self, i: int) -> ChartColors:
        """Return the chart's colours in image i; saturated ones are not usable.

        The scale is that of the image. The release contains the colours:
        `CHECKER/<name>_color.txt` has a patch's raw R,G,B per line, grey row first. The darkness
        level is included, as FFCC's published code assumes.

        Raises:
          MissingDataError: the file does not exist.
          DataError: the file does not hold 24 lines of three numbers.
        """
        path = self.folder / "CHECKER" / f"{self.photographs.names[i]}_color.txt"
        text = read_text(path, f"Download it from {OWNER}.")
        with refusing(path, "It should hold R,G,B on each line. Download it again."):
            raw = np.loadtxt(text.splitlines(), delimiter=",", ndmin=2)
        if raw.shape != (24, 3) or not np.isfinite(raw).all():
            raise DataError(f"{path} holds {raw.shape}, not 24 lines of R,G,B. Download it again.")
        return ChartColors(self.levels.scale(raw), self.levels.is_unsaturated(raw))


def _read_nus8(
    paths: list[Path], rectangles: Int[np.ndarray, "n 4"], levels: RawLevels, index: int
) -> Photograph:
    """Return an image and its mask, False in the chart's rectangle and where it is saturated.

    Rectangles are MATLAB's `[y1 y2 x1 x2]`, counted from 1 with both ends included.
    """
    raw = read_picture(paths[index], OWNER)
    top, bottom, left, right = rectangles[index]
    if not (1 <= top <= bottom <= raw.shape[0] and 1 <= left <= right <= raw.shape[1]):
        raise DataError(
            f"{paths[index]} is {raw.shape[0]}x{raw.shape[1]}, but its chart's rectangle is rows "
            f"{top} to {bottom}, columns {left} to {right}. Download it again from {OWNER}; a "
            "rotated or resized image does not fit its ground truth."
        )
    mask = levels.is_unsaturated(raw)
    mask[top - 1 : bottom, left - 1 : right] = False
    return Photograph(levels.scale(raw), mask)


def load_official(folder: Path, camera: str) -> OfficialNus:
    """Load one camera of the release, unpacked from its archives.

    `<folder>/<camera>/` holds `<camera>_gt.mat` (ground truth and levels), `PNG/<name>.PNG`
    (demosaiced, linear, 16 bits) and `CHECKER/<name>_color.txt` (colours of the chart's patches).

    Raises:
      MissingDataError: the ground truth does not exist.
      DataError: the ground truth is damaged, lacks a variable or its variables differ in length.
    """
    path = folder / camera / f"{camera}_gt.mat"
    if not path.exists():
        raise MissingDataError(
            f"{path} does not exist. Download the camera's PNG, MASK and GROUNDTRUTH archives "
            f"from {OWNER}; about 200 16-bit images of 16 to 24 megapixels per camera."
        )
    variables = ["all_image_names", "groundtruth_illuminants", "CC_coords"]
    variables += ["darkness_level", "saturation_level"]
    cells, illuminants, rectangles, darkness, saturation = read_mat(path, variables)
    names = tuple(str(np.squeeze(cell)) for cell in cells.ravel())
    if illuminants.shape != (len(names), 3) or rectangles.shape != (len(names), 4):
        raise DataError(
            f"{path}: {len(names)} names, but illuminants {illuminants.shape} and charts "
            f"{rectangles.shape}; expected (n, 3) and (n, 4). Download it again."
        )
    with refusing(path, f"Download it again from {OWNER}."):
        illuminants = checked_illuminants(illuminants)
        if any(leads_outside(name) for name in names):
            raise ValueError("an image's name points outside the folder")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"several images have the name {twice!a}")
        if not darkness.item() < saturation.item():
            raise ValueError(
                f"the darkness {darkness.item()} is not below the saturation {saturation.item()}"
            )
    levels = RawLevels(float(darkness.item()), float(saturation.item()))
    paths = [folder / camera / "PNG" / f"{name}.PNG" for name in names]
    read = partial(_read_nus8, paths, rectangles.astype(np.int32), levels)
    photographs = ConstancySet(names=names, illuminants=illuminants, read_image=read)
    return OfficialNus(folder / camera, photographs, levels)


def load_nus8(folder: Path) -> dict[str, ConstancySet]:
    """Return the cameras of the NUS-8 release present in a folder (`load_official`).

    Raises:
      MissingDataError: no camera is present.
      DataError: a ground truth file is damaged.
    """
    present = [name for name in NUS8_CAMERAS if (folder / name / f"{name}_gt.mat").exists()]
    if not present:
        # Raises an error that names the files and their source.
        load_official(folder, NUS8_CAMERAS[0])
    return {name: load_official(folder, name).photographs for name in present}


DATA_SETS = {
    "nus8": DataSet(
        "NUS-8: the official release, 16-bit PNG, for paper two-camera --preset nus-paper",
        files=("nus8/NikonD5200", "nus8/Canon1DsMkIII"),
        owner=OWNER,
        source="PNG, ground truth and CHECKER archives of both cameras, unpacked",
        read_photographs=load_nus8,
    )
}
