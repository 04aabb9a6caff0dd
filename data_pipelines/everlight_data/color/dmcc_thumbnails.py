"""Thumbnails of NUS-8, Cube+ and INTEL-TAU of shuwei666/DMCC-Cross-sensor-color-constancy.

`dataset/` there has one folder per camera. `numpy_data/NAME.npy` is a linear image, float32 `[64,
64, 3]`, scaled to a maximum of 1. `numpy_labels/NAME.npy` is the illuminant's three numbers, of sum
1.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from everlight_data.color.photographs.camera_names import NUS8_CAMERAS
from everlight_data.errors import DataError
from everlight_data.formats.arrays import decode_npy, dtype_and_shape
from everlight_data.formats.files import refusing
from everlight_data.formats.tables import read_columns
from everlight_data.sets.constancy_set import ConstancySet
from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.preparing import Files, Source, matching, npz

OWNER = "shuwei666/DMCC-Cross-sensor-color-constancy on GitHub"
NUS_FOLDERS = dict(
    zip(
        NUS8_CAMERAS,
        (
            "NUS-C1",
            "NUS-Canon600D",
            "NUS-Fuji",
            "NUS-NikonD5200",
            "NUS-Olympus",
            "NUS-Panasonic",
            "NUS-Samsung",
            "NUS-Sony",
        ),
        strict=True,
    )
)
CUBE_FOLDERS = {"Canon550D": "Cube+"}
TAU_FOLDERS = {
    "Canon_5DSR": "TAU_C_5DSR",
    "Nikon_D810": "TAU_N_D810",
    "Sony_IMX135": "TAU_S_IMX135",
}
TURNED_CAMERA = "Sony_IMX135"
"""Camera whose images of the laboratory and of shared scenes are published upside down."""
SHARED_PART = "field3cam"
"""Part of INTEL-TAU whose images with one number show one scene, by all three cameras."""
TURNED_PARTS = (SHARED_PART, "lab_printouts", "lab_realscene")
SHARED_SCENES = "same_scenes.csv"
_SHAPE = (64, 64, 3)
_MAX_BYTES = 100_000
"""Limit on the size of a file; an image has 49,280 bytes."""

MAIN, SECOND = "NikonD5200", "Canon1DsMkIII"
PAIRS = f"pairs_{MAIN}_{SECOND}.csv"
SCENES = "scenes.csv"
"""List of the scenes of NUS-8's images, for `--groups` of `illuminant dataset`."""
MIN_CORRELATION = 0.4
"""Minimum correlation of two photographs of the same scene."""
NEIGHBORS = 5
BLUR_SIGMA = 1.2
"""Standard deviation of the blur in pixels, which absorbs the cameras' different positions."""
LOG_OFFSET = 1e-4


class SameScenePairs(NamedTuple):
    """Names of two cameras' images of the same scenes, with structural similarity up to 1."""

    main: tuple[str, ...]
    second: tuple[str, ...]
    similarity: Float[np.ndarray, "n"]


def load_same_scene_pairs(path: Path | None = None) -> SameScenePairs:
    """Return pairs of Nikon D5200 (main) and Canon 1Ds Mark III (second) images of the same scene.

    `data prepare` finds these 172 pairs by comparing the structure of the thumbnails. They are not
    the two-camera paper's own list, which has 195 pairs.

    Args:
      path: folder of the list; None is `nus8_64x64` below EVERLIGHT_DATA.

    Raises:
      MissingDataError: the list does not exist.
      DataError: the list has other columns, a row of another length, or an image twice.
    """
    file = (DATA_SETS["nus-thumbnails"].locate() if path is None else path) / PAIRS
    remedy = f"Download it from {OWNER}."
    rows = read_columns(file, ("nikon", "canon", "structure_similarity"), remedy)
    main, second, numbers = zip(*rows, strict=True) if rows else ((), (), ())
    with refusing(file, remedy):
        similarity = np.array(numbers, np.float32)
    if not len(set(main)) == len(set(second)) == len(rows):
        raise DataError(
            f"{file} has an image in two pairs; each may be in one only. Download it again."
        )
    return SameScenePairs(main, second, similarity)


