"""Cube+ (Banić et al. 2017): photographs by a Canon 550D with the illuminants of a SpyderCube."""

from functools import partial
from pathlib import Path

from everlight_data.color.photographs.linear_pictures import linear, read_picture
from everlight_data.color.photographs.release_files import (
    files_below,
    files_by_stem,
    only_file,
    read_illuminants,
)
from everlight_data.errors import DataError, MissingDataError
from everlight_data.names import name_first
from everlight_data.sets.constancy_set import ConstancySet, Photograph
from everlight_data.sets.data_set import DataSet

OWNER = "the page of the Cube+ set of the University of Zagreb's Image Processing Group"
_CUBE_BLACK = 2048
# The SpyderCube hangs in the image from here to the lower right corner.
_CUBE_TARGET = 1049, 2049


def load_cube_plus(folder: Path) -> dict[str, ConstancySet]:
    """Return the unpacked Cube+ set: `cube+_gt.txt` and `<number>.PNG` at any depth of the folder.

    According to its authors, the black level is 2048, and pixels from two below the image's maximum
    are saturated. The lower right corner shows the target.

    Raises:
      MissingDataError: the ground truth or an image is missing.
      DataError: a file is damaged.
    """
    truth = only_file(folder, "cube+_gt.txt", OWNER)
    illuminants = read_illuminants(truth, OWNER)
    paths = files_by_stem(files_below(folder, "*.png"))
    names = tuple(str(number) for number in range(1, len(illuminants) + 1))
    missing = [name for name in names if name not in paths]
    if missing:
        raise MissingDataError(
            f"{folder} lacks {name_first([f'{name}.PNG' for name in missing])} of the {len(names)} "
            f"images listed in {truth.name}. Download them from {OWNER}."
        )
    read = partial(_read_cube_plus, [paths[name] for name in names])
    return {"Canon550D": ConstancySet(names=names, illuminants=illuminants, read_image=read)}


def _read_cube_plus(paths: list[Path], index: int) -> Photograph:
    raw = read_picture(paths[index], OWNER)
    white = int(raw.max()) - 2
    if white <= _CUBE_BLACK:
        raise DataError(f"{paths[index]} is entirely black. Download it again from {OWNER}.")
    usable = (raw < white).all(axis=-1)
    usable[_CUBE_TARGET[0] :, _CUBE_TARGET[1] :] = False
    return Photograph(linear(raw, _CUBE_BLACK, white), usable)


DATA_SETS = {
    "cube-plus": DataSet(
        "Cube+: photographs by a Canon 550D, with illuminants",
        owner=OWNER,
        read_photographs=load_cube_plus,
    )
}
