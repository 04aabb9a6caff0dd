"""Camera modules by their names, as libcamera finds the tuning file of a module.

libcamera reads `MODEL.json`, after the model of the sensor's driver (`src/libcamera/pipeline/rpi/
common/pipeline_base.cpp`); the file's content names no camera. The model is the sensor, such as
imx708, and the kind of the module where its colours are others, as in imx708_wide.
"""

import re
from pathlib import Path
from typing import NamedTuple

from everlight_data.errors import DataError

SENSOR = re.compile(r"(?:ar|gc|imx|og|os|ov|ox|s5k|se|vd)\d{2}[0-9a-z]*")
"""A sensor among the words of a name: its maker's letters and at least two digits."""
KINDS = {"mono", "noir", "wide"}
"""Words for modules of other colours. Others, as in imx477_16mm, are of lenses or versions."""


class ModuleName(NamedTuple):
    """Camera module that a name states.

    Attributes:
      sensor: sensor in small letters.
      kinds: words of `KINDS`; None where the name would not state them, as in a device's path such
        as /base/soc/i2c0mux/i2c@1/imx708@1a, which DNGs of rpicam-still have.
    """

    sensor: str
    kinds: frozenset[str] | None

    def __str__(self) -> str:
        return "_".join([self.sensor, *sorted(self.kinds or ())])


def module_of(name: str) -> ModuleName | None:
    """Return the camera module that the name of a camera or file states; None without one."""
    words = re.findall(r"[0-9a-z]+", name.casefold())
    sensors = [word for word in words if SENSOR.fullmatch(word)]
    if not sensors:
        return None
    return ModuleName(sensors[0], None if "@" in name else frozenset(KINDS.intersection(words)))


def are_other_modules(one: str, other: str) -> bool | None:
    """Return True if two names state different camera modules; None where one states none."""
    modules = module_of(one), module_of(other)
    if None in modules:
        return None
    first, second = modules
    if first.sensor != second.sensor:
        return True
    return None not in (first.kinds, second.kinds) and first.kinds != second.kinds


def refuse_other_module(tuning: Path, camera: str, what: str) -> None:
    """Refuse a tuning file whose name states another camera module than a camera's name.

    Args:
      tuning: path of the tuning file.
      camera: name of the camera.
      what: what has this name, in words.

    Raises:
      DataError: the names state different modules.
    """
    if are_other_modules(tuning.stem, camera):
        module = module_of(camera)
        raise DataError(
            f"{tuning} is named after {module_of(tuning.stem)}, and {what} after {module}; give "
            f"the tuning file {module}.json, or, to take this one for {module}, a copy of it with "
            "that name"
        )
