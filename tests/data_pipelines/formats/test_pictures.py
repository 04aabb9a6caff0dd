"""Reading a picture leaves Pillow's settings for all other code as they were."""

import warnings

import pytest
from PIL import Image

from everlight_data.errors import DataError
from everlight_data.formats.pictures import MAX_PIXELS, open_image


def written(path, side):
    Image.new("1", (side, side)).save(path)
    return path


def test_a_large_picture_is_opened_without_a_warning_and_pillows_limit_stays(tmp_path):
    before, path = Image.MAX_IMAGE_PIXELS, written(tmp_path / "a.png", 9_800)
    assert before < 9_800**2 < MAX_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_image(path, "Again.").close()
    assert before == Image.MAX_IMAGE_PIXELS
    with pytest.warns(Image.DecompressionBombWarning):
        Image.open(path).close()


def test_pillows_limit_stays_where_a_picture_is_refused(tmp_path):
    before = Image.MAX_IMAGE_PIXELS
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(Image.UnidentifiedImageError):
        open_image(tmp_path / "a.png", "Again.")
    with pytest.raises(DataError, match="above the limit"):
        open_image(written(tmp_path / "b.png", 10_001), "Again.")
    assert before == Image.MAX_IMAGE_PIXELS
