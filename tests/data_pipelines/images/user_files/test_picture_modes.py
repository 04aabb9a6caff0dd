"""A user's pictures with transparency and with 16 bits, against the PNG specification."""

import struct
import zlib

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from tests.data_pipelines.images.user_files.user_folders import folder_of, load, png_chunk, refused


def png(depth, kind, rows, palette=b"", transparent=b""):
    """Return a PNG of two columns by the specification, with chunks that Pillow does not write."""
    header = struct.pack(">IIBBBBB", 2, len(rows), depth, kind, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"PLTE", palette), (b"tRNS", transparent)]
    chunks += [(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))), (b"IEND", b"")]
    stored = [item for item in chunks if item[1] or item[0] == b"IEND"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*item) for item in stored)


TRANSPARENT = {
    # Grey 85 is beside a hidden one, in every depth; the hidden level is a number of that depth.
    "grey of 2 bits": png(2, 0, [b"\x60", b"\x60"], b"", b"\0\2"),
    "grey of 4 bits": png(4, 0, [b"\x5f", b"\x5f"], b"", b"\0\x0f"),
    "grey of 8 bits": png(8, 0, [b"\x55\xaa"] * 2, b"", b"\0\xaa"),
    "grey and alpha": png(8, 4, [b"\x55\xff\x07\0"] * 2),
    "RGB": png(8, 2, [b"\x55\x55\x55\1\2\3"] * 2, b"", b"\0\1\0\2\0\3"),
    "RGB and alpha": png(8, 6, [b"\x55\x55\x55\xff\1\2\3\0"] * 2),
    "palette": png(8, 3, [b"\1\0"] * 2, b"\1\2\3\x55\x55\x55", b"\0"),
    "palette of 1 bit": png(1, 3, [b"\x80"] * 2, b"\1\2\3\x55\x55\x55", b"\0\xff"),
}


@pytest.mark.parametrize("name", TRANSPARENT)
def test_transparent_pixels_are_white_in_every_form(tmp_path, name):
    """Pictures that look the same are read the same, without their hidden colours."""
    folder_of(tmp_path, {"a": 3, "b": 3})
    (tmp_path / "a" / "00.png").write_bytes(TRANSPARENT[name])
    images, note = load(tmp_path, side=2)
    np.testing.assert_array_equal(images.images[0], [[[85] * 3, [255] * 3]] * 2)
    assert "; 1 with transparency, laid over white" in note


@pytest.mark.parametrize("mode", ["LA", "RGBA", "P"])
def test_alpha_that_hides_nothing_is_read_as_none(tmp_path, mode):
    folder_of(tmp_path, {"a": 3, "b": 3})
    plain = load(tmp_path)[0].images
    for path in tmp_path.glob("*/*.png"):
        image = Image.open(path)
        options = {"transparency": 255} if mode == "P" else {}
        image.convert(mode, palette=Image.Palette.ADAPTIVE).save(path, **options)
    images, note = load(tmp_path)
    assert "transparency" not in note
    expected = plain if mode != "LA" else np.rint(plain @ [[0.299], [0.587], [0.114]])
    np.testing.assert_allclose(images.images, expected, atol=1 if mode == "LA" else 0)


@pytest.mark.parametrize("ending", ["gif", "png"])
def test_partial_alpha_is_blended_with_white(tmp_path, ending):
    folder_of(tmp_path, {"a": 3, "b": 3})
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([7, 7, 7, 10, 20, 30])
    clear = {"transparency": 1} if ending == "gif" else {"transparency": b"\xff\x66"}
    palette.save(tmp_path / "a" / f"00.{ending}", **clear)
    images, note = load(tmp_path)
    # 0x66 is two fifths; a GIF knows all or nothing.
    blended = 255 - 0.4 * (255 - np.array([10, 20, 30])) if ending == "png" else np.full(3, 255)
    np.testing.assert_allclose(images.images[0, 0, 0], blended, atol=0.51)
    assert "1 with transparency, laid over white" in note


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("white", [255, 4095, 65535])
def test_pngs_of_16_bits_are_refused_in_every_kind_of_color(tmp_path, channels, white):
    """Pillow would keep the high byte of colour, and 12 bits would be almost black."""
    folder_of(tmp_path, {"a": 3, "b": 3})
    pixels = np.full((8, 8, channels), white, np.uint16)
    (tmp_path / "a" / "00.PNG").write_bytes(imagecodecs.png_encode(pixels))
    message = refused(tmp_path)
    assert "1 of 7 files cannot be used" in message
    assert "a/00.PNG. Repair, convert or remove them. 1 of them has 16 bits: save with 8" in message
