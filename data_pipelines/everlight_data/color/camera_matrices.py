"""Cameras' matrices from XYZ to camera colours: the list cameras.xml of rawspeed or darktable."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import numpy as np
from jaxtyping import Float

from everlight_data.color.photographs.camera_names import plain_name
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import read_bytes, refusing
from everlight_data.names import did_you_mean
from everlight_data.sets.data_set import DataSet
from everlight_data.texts import one_line

FILE = "cameras.xml"
MAX_XML_BYTES = 5_000_000
"""Limit on the size of cameras.xml; that of rawspeed 2023 has 0.7 MB."""
MAX_ENTRY = 20.0
"""Limit on the size of a matrix's entries; those of real cameras stay below 3."""
REMEDY = "Give the cameras.xml of rawspeed or darktable."


class ListedCamera(NamedTuple):
    """Camera of a cameras.xml."""

    model: str
    """Model, which modes of one camera share."""
    names: tuple[str, ...]
    """Its name, and the aliases, each with the maker too."""
    matrix: Float[np.ndarray, "3 3"]
    """Matrix from XYZ under D65 to camera colours."""


def read_camera_matrices(path: Path) -> dict[str, Float[np.ndarray, "3 3"]]:
    """Return each camera's matrix from XYZ under D65 to camera colours, by name and alias.

    Cameras without a matrix of three channels are left out, and so are names of several cameras
    with different matrices. Of a camera with several modes the first one counts.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is too large, no such XML, or a matrix is damaged.
    """
    return _unambiguous(_listed_cameras(path))


def _unambiguous(cameras: Sequence[ListedCamera]) -> dict[str, Float[np.ndarray, "3 3"]]:
    """Return the matrices by name and alias, without names of cameras that differ in theirs."""
    by_name: dict[str, ListedCamera] = {}
    ambiguous = set()
    for camera in cameras:
        for name in camera.names:
            first = by_name.setdefault(name, camera)
            if first.model != camera.model and (first.matrix != camera.matrix).any():
                ambiguous.add(name)
    return {name: camera.matrix for name, camera in by_name.items() if name not in ambiguous}


def _listed_cameras(path: Path) -> list[ListedCamera]:
    """Return the cameras of a cameras.xml; raises as `read_camera_matrices` does."""
    content = read_bytes(path, MAX_XML_BYTES, REMEDY)
    with refusing(path, REMEDY):
        # Entities could expand to any size; the file has none. Another encoding could hide them.
        text = content.decode("utf-8-sig")
        if "\0" in text:
            raise ValueError("it is not UTF-8")
        if "<!ENTITY" in text:
            raise ValueError("it declares entities")
        root = ElementTree.fromstring(text)
        if root.tag != "Cameras":
            raise ValueError("its root is not Cameras")
        listed = []
        for camera in root.iterfind("Camera"):
            matrix = camera.find("ColorMatrices/ColorMatrix")
            if matrix is None or matrix.get("planes") != "3":
                continue
            by_plane = [(row.get("plane"), row.text) for row in matrix.iterfind("ColorMatrixRow")]
            if sorted(plane or "" for plane, _ in by_plane) != ["0", "1", "2"]:
                planes = ", ".join(str(plane) for plane, _ in by_plane)
                raise ValueError(f"a matrix has rows of the planes {planes}, not 0, 1 and 2")
            rows = [text.split() for _, text in sorted(by_plane)]
            values = np.array(rows, float) / 10_000
            if values.shape != (3, 3) or not (np.abs(values) <= MAX_ENTRY).all():
                raise ValueError(
                    f"a matrix is of {values.shape}, or an entry is not within {MAX_ENTRY:g}"
                )
            listed.append(ListedCamera(camera.get("model", ""), _published_names(camera), values))
        if not listed:
            raise ValueError("it holds no camera with a matrix")
    return listed


