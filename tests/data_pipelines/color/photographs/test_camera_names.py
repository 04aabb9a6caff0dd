"""Names of cameras, as files and data sets spell them."""

import pytest

from everlight_data.color.photographs.camera_names import is_same_camera


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Canon550D", "Canon EOS 550D", True),
        ("Canon1DsMkIII", "Canon EOS-1Ds Mark III", True),
        ("NikonD5200", "NIKON CORPORATION NIKON D5200", True),
        ("SonyA57", "Sony SLT-A57", True),
        ("Canon5D", "Canon EOS 550D", False),
        ("SonyA57", "Sony A77", False),
        ("", "Canon", False),
        ("Canon EOS 5D", "Canon EOS 5D Mark II", False),
        ("Sony A7", "Sony A7 IV", False),
        ("B2", "Maker B2", False),
    ],
)
def test_names_of_one_camera(one, other, same):
    assert is_same_camera(one, other) is is_same_camera(other, one) is same
