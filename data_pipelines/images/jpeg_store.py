"""Images of JPEG files, decoded when asked for or shortly before, never all at once."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from jaxtyping import Int, Shaped, UInt8, UInt32
from PIL import Image

from data_pipelines.errors import DataError
from data_pipelines.files import one_line
from data_pipelines.pictures import open_image

CROP_AREA = (0.08, 1.0)
"""Share of the image that a training crop covers."""
CROP_ASPECT = (3 / 4, 4 / 3)
"""Width over height of a training crop."""
MAX_ATTEMPTS = 10
RESIZED, CROPPED = 256, 224
"""In evaluation, the shorter side and the crop from it; other crops scale both."""

Box = tuple[float, float, float, float]
"""Left, upper, right and lower edge in pixels."""


class UndecodableError(DataError):
    """A file that is no whole image."""


class JpegStore:
    """Square crops of image files by index, in RGB, with bounded memory.

    Every file is decoded whole, by Pillow, which releases the interpreter meanwhile: 500x375 pixels
    with their crop took 1.4 to 1.6 ms on one core, as with imagecodecs. A training crop
    is drawn as for ImageNet (Szegedy et al. 2015, section 6; torchvision's RandomResizedCrop and
    flip), an evaluation crop is the centre of the image brought to 256 / 224 of the side; both are
    resized by antialiased bilinear interpolation, which at the border reads beyond the crop where
    the image goes on.

    Half the memory is for images decoded ahead of their reading, half for those that were not.
    """

    def __init__(
        self,
        folder: Path,
        files: Shaped[np.ndarray, "n"],
        side: int,
        memory_limit: int,
        workers: int | None = None,
    ):
        """Opens no file.

        Args:
          folder: that the files' names are relative to.
          files: their names as NumPy bytes, so that a million of them are no million objects.
          side: of the crops, in pixels.
          memory_limit: bytes of all decoded images held at a time; batches handed over are the
            caller's.
          workers: threads that read, and as many that decode ahead; None is one a core.
        """
        self.shape = (side, side, 3)
        self.failure: DataError | None = None
        """The error of a reading, since JAX passes on its text alone. Every later reading raises it
        too, so that programs of other devices end as well."""
        self._folder, self._files = folder, files
        self._workers = workers or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._workers)
        self._changed = threading.Condition()
        self._memory_limit = memory_limit
        self._room, self._room_ahead = memory_limit // 2, memory_limit // 2
        self._ahead: dict[int, list[tuple[int, Future]]] = {}
        self._wanted = np.zeros(len(files), int)
        self._coming: Iterator[int] = iter(())

    @property
    def held(self) -> int:
        """Bytes of decoded images at this moment."""
        return 2 * (self._memory_limit // 2) - self._room - self._room_ahead

    def announce(self, order: Int[np.ndarray, "k"]) -> None:
        """Decodes these images ahead, in this order, each for one reading; forgets earlier orders.

        An image that stands there twice is for two readings. What is read does not depend on it.
        """
        coming = iter(order)
        with self._changed:
            for size, future in chain.from_iterable(self._ahead.values()):
                future.add_done_callback(partial(self._give_back_ahead, size))
            self._ahead.clear()
            self._wanted[:] = np.bincount(order, minlength=len(self._wanted))
            self._coming = coming
            self._changed.notify_all()
        for _ in range(self._workers):
            # Daemons: they may wait for readings that never come.
            threading.Thread(target=self._decode_ahead, args=(coming,), daemon=True).start()

    def read(
        self, index: Int[np.ndarray, "*b"], keys: UInt32[np.ndarray, "*b words"] | None = None
    ) -> UInt8[np.ndarray, "*b side side 3"]:
        """Crops of some images.

        Args:
          index: places in `files`.
          keys: training crops and mirrors are drawn from each sample's key and nothing else; None
            is evaluation.

        Raises:
          UndecodableError: a file is no whole image; named.
          DataError: a file cannot be read or, decoded, is larger than half the memory limit; named.
            After one of these, always that.
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
        """Those of some places whose files are no whole images; every file is decoded.

        Raises:
          DataError: as `read`.
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
            self._wanted[index] = max(self._wanted[index] - 1, 0)
            held = self._ahead.get(index)
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
        """Calls a function with an image that was not decoded ahead."""
        image = self._open(index)
        size = _decoded_bytes(image)
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
        """Decodes from a shared order until it ends or another one is announced."""

        def enough(index: int) -> bool:
            return len(self._ahead.get(index, ())) >= self._wanted[index]

        def needless() -> bool:
            return coming is not self._coming or enough(index)

        while True:
            with self._changed:
                index = next((place for place in coming if not enough(place)), None)
            if index is None or coming is not self._coming:
                return
            try:
                image = self._open(index)
            except DataError:
                continue  # Whoever reads it meets the error.
            size, future = _decoded_bytes(image), Future()
            with self._changed:
                self._changed.wait_for(lambda size=size: self._room_ahead >= size or needless())
                if needless():
                    image.close()
                    continue
                self._room_ahead -= size
                self._ahead.setdefault(index, []).append((size, future))
            try:
                future.set_result(self._decode(index, image))
            except DataError as error:
                future.set_exception(error)

    def _give_back_ahead(self, size: int, future: Future | None = None) -> None:
        with self._changed:
            self._room_ahead += size
            self._changed.notify_all()

    def _open(self, index: int) -> Image.Image:
        """The image with its header read."""
        path = self._path(index)
        with _naming(path):
            return open_image(path, "Get it again.")

    def _decode(self, index: int, image: Image.Image) -> Image.Image:
        with _naming(self._path(index)), image:
            image.load()
            # Some of ImageNet's files are grey, some CMYK, one a PNG.
            return image if image.mode == "RGB" else image.convert("RGB")

    def _path(self, index: int) -> Path:
        return self._folder / os.fsdecode(self._files[index])


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    # A broken file makes Pillow raise anything; only the system's own errors have a number.
    except Exception as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
            raise DataError(f"{path} cannot be read ({one_line(error)})") from error
        reason = one_line(error)
        raise UndecodableError(f"{path} is no whole image ({reason}); get it again") from error


def _decoded_bytes(image: Image.Image) -> int:
    # Pillow holds four bytes a pixel, and for a moment what it converts from as well.
    return image.width * image.height * (4 if image.mode == "RGB" else 8)


def _crop(
    image: Image.Image, key: UInt32[np.ndarray, "words"] | None, crop: UInt8[np.ndarray, "..."]
) -> None:
    """Writes a crop of an image into its place."""
    side = crop.shape[0]
    if key is None:
        box, mirrored = center_box(image.width, image.height, side), False
    else:
        box, mirrored = draw_box(image.width, image.height, key)
    resized = np.asarray(image.resize((side, side), Image.Resampling.BILINEAR, box=box))
    crop[...] = resized[:, ::-1] if mirrored else resized


def draw_box(width: int, height: int, key: UInt32[np.ndarray, "words"]) -> tuple[Box, bool]:
    """A training crop of an image, and whether it is mirrored, from a sample's key."""
    generator = np.random.default_rng(key)
    mirrored = bool(generator.random() < 0.5)
    for _ in range(MAX_ATTEMPTS):
        area = width * height * generator.uniform(*CROP_AREA)
        aspect = np.exp(generator.uniform(*np.log(CROP_ASPECT)))
        wide, high = round(np.sqrt(area * aspect)), round(np.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            left = int(generator.integers(width - wide + 1))
            upper = int(generator.integers(height - high + 1))
            return (left, upper, left + wide, upper + high), mirrored
    # An image much wider or higher than any crop: the middle, at the aspect nearest to its own.
    wide, high = (
        min(width, round(height * CROP_ASPECT[1])),
        min(height, round(width / CROP_ASPECT[0])),
    )
    left, upper = (width - wide) // 2, (height - high) // 2
    return (left, upper, left + wide, upper + high), mirrored


def center_box(width: int, height: int, side: int) -> Box:
    """The centre crop of an image whose shorter side becomes 256 / 224 of `side`."""
    shorter = round(side * RESIZED / CROPPED)
    edges = []
    for length in (width, height):
        resized = int(shorter * length / min(width, height))
        start, scale = round((resized - side) / 2), length / resized
        edges.append((start * scale, (start + side) * scale))
    (left, right), (upper, lower) = edges
    return left, upper, right, lower