def _published_names(camera: ElementTree.Element) -> tuple[str, ...]:
    """Return a camera's published names: ID, make and model, aliases; spelled alike, the first."""
    identity = camera.find("ID")
    makers = [camera.get("make", "")]
    names = [f"{makers[0]} {camera.get('model', '')}"]
    if identity is not None:
        makers.append(identity.get("make", ""))
        names = [identity.text or "", *names, f"{makers[1]} {identity.get('model', '')}"]
    for alias in camera.iterfind("Aliases/Alias"):
        text = (alias.text or "").strip()
        names += [text, *(f"{maker} {text}" for maker in makers if text)]
    plain = {}
    for name in names:
        if name.strip():
            plain.setdefault(plain_name(name), name.strip())
    return tuple(plain.values())


def find_matrix(
    cameras: Mapping[str, Float[np.ndarray, "3 3"]], camera: str
) -> Float[np.ndarray, "3 3"]:
    """Return the matrix of a camera by its name or alias, as `plain_name` compares them.

    Raises:
      DataError: no name is the camera's; the message gives the nearest ones.
    """
    named = {plain_name(name): matrix for name, matrix in cameras.items()}
    key = plain_name(camera)
    if not key or key not in named:
        raise unknown_camera(camera, list(cameras))
    return named[key]


def unknown_camera(camera: str, names: Sequence[str]) -> DataError:
    """Return the error about a camera that is not in a list of names, with the nearest ones."""
    hint = did_you_mean(camera, names) or "."
    return DataError(
        f"no calibration matrix of {camera!a}{hint} Give a DNG by the camera, a cameras.xml that "
        f"lists it, or a copy of a cameras.xml with {alias_in_words(camera)} in its camera"
    )


def alias_in_words(camera: str) -> str:
    """Return the elements of a cameras.xml that give a camera another name."""
    return f"<Aliases><Alias>{escape(one_line(camera))}</Alias></Aliases>"


def is_alias(one: str, other: str) -> bool:
    """Return True if `camera_matrices/cameras.xml` lists both names for one camera.

    A model without its maker, as EOS 550D in profiles, is a name of the only camera that ends in
    it. Without that file no name is an alias.

    Raises:
      DataError: the file is damaged.
    """
    first, second = _cameras_named(one), _cameras_named(other)
    return any(camera in second for camera in first)


def is_listed(name: str) -> bool:
    """Return True if `camera_matrices/cameras.xml` has a camera of a name, as `is_alias` does."""
    return bool(_cameras_named(name))


def _cameras_named(name: str) -> list[int]:
    """Return the places of the cameras that a name is of in the stored list, if there is one."""
    try:
        cameras = _stored_cameras()
    except MissingDataError:
        return []
    key = plain_name(name)
    named = [{plain_name(name) for name in camera.names} for camera in cameras]
    places = [place for place, names in enumerate(named) if key in names]
    if places or not key:
        return places
    # Modes of one camera are several entries of one model.
    models = [
        place
        for place, names in enumerate(named)
        if any(name.partition(" ")[2] == key for name in names)
    ]
    return models if len({cameras[place].model for place in models}) == 1 else []


def stored_matrices() -> dict[str, Float[np.ndarray, "3 3"]]:
    """Return the matrices of `camera_matrices/cameras.xml` below EVERLIGHT_DATA.

    Raises:
      MissingDataError: the file does not exist.
      DataError: as for `read_camera_matrices`.
    """
    return _unambiguous(_stored_cameras())


def _stored_cameras() -> list[ListedCamera]:
    path = DATA_SETS["camera-matrices"].locate(FILE)
    return _listed_once(path, path.stat().st_mtime_ns)


@cache
def _listed_once(path: Path, changed: int) -> list[ListedCamera]:
    """Return the cameras of a file that was changed at this time."""
    return _listed_cameras(path)


DATA_SETS = {
    "camera-matrices": DataSet(
        "matrices from XYZ to the colours of about 1,000 cameras, for calibrated estimators",
        files=(f"camera_matrices/{FILE}",),
        owner="rawspeed (github.com/darktable-org/rawspeed) or darktable",
        source="data/cameras.xml",
        size_bytes=700_000,
    )
}
