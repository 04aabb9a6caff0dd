"""Folders of a user's pictures, reading and refusing them, for the tests of user images."""

import struct
import zlib

from PIL import Image

from everlight.errors import ArgumentError
from everlight_data.errors import DataError
from everlight_data.images.user_files.user_images import load_user_images
from tests import refusals

SIDE = 8
COLORS = {"blue": (0, 0, 255), "green": (0, 255, 0), "red": (255, 0, 0)}


def png_chunk(kind, content):
    full = kind + content
    return struct.pack(">I", len(content)) + full + struct.pack(">I", zlib.crc32(full))


def picture(color, size=(SIDE, SIDE)):
    return Image.new("RGB", size, color)


def folder_of(root, counts, suffix="png", blue=0):
    for number, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True)
        for place in range(count):
            picture((50 * number, 10 * place, blue)).save(root / name / f"{place:02d}.{suffix}")
    return root


def load(source, side=SIDE, test_every=5, test_data=None):
    return load_user_images(str(source), side, test_every, test_data)


def refused(source, **options):
    return refusals.refused(None, lambda: load(source, **options), (DataError, ArgumentError))
