"""Camera modules by the names of cameras and files."""

from pathlib import Path

import pytest

from everlight_data.color.tuning_files.module_names import (
    are_other_modules,
    module_of,
    refuse_other_module,
)
from everlight_data.errors import DataError


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("imx708", "imx708"),
        ("imx708_wide_noir", "imx708_noir_wide"),
        ("Raspberry Pi imx477", "imx477"),
        ("RP_OV5647", "ov5647"),
        ("imx477_16mm", "imx477"),
        ("se327m12", "se327m12"),
        ("/base/soc/i2c0mux/i2c@1/imx708@1a", "imx708"),
        ("mine", "None"),
        ("Canon EOS 550D", "None"),
        ("Nikon D5200", "None"),
        ("scene", "None"),
        ("", "None"),
    ],
)
def test_the_sensor_and_kind_are_words_of_a_name(name, module):
    assert str(module_of(name)) == module


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("imx708", "imx219", True),
        ("imx708", "imx708_wide", True),
        ("imx708_noir", "Raspberry Pi imx708", True),
        ("imx477_scientific", "imx477", False),
        ("imx708_wide_mine", "imx708_wide", False),
        # The path of a device is that of both modules.
        ("imx708_wide", "/base/soc/i2c0mux/i2c@1/imx708@1a", False),
        ("imx219", "/base/soc/i2c0mux/i2c@1/imx708@1a", True),
        ("imx219", "My camera", None),
        ("mine", "imx708", None),
    ],
)
def test_names_are_of_other_modules_where_both_state_one(one, other, expected):
    assert are_other_modules(one, other) is expected
    assert are_other_modules(other, one) is expected


def test_every_tuning_file_of_the_release_has_its_own_module(real_data):
    folder = real_data("raspberry_pi_awb/imx708.json").parent
    stems = sorted(path.stem for path in folder.glob("*.npz"))
    pairs = [(one, other) for one in stems for other in stems]
    assert all(are_other_modules(*pair) == (pair[0] != pair[1]) for pair in pairs)


def test_the_message_names_both_and_a_way_out():
    expected = (
        "a/imx219.json is named after imx219, and the camera of b.npz after imx708; give the "
        "tuning file imx708.json, or, to take this one for imx708, a copy of it with that name"
    )
    with pytest.raises(DataError) as caught:
        refuse_other_module(Path("a/imx219.json"), "Raspberry Pi imx708", "the camera of b.npz")
    assert str(caught.value) == expected
    refuse_other_module(Path("a/imx219.json"), "My camera", "it")
