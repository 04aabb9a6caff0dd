"""The record of a data set: its files, their preparation, and its labelled images.

A data set is one file of a folder such as `images` or `color`, or a folder there, and helpers of
several are in folders of other names. A file has its row at the bottom,
`DATA_SETS = {"NAME": DataSet(...)}`, which the `__init__` of a folder imports.
`everlight_data.registry` collects the rows.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from everlight_data.errors import DataError
from everlight_data.formats.originals import Original
from everlight_data.locations import locate
from everlight_data.sets.constancy_set import ConstancySet
from everlight_data.sets.image_set import ImageSet, PerClass
from everlight_data.sets.preparing import Recipe, prepare_files, read_manifest
from everlight_data.writing import amount


class ImageRequest(NamedTuple):
    """An image set by name or path, and the share of it that an experiment uses."""

    data: str
    """Name of a data set with images, tfds:NAME, or path of a user's images."""
    side: int | None = None
    """Side in pixels; None is the set's own, or 32 for a user's photographs and TFDS sets."""
    classes: int | None = None
    """Number of classes, the first ones; None is all, or 20 of the procedural world."""
    per_class: PerClass | None = None
    """Largest numbers of training and test images per class; None is all, or 100 and 50 of the
    procedural world."""
    test_every: int = 5
    """Interval of test images: every N-th image of a class of a user's set."""
    test_data: Path | None = None
    """Path of a user's own test set, or tfds:NAME; it has the same class names."""
    seed: int = 0
    """Seed of the procedural world."""
    first_class: int = 0
    """Number of classes that are left out before the first one."""
    fewest_classes: int = 2
    """Smallest number of classes of a user's set."""


class PreparationRequest(NamedTuple):
    """Request to prepare a data set in a folder from its publisher's files."""

    source: Path
    """The publisher's file, or the folder with it."""
    folder: Path
    """Destination folder, created if missing."""
    partial: bool = False
    """True accepts an incomplete source; rows need `accepts_partial` for it."""


Prepare = Callable[["DataSet", PreparationRequest], str]
"""Function that prepares a data set and returns a sentence about the result."""


class DataSet(NamedTuple):
    """A data set that `everlight data` lists and prepares, and `everlight run --data` loads."""

    description: str
    files: tuple[str, ...] = ()
    """Files and folders that the loaders need: paths below EVERLIGHT_DATA, all in one folder there.
    Without any the set is not listed."""
    owner: str = ""
    """Publisher of the data set and place of publication."""
    source: str = ""
    """Files to download from the publisher."""
    size_bytes: int | None = None
    """Size of the prepared files, or of the release if it is read as published; None if unknown."""
    prepare: Prepare | None = None
    """Preparation function; None if the release is read as published."""
    accepts_partial: bool = False
    """True if `prepare` can take an incomplete source."""
    original: Original | None = None
    """Size and hash of the source, if it is a single file and they are known."""
    alternatives: tuple[str, ...] = ()
    """Paths below EVERLIGHT_DATA that loaders read where one of `files` is missing, one for each in
    their order; empty if there are none."""
    releases: tuple[str, ...] = ()
    """Paths below EVERLIGHT_DATA at which a source of `prepare` may lie."""
    load: Callable[[ImageRequest], ImageSet] | None = None
    """Function from a request to labelled images: all, or at least the requested classes and those
    before them; None for a set without classes, or one that only a paper reads."""
    class_count: Callable[[ImageRequest], int] | None = None
    """Function from a request to the number of classes that it may choose from; `load` receives
    requests that fit this number. None if `load` returns all classes."""
    read_photographs: Callable[[Path], dict[str, ConstancySet]] | None = None
    """Function from the folder of a release of photographs with measured illuminants to its
    cameras; None for other sets."""

    @property
    def folder(self) -> str:
        """Return the path of the files' folder below EVERLIGHT_DATA.

        Raises:
          DataError: the row has no files.
        """
        if not self.files:
            raise DataError(f"{self.description!r} has no files; name them by `files` in its row")
        return self.files[0].rpartition("/")[0]

    @property
    def size(self) -> str:
        """Return the size of the set in words."""
        return "size unknown" if self.size_bytes is None else amount(self.size_bytes)

    @property
    def remedy(self) -> str:
        """Return the sentence on where to get the set, with which messages end."""
        if self.prepare is None:
            return f"Download {self.source} ({self.size}): {self.owner}."
        return (
            f"Prepare it with `everlight data prepare` from {self.source}: {self.owner}; it takes "
            f"{self.size}."
        )

    def release(self, root: Path) -> Path | None:
        """Return the path of a source below the folder of the data sets; None if there is none."""
        paths = (root / place for place in self.releases)
        return next((path for path in paths if path.exists()), None)

    def locate(self, file: str = "") -> Path:
        """Return the path of one of the set's files, by default of their folder.

        Raises:
          MissingDataError: EVERLIGHT_DATA is not set, or the path does not exist.
        """
        return locate(f"{self.folder}/{file}".removesuffix("/"), self.remedy)

    def state(self, root: Path | None) -> str:
        """Return the state of the data set: present, missing, incomplete or altered.

        Args:
          root: folder of the data sets; None if there is none.

        Raises:
          DataError: the data set's manifest is damaged.
        """
        if root is None:
            return "missing"
        paths = [root / file for file in self.files]
        pairs = zip(paths, self.alternatives or self.files, strict=True)
        absent = [
            path.name for path, place in pairs if not path.exists() and not (root / place).exists()
        ]
        if absent:
            incomplete = f"incomplete, {', '.join(absent)} missing"
            return "missing" if len(absent) == len(paths) else incomplete
        sizes = {path.name: path.stat().st_size for path in paths if path.is_file()}
        entries = read_manifest(root / self.folder)
        altered = [
            name
            for name, size in sizes.items()
            if name in entries and entries[name].get("bytes") != size
        ]
        if altered:
            return f"altered since it was prepared: {', '.join(altered)}; prepare it again"
        return "present"


def prepare_recipe(
    recipe: Recipe, row: DataSet, request: PreparationRequest, together: bool = False
) -> list[str]:
    """Make the files of a recipe and return the names of those that this call made.

    Args:
      recipe: function from the opened source to its files.
      row: the data set.
      request: source and destination.
      together: True if files of different sources do not fit together; see `prepare_files`.
    """
    return prepare_files(
        request.source,
        request.folder,
        recipe,
        remedy=f"Download {row.source} again: {row.owner}.",
        room=row.size_bytes or 0,
        original=row.original,
        together=together,
    )


def describe_created(files: Sequence[str]) -> str:
    """Return in words which files a preparation made."""
    return f"created {', '.join(files)}" if files else "already prepared, nothing to do"


def file_by_file(recipe: Recipe) -> Prepare:
    """Return a preparation function that makes the files of a recipe one by one."""
    return lambda row, request: describe_created(prepare_recipe(recipe, row, request))
