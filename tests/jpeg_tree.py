"""Trees of real JPEG files of varying size: mosaics of Tiny-ImageNet's images."""

import imagecodecs
import numpy as np
from PIL import Image

TILE = 32


class Mosaics:
    """Draws images of any size from Tiny-ImageNet's real ones (`train_0.npz`)."""

    def __init__(self, archive, rng, tiles=300):
        self.rng = rng
        with np.load(archive) as arrays:
            content, offsets = arrays["jpeg_bytes"], arrays["offsets"]
        self.tiles = np.stack(
            [imagecodecs.jpeg8_decode(content[offsets[i] : offsets[i + 1]]) for i in range(tiles)]
        )

    def draw(self, height, width):
        """Return pixels, uint8[height, width, 3]."""
        rows, columns = -(-height // TILE), -(-width // TILE)
        chosen = self.tiles[self.rng.integers(len(self.tiles), size=(rows, columns))]
        full = chosen.transpose(0, 2, 1, 3, 4).reshape(rows * TILE, columns * TILE, 3)
        return full[:height, :width]

    def write(self, path, smallest=200, greatest=600, quality=90):
        """Write a JPEG with sides between the two."""
        height, width = self.rng.integers(smallest, greatest + 1, 2)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(self.draw(height, width)).save(path, "JPEG", quality=quality)


def write_tree(root, mosaics, counts, **sizes):
    """Write `imagenet/{train,val}/<wnid>/*.JPEG` below root; counts: wnid to (train, val)."""
    for wnid, per_split in counts.items():
        for split, count in zip(("train", "val"), per_split, strict=True):
            for number in range(count):
                name = f"{wnid}_{number}.JPEG"
                mosaics.write(root / "imagenet" / split / wnid / name, **sizes)
