"""Store of JPEG files, decoded on demand or shortly before, never all at once."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Shaped, UInt8, UInt32
from PIL import Image

from everlight_data.errors import DataError
from everlight_data.formats.files import converting
from everlight_data.formats.pictures import convert_mode, opaque, open_image
from everlight_data.texts import one_line

CROP_AREA = (0.08, 1.0)
"""Range of the fraction of an image that a training crop covers."""
CROP_ASPECT = (3 / 4, 4 / 3)
"""Range of a training crop's width over height."""
MAX_ATTEMPTS = 10
RESIZED, CROPPED = 256, 224
"""Shorter side and crop in evaluation; other crop sizes scale both."""

Box = tuple[float, float, float, float]
"""Left, upper, right and lower edge of a crop in pixels."""


class UndecodableError(DataError):
    """Error about a file that is not an intact image."""


class JpegStore:
    """Square RGB crops of image files by index, with bounded memory.

    Pillow decodes every file completely and releases the interpreter meanwhile. Decoding and
    cropping 500x375 pixels took 1.4 to 1.6 ms on one core, as with imagecodecs. Training crops
    follow the ImageNet practice (Szegedy et al. 2015, section 6; torchvision's RandomResizedCrop
    and flip). An evaluation crop is the centre of the image resized to 256 / 224 of the side. Both
    use antialiased bilinear interpolation, which at the border reads pixels outside the crop.

    Half the memory is for images decoded ahead, half for images decoded on demand.
    """

    def __init__(
        self,
        folder: Path,
        files: Shaped[np.ndarray, "n"],
        side: int,
        memory_limit: int,
        workers: int | None = None,
    ):
        """Prepare the store; no file is opened yet.

        Args:
          folder: folder that the file names are relative to.
          files: file names as NumPy bytes, which need less memory than a million objects.
          side: side of the crops in pixels.
          memory_limit: maximum bytes of all decoded images at a time; returned batches do not
            count.
          workers: number of reading threads, and of threads that decode ahead; None is one per
            core.
        """
        self.shape = (side, side, 3)
        self.failure: DataError | None = None
        """First reading error, kept because JAX passes on its text only.

        Every later call raises it too, so that programs on other devices end as well.
        """
        self._folder, self._files = folder, files
        self._workers = workers or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._workers)
        self._changed = threading.Condition()
        self._memory_limit = memory_limit
        self._room, self._room_ahead = memory_limit // 2, memory_limit // 2
        self._decoded: dict[int, list[tuple[int, Future]]] = {}
        self._readings = np.zeros(len(files), int)
        self._coming: Iterator[int] = iter(())

    @property
    def held(self) -> int:
        """Bytes of decoded images held now."""
        return 2 * (self._memory_limit // 2) - self._room - self._room_ahead

    def announce(self, order: Int[np.ndarray, "k"]) -> None:
        """Start decoding images ahead in this order, each for one reading; replaces earlier orders.

        An index that occurs twice is decoded for two readings. The order does not affect the
        results.
        """
        coming = iter(order)
        with self._changed:
            for size, future in chain.from_iterable(self._decoded.values()):
                future.add_done_callback(partial(self._give_back_ahead, size))
            self._decoded.clear()
            self._readings[:] = np.bincount(order, minlength=len(self._readings))
            self._coming = coming
            self._changed.notify_all()
        for _ in range(self._workers):
            # Daemons: they may wait for readings that never come.
            threading.Thread(target=self._decode_ahead, args=(coming,), daemon=True).start()

    def read(
        self, index: Int[np.ndarray, "*b"], keys: UInt32[np.ndarray, "*b words"] | None = None
    ) -> UInt8[np.ndarray, "*b side side 3"]:
        """Return crops of images.

        Args:
          index: indices in `files`.
          keys: one key per sample, which alone determines its training crop and mirroring; None
            gives evaluation crops.

        Raises:
          UndecodableError: a file is not an intact image; the message names it.
          DataError: a file cannot be read, or its decoded size exceeds half the memory limit; the
            message names it. All later calls raise the first such error.
        """
        if self.failure is not None:
            raise self.failure
        images = np.empty((index.size, *self.shape), np.uint8)
        draws = [None] * index.size if keys is None else keys.reshape(index.size, -1)
        try:
            list(self._pool.map(self._read_one, index.ravel(), draws, images))
        except DataError as error:
            self.failure = error
            raise
        return images.reshape(*index.shape, *self.shape)

    def undecodable(self, index: Int[np.ndarray, "k"]) -> Int[np.ndarray, "_"]:
        """Return the indices whose files are not intact images; every file is decoded.

        Raises:
          DataError: as for `read`.
        """
        return index[list(self._pool.map(self._is_undecodable, index))]

    def _is_undecodable(self, index: int) -> bool:
        try:
            self._with_image(index, lambda image: None)
        except UndecodableError:
            return True
        return False

    def _read_one(
        self, index: int, key: UInt32[np.ndarray, "words"] | None, crop: UInt8[np.ndarray, "..."]
    ) -> None:
        with self._changed:
            self._readings[index] = max(self._readings[index] - 1, 0)
            held = self._decoded.get(index)
            size, future = held.pop(0) if held else (0, None)
            self._changed.notify_all()
        if future is None:
            self._with_image(index, lambda image: _crop(image, key, crop))
            return
        try:
            _crop(future.result(), key, crop)
        finally:
            self._give_back_ahead(size)

    def _with_image(self, index: int, use: Callable[[Image.Image], None]) -> None:
        """Call a function with an image that was not decoded ahead."""
        image = self._open(index)
        size = _count_decoded_bytes(image)
        if size > self._memory_limit // 2:
            image.close()
            raise DataError(
                f"{self._path(index)} takes {size:,} bytes decoded, more than half the memory "
                f"limit of {self._memory_limit:,}; raise the limit"
            )
        with self._changed:
            self._changed.wait_for(lambda: self._room >= size)
            self._room -= size
        try:
            use(self._decode(index, image))
        finally:
            with self._changed:
                self._room += size
                self._changed.notify_all()

    def _decode_ahead(self, coming: Iterator[int]) -> None:
        """Decode from a shared order until it ends or is replaced."""

        def has_enough(index: int) -> bool:
            return len(self._decoded.get(index, ())) >= self._readings[index]

        def is_unneeded() -> bool:
            return coming is not self._coming or has_enough(index)

        while True:
            with self._changed:
                index = next((place for place in coming if not has_enough(place)), None)
            if index is None or coming is not self._coming:
                return
            try:
                image = self._open(index)
            except DataError:
                continue  # The reading call raises the error.
            size, future = _count_decoded_bytes(image), Future()
            with self._changed:
                self._changed.wait_for(lambda size=size: self._room_ahead >= size or is_unneeded())
                if is_unneeded():
                    image.close()
                    continue
                self._room_ahead -= size
                self._decoded.setdefault(index, []).append((size, future))
            try:
                future.set_result(self._decode(index, image))
            except DataError as error:
                future.set_exception(error)

    def _give_back_ahead(self, size: int, future: Future | None = None) -> None:
        with self._changed:
            self._room_ahead += size
            self._changed.notify_all()

    def _open(self, index: int) -> Image.Image:
        """Open an image and read its header."""
        path = self._path(index)
        with _naming(path):
            return open_image(path, "Download it again.")

    def _decode(self, index: int, image: Image.Image) -> Image.Image:
        with _naming(self._path(index)), image:
            image.load()
            # Some of ImageNet's files are grey, some CMYK, one a PNG.
            return convert_mode(opaque(image).image, "RGB")

    def _path(self, index: int) -> Path:
        return self._folder / os.fsdecode(self._files[index])


def _naming(path: Path) -> AbstractContextManager[None]:
    """Convert an error of a decoder; a file that cannot be read differs from a broken one."""

    def convert(error: Exception) -> DataError:
        # A broken file makes Pillow raise anything; only the system's own errors have a number.
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
            return DataError(f"{path} cannot be read ({one_line(error)})")
        reason = one_line(error)
        return UndecodableError(f"{path} is not an intact image ({reason}); download it again")

    return converting(convert)


def _count_decoded_bytes(image: Image.Image) -> int:
    # Pillow holds four bytes per pixel, and briefly the images that it converts from as well.
    of_pixel = 16 if image.has_transparency_data else 4 if image.mode == "RGB" else 8
    return image.width * image.height * of_pixel


def _crop(
    image: Image.Image, key: UInt32[np.ndarray, "words"] | None, crop: UInt8[np.ndarray, "..."]
) -> None:
    """Write a crop of an image into an array."""
    side = crop.shape[0]
    if key is None:
        box, mirrored = center_box(image.width, image.height, side), False
    else:
        box, mirrored = draw_crop(image.width, image.height, key)
    resized = np.asarray(image.resize((side, side), Image.Resampling.BILINEAR, box=box))
    crop[...] = resized[:, ::-1] if mirrored else resized


class Crop(NamedTuple):
    """Crop of an image for training."""

    box: Box
    mirrored: bool


def draw_crop(width: int, height: int, key: UInt32[np.ndarray, "words"]) -> Crop:
    """Draw a training crop of an image from a sample's key."""
    generator = np.random.default_rng(key)
    mirrored = bool(generator.random() < 0.5)
    for _ in range(MAX_ATTEMPTS):
        area = width * height * generator.uniform(*CROP_AREA)
        aspect = np.exp(generator.uniform(*np.log(CROP_ASPECT)))
        wide, high = round(np.sqrt(area * aspect)), round(np.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            left = int(generator.integers(width - wide + 1))
            upper = int(generator.integers(height - high + 1))
            return Crop((left, upper, left + wide, upper + high), mirrored)
    # An image much wider or higher than any crop: the middle, at the aspect nearest to its own.
    wide, high = (
        min(width, round(height * CROP_ASPECT[1])),
        min(height, round(width / CROP_ASPECT[0])),
    )
    left, upper = (width - wide) // 2, (height - high) // 2
    return Crop((left, upper, left + wide, upper + high), mirrored)


def center_box(width: int, height: int, side: int) -> Box:
    """Return the centre crop of an image whose shorter side becomes 256 / 224 of `side`."""
    shorter = round(side * RESIZED / CROPPED)
    edges = []
    for length in (width, height):
        resized = int(shorter * length / min(width, height))
        start, scale = round((resized - side) / 2), length / resized
        edges.append((start * scale, (start + side) * scale))
    (left, right), (upper, lower) = edges
    return left, upper, right, lower