def thumbnail_files() -> list[Path]:
    """Return the eight cameras' thumbnail files below EVERLIGHT_DATA.

    Raises:
      MissingDataError: their folder does not exist.
    """
    folder = DATA_SETS["nus-thumbnails"].locate()
    return [folder / f"{camera}.npz" for camera in NUS8_CAMERAS]


def nus_thumbnails(source: Source) -> Files:
    """Return the recipe of a file per camera, with illuminants of unit length as in NUS-8, the
    pairs and the scenes."""
    files = {
        f"{camera}.npz": lambda folder=folder: _camera_npz(source, folder, unit_length=True)
        for camera, folder in NUS_FOLDERS.items()
    }
    return files | {PAIRS: lambda: _pairs_csv(source), SCENES: lambda: _scenes_csv(source)}


def same_scenes(
    main: Float[np.ndarray, "n 64 64 3"], second: Float[np.ndarray, "m 64 64 3"]
) -> tuple[Int[np.ndarray, "k 2"], Float[np.ndarray, "k"]]:
    """Return the indices of two cameras' images of the same scenes and their similarity, at most 1.

    Both cameras visited the scenes mostly in the same order, so neighbouring images help to find
    partners. A score sums the correlations of two images and of the five pairs before and after
    them. Two images are partners if each is the other's best match by that score and their own
    correlation is at least 0.4. Masked pixels are 0.
    """
    alike = _structure(main) @ _structure(second).T
    padded = np.pad(alike, NEIGHBORS)
    (rows, columns), steps = alike.shape, range(2 * NEIGHBORS + 1)
    along = sum(padded[step : step + rows, step : step + columns] for step in steps)
    best = along.argmax(axis=1)
    main_rows = np.arange(rows)
    mutual = (along.argmax(axis=0)[best] == main_rows) & (alike[main_rows, best] >= MIN_CORRELATION)
    return np.stack([main_rows, best], axis=1)[mutual], alike[main_rows, best][mutual]


def group_scenes(cameras: Sequence[Float[np.ndarray, "_ 64 64 3"]]) -> list[Int[np.ndarray, "_"]]:
    """Return the scene of each camera's images, numbered across the cameras.

    Images are of one scene if `same_scenes` of any two cameras joins them, also through images by
    other cameras. An image without a partner is a scene of its own.
    """
    # A fifth of a second to import, which the list of data sets does not need.
    from scipy.sparse.csgraph import connected_components

    ends = np.cumsum([0, *map(len, cameras)])
    joined = np.zeros((ends[-1], ends[-1]), bool)
    for first, second in combinations(range(len(cameras)), 2):
        places, _ = same_scenes(cameras[first], cameras[second])
        joined[ends[first] + places[:, 0], ends[second] + places[:, 1]] = True
    return np.split(connected_components(joined, directed=False)[1], ends[1:-1])


def scenes_of(cameras: Mapping[str, ConstancySet]) -> dict[str, Int[np.ndarray, "_"]]:
    """Return the scene of each camera's thumbnails, as `group_scenes` finds it."""
    images = [
        np.stack([camera.read_image(row).image for row in range(len(camera.names))])
        for camera in cameras.values()
    ]
    return dict(zip(cameras, group_scenes(images), strict=True))


def _structure(images: Float[np.ndarray, "n 64 64 3"]) -> Float[np.ndarray, "n 4096"]:
    """Return blurred log brightness with mean 0 and length 1; masked pixels get the mean."""
    # Half a second to import, which the list of data sets does not need.
    from scipy.ndimage import gaussian_filter

    mask = images.any(axis=-1)
    brightness = np.log(images.mean(axis=-1) + LOG_OFFSET)
    means = np.mean(brightness, axis=(1, 2), where=mask, keepdims=True)
    blurred = gaussian_filter(np.where(mask, brightness - means, 0), (0, BLUR_SIGMA, BLUR_SIGMA))
    flat = blurred.reshape(len(images), -1)
    flat -= flat.mean(axis=1, keepdims=True)
    return flat / np.linalg.norm(flat, axis=1, keepdims=True)


