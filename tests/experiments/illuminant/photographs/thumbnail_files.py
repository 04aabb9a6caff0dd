"""Writers of thumbnails with known illuminants."""

import numpy as np


def write_thumbnails(path, camera, count, rng, side=16, low=0.4, high=1):
    """Write random tiles under random illuminants, with a masked corner."""
    illuminants = rng.uniform(low, high, (count, 3))
    tiles = rng.uniform(0.05, 0.9, (count, side // 4, side // 4, 3))
    images = tiles.repeat(4, axis=1).repeat(4, axis=2) * illuminants[:, None, None]
    images[:, :3, :3] = 0
    names = np.array([f"{camera}_{index:04}" for index in range(count)])
    np.savez(path, images=images, illuminant_rgb=illuminants, names=names)
    return images, illuminants


def write_cameras(folder, rng, count, names=("A1", "B2"), low=0.4, high=1):
    """Write files of equally many thumbnails of each camera."""
    files = tuple(folder / f"{camera}.npz" for camera in names)
    for file in files:
        write_thumbnails(file, file.stem, count, rng, low=low, high=high)
    return files
