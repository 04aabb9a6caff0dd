"""NUS-8 (Cheng, Prasad, Brown, JOSA A 2014): the release of photographs by eight cameras."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from everlight_data.color.dmcc_thumbnails import CAMERAS
from everlight_data.color.photographs.linear_pictures import (
    checked_illuminants,
    linear,
    read_picture,
)
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import leads_outside, read_text, refusing
from everlight_data.formats.matlab import read_mat
from everlight_data.sets.constancy_set import ConstancySet
from everlight_data.sets.data_set import DataSet

NUS8 = "the dataset page of Cheng, Prasad and Brown 2014 (illuminant estimation, NUS)"


class OfficialNus(NamedTuple):
    """One camera of the release; images are read on demand.

    `chart_rectangles` are MATLAB's `[y1 y2 x1 x2]`, counted from 1 with both ends included.
    `darkness` and `saturation` are the camera's raw levels.
    """

    folder: Path
    names: tuple[str, ...]
    illuminants: Float[np.ndarray, "n 3"]
    chart_rectangles: Int[np.ndarray, "n 4"]
    darkness: float
    saturation: float

    def read_image(self, i: int) -> tuple[Float[np.ndarray, "h w 3"], Bool[np.ndarray, "h w"]]:
        """Return image i, linear from 0 at the darkness level to 1 at saturation, and its mask.

        Values below the darkness level become 0. The mask is False in the chart's rectangle and
        where any channel is saturated.

        Raises:
          MissingDataError: the file does not exist.
          DataError: the file is not an intact 16-bit RGB PNG, or the chart lies outside.
        """
        path = self.folder / "PNG" / f"{self.names[i]}.PNG"
        raw = read_picture(path, NUS8)
        top, bottom, left, right = self.chart_rectangles[i]
        if not (1 <= top <= bottom <= raw.shape[0] and 1 <= left <= right <= raw.shape[1]):
            raise DataError(
                f"{path} is {raw.shape[0]}x{raw.shape[1]}, but its chart's rectangle is rows {top} "
                f"to {bottom}, columns {left} to {right}; is the image rotated or resized?"
            )
        mask = (raw < self.saturation).all(axis=-1)
        mask[top - 1 : bottom, left - 1 : right] = False
        return self._linear(raw), mask

    def read_chart(self, i: int) -> tuple[Float[np.ndarray, "24 3"], Bool[np.ndarray, "24"]]:
        """Return the chart's 24 colours in image i and which of them are unsaturated.

        The scale is that of `read_image`. The release contains the colours:
        `CHECKER/<name>_color.txt` has a patch's raw R,G,B per line, grey row first. The darkness
        level is included, as FFCC's published code assumes.

        Raises:
          MissingDataError: the file does not exist.
          DataError: the file does not hold 24 lines of three numbers.
        """
        path = self.folder / "CHECKER" / f"{self.names[i]}_color.txt"
        text = read_text(path, f"Download it from {NUS8}.")
        with refusing(path, "It should hold R,G,B on each line. Download it again."):
            raw = np.loadtxt(text.splitlines(), delimiter=",", ndmin=2)
        if raw.shape != (24, 3) or not np.isfinite(raw).all():
            raise DataError(f"{path} holds {raw.shape}, not 24 lines of R,G,B. Download it again.")
        return self._linear(raw), (raw < self.saturation).all(axis=-1)

    def _linear(self, raw: np.ndarray) -> np.ndarray:
        return linear(raw, self.darkness, self.saturation)


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
            f"from {NUS8}; about 200 16-bit images of 16 to 24 megapixels per camera."
        )
    variables = ("all_image_names", "groundtruth_illuminants", "CC_coords")
    levels = ("darkness_level", "saturation_level")
    cells, illuminants, rectangles, darkness, saturation = read_mat(path, [*variables, *levels])
    names = tuple(str(np.squeeze(cell)) for cell in cells.ravel())
    if illuminants.shape != (len(names), 3) or rectangles.shape != (len(names), 4):
        raise DataError(
            f"{path}: {len(names)} names, but illuminants {illuminants.shape} and charts "
            f"{rectangles.shape}; expected (n, 3) and (n, 4). Download it again."
        )
    with refusing(path, f"Download it again from {NUS8}."):
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
    return OfficialNus(
        folder / camera,
        names,
        illuminants,
        rectangles.astype(np.int32),
        float(darkness.item()),
        float(saturation.item()),
    )


def nus8(folder: Path) -> dict[str, ConstancySet]:
    """Return the cameras of the NUS-8 release present in a folder (`load_official`).

    Raises:
      MissingDataError: no camera is present.
      DataError: a ground truth file is damaged.
    """
    present = [name for name in CAMERAS if (folder / name / f"{name}_gt.mat").exists()]
    if not present:
        # Raises an error that names the files and their source.
        load_official(folder, CAMERAS[0])
    official = {name: load_official(folder, name) for name in present}
    return {
        name: ConstancySet(release.names, release.illuminants, release.read_image)
        for name, release in official.items()
    }


DATA_SETS = {
    "nus8": DataSet(
        "NUS-8: the official release, 16-bit PNG, for paper two-camera --preset nus-paper",
        files=("nus8/NikonD5200", "nus8/Canon1DsMkIII"),
        owner=NUS8,
        source="PNG, ground truth and CHECKER archives of both cameras, unpacked",
        read_photographs=nus8,
    )
}