def _pairs_csv(source: Source) -> bytes:
    (main, images, _), (second, others, _) = (
        _published_images(source, NUS_FOLDERS[camera]) for camera in (MAIN, SECOND)
    )
    # The older camera's images came with its successor's.
    main_rows = [place for place, name in enumerate(main) if name.startswith(MAIN)]
    places, alike = same_scenes(images[main_rows], others)
    rows = [
        f"{main[main_rows[i]]},{second[j]},{value:.3f}"
        for (i, j), value in zip(places.tolist(), alike, strict=True)
    ]
    return "\n".join(["nikon,canon,structure_similarity", *rows, ""]).encode()


def _scenes_csv(source: Source) -> bytes:
    names, images = {}, []
    for camera, folder in NUS_FOLDERS.items():
        published, pictures, _ = _published_images(source, folder)
        # The older camera's images came with its successor's.
        rows = [row for row, name in enumerate(published) if name.startswith(f"{camera}_")]
        names[camera] = [published[row] for row in rows]
        images.append(pictures[rows])
    lines = [
        f"{camera},{name},{scene + 1}"
        for (camera, published), scenes in zip(names.items(), group_scenes(images), strict=True)
        for name, scene in zip(published, scenes.tolist(), strict=True)
    ]
    return "\n".join(["camera,image,group", *lines, ""]).encode()


def cube_thumbnails(source: Source) -> Files:
    """Return the recipe of the one camera, with illuminants of sum 1 as in Cube+."""
    return {
        f"{camera}.npz": lambda folder=folder: _camera_npz(source, folder, unit_length=False)
        for camera, folder in CUBE_FOLDERS.items()
    }


def tau_thumbnails(source: Source) -> Files:
    """Return the recipe of a file per camera, with illuminants of sum 1, and the shared scenes.

    Images are named after part and number, as field-0041, and are in that order. All are upright.
    """
    files = {
        f"{camera}.npz": lambda camera=camera: _tau_npz(source, camera) for camera in TAU_FOLDERS
    }
    return files | {SHARED_SCENES: lambda: _shared_scenes_csv(source)}


def _tau_npz(source: Source, camera: str) -> bytes:
    published, images, illuminants = _published_images(source, TAU_FOLDERS[camera])
    names = np.array([_tau_name(name) for name in published])
    if camera == TURNED_CAMERA:
        turned = [name.rpartition("-")[0] in TURNED_PARTS for name in names]
        images[turned] = images[turned, ::-1, ::-1]
    order = np.argsort(names)
    return _pack(names[order], images[order], illuminants[order])


def _tau_name(published: str) -> str:
    """Return part and number of a name such as C_5DSR_field_41."""
    match = re.fullmatch(r".*?_((?:field|lab)[a-z0-9_]*)_(\d{1,4})", published)
    if match is None:
        raise ValueError(f"{published} does not end in a part of INTEL-TAU and a number")
    return f"{match[1]}-{int(match[2]):04}"


def _shared_scenes_csv(source: Source) -> bytes:
    """Return the list of pairs of any two cameras: equal names, of scenes by all three."""
    cameras = [
        {_tau_name(name) for name in _image_paths(source, folder)}
        for folder in TAU_FOLDERS.values()
    ]
    shared = sorted(
        name for name in set.intersection(*cameras) if name.startswith(f"{SHARED_PART}-")
    )
    return "\n".join(["main,second", *(f"{name},{name}" for name in shared), ""]).encode()


def _camera_npz(source: Source, folder: str, unit_length: bool) -> bytes:
    names, images, illuminants = _published_images(source, folder)
    if unit_length:
        illuminants /= np.linalg.norm(illuminants, axis=1, keepdims=True)
    return _pack(np.array(names), images, illuminants)


