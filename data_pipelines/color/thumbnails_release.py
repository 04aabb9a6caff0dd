"""Thumbnails of NUS-8 and Cube+ as shuwei666/DMCC-Cross-sensor-color-constancy publishes them.

A folder a camera below `dataset/` holds `numpy_data/NAME.npy`, float32 `[64, 64, 3]`, linear and
scaled to a maximum of 1, and `numpy_labels/NAME.npy`, the light's three numbers, of sum 1.
"""

from pathlib import PurePosixPath

import numpy as np
from jaxtyping import Float

from data_pipelines.arrays import decode_npy
from data_pipelines.preparing import Files, Source, matching, npz

NUS_FOLDERS = {
    "Canon1DsMkIII": "NUS-C1",
    "Canon600D": "NUS-Canon600D",
    "FujifilmXM1": "NUS-Fuji",
    "NikonD5200": "NUS-NikonD5200",
    "OlympusEPL6": "NUS-Olympus",
    "PanasonicGX1": "NUS-Panasonic",
    "SamsungNX2000": "NUS-Samsung",
    "SonyA57": "NUS-Sony",
}
CUBE_FOLDERS = {"Canon550D": "Cube+"}
_SHAPE = (64, 64, 3)
_BYTES = 100_000
"""Of a file; an image has 49,280."""


def nus_thumbnails(source: Source) -> Files:
    """A file a camera, its lights of unit length, as NUS-8 itself has them."""
    return {
        f"{camera}.npz": lambda folder=folder: _camera(source, folder, unit_length=True)
        for camera, folder in NUS_FOLDERS.items()
    }


def cube_thumbnails(source: Source) -> Files:
    """The one camera, its lights of sum 1, as Cube+ itself has them."""
    return {
        f"{camera}.npz": lambda folder=folder: _camera(source, folder, unit_length=False)
        for camera, folder in CUBE_FOLDERS.items()
    }


def _camera(source: Source, folder: str, unit_length: bool) -> bytes:
    """Images as 16-bit numbers, of which 65535 is 1, lights and names."""
    paths = matching(source, lambda path: f"/{folder}/numpy_data/" in f"/{path}")
    if not paths:
        raise ValueError(f"no {folder}/numpy_data")
    names = sorted(PurePosixPath(path).stem for path in paths)
    start = paths[0].rpartition("numpy_data/")[0]
    images = np.empty((len(names), *_SHAPE), np.uint16)
    lights = np.empty((len(names), 3))
    for place, name in enumerate(names):
        image = _read(source, f"{start}numpy_data/{name}.npy", _SHAPE)
        if image.min() < 0 or image.max() > 1:
            raise ValueError(f"{name} goes from {image.min()} to {image.max()}, not 0 to 1")
        images[place] = np.rint(image * np.float32(65535))
        lights[place] = _read(source, f"{start}numpy_labels/{name}.npy", (3,))
    if unit_length:
        lights /= np.linalg.norm(lights, axis=1, keepdims=True)
    return npz(images_u16=images, illuminant_rgb=lights, names=np.array(names))


def _read(source: Source, path: str, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    array = decode_npy(source.read(path, _BYTES), f"{source.path}: {path}", source.way_out)
    if array.size != np.prod(shape) or array.dtype.kind != "f" or not np.isfinite(array).all():
        raise ValueError(f"{path} is {array.dtype} of {array.shape}, not {shape} finite numbers")
    return array.reshape(shape)