def _pack(
    names: Shaped[np.ndarray, "n"],
    images: Float[np.ndarray, "n 64 64 3"],
    illuminants: Float[np.ndarray, "n 3"],
) -> bytes:
    """Pack images as 16-bit numbers (65535 is 1), illuminants and names."""
    quantized = np.rint(images * np.float32(65535)).astype(np.uint16)
    return npz(images_u16=quantized, illuminant_rgb=illuminants, names=names)


def _published_images(
    source: Source, folder: str
) -> tuple[list[str], Float[np.ndarray, "n 64 64 3"], Float[np.ndarray, "n 3"]]:
    """Return names, images and illuminants of a camera, sorted by name."""
    paths = _image_paths(source, folder)
    images = np.empty((len(paths), *_SHAPE), np.float32)
    illuminants = np.empty((len(paths), 3))
    for place, (name, start) in enumerate(paths.items()):
        images[place] = _read_array(source, f"{start}numpy_data/{name}.npy", _SHAPE)
        illuminants[place] = _read_array(source, f"{start}numpy_labels/{name}.npy", (3,))
    if images.min() < 0 or images.max() > 1:
        raise ValueError(f"{folder} has values from {images.min()} to {images.max()}, not 0 to 1")
    return list(paths), images, illuminants


def _image_paths(source: Source, folder: str) -> dict[str, str]:
    """Return the path of a camera's folder by the name of each image, sorted by name."""
    paths = matching(source, lambda path: f"/{folder}/numpy_data/" in f"/{path}")
    if not paths:
        raise ValueError(f"it has no {folder}/numpy_data")
    names = sorted(PurePosixPath(path).stem for path in paths)
    starts = sorted({path.rpartition("numpy_data/")[0] for path in paths})
    if len(starts) > 1:
        raise ValueError(f"it has two folders {folder}, {starts[0]} and {starts[1]}; keep one")
    if repeated := [first for first, second in pairwise(names) if first == second]:
        raise ValueError(f"{folder}/numpy_data has two files {repeated[0]}; keep one")
    return dict.fromkeys(names, starts[0])


def _read_array(source: Source, path: str, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    array = decode_npy(source.read(path, _MAX_BYTES), f"{source.path}: {path}", source.remedy)
    if array.size != np.prod(shape) or array.dtype.kind != "f" or not np.isfinite(array).all():
        raise ValueError(f"{path} has {dtype_and_shape(array)}, not {shape} finite numbers")
    return array.reshape(shape)


_RELEASE = {"owner": OWNER, "source": "the repository, or its folder dataset"}
DATA_SETS = {
    "nus-thumbnails": DataSet(
        "NUS-8: 1,853 linear 64x64 thumbnails by eight cameras, with illuminants",
        files=tuple(
            f"nus8_64x64/{file}" for file in (*map("{}.npz".format, NUS_FOLDERS), PAIRS, SCENES)
        ),
        size_bytes=38_300_000,
        prepare=file_by_file(nus_thumbnails),
        **_RELEASE,
    ),
    "cube-plus-thumbnails": DataSet(
        "Cube+: 1,707 linear 64x64 thumbnails by a Canon 550D, with illuminants",
        files=tuple(f"cube_plus_64x64/{camera}.npz" for camera in CUBE_FOLDERS),
        size_bytes=36_500_000,
        prepare=file_by_file(cube_thumbnails),
        **_RELEASE,
    ),
    "intel-tau-thumbnails": DataSet(
        "INTEL-TAU: 7,005 linear 64x64 thumbnails by three cameras, with illuminants",
        files=tuple(
            f"intel_tau_64x64/{file}"
            for file in (*map("{}.npz".format, TAU_FOLDERS), SHARED_SCENES)
        ),
        size_bytes=141_400_000,
        prepare=file_by_file(tau_thumbnails),
        **_RELEASE,
    ),
}
