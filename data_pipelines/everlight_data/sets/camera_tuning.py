"""Records of a camera's tuning file: its locus and colour matrices."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from everlight_data.errors import DataError
from everlight_data.formats.json_spans import Node


class TemperatureCurve(NamedTuple):
    """A `ct_curve`, divided by the sensitivities: the colours of this sensor.

    Attributes:
      temperatures: colour temperatures in kelvin, ascending.
      chromaticities: [R/G, B/G] of a grey surface at each temperature.
    """

    temperatures: Float[np.ndarray, "k"]
    chromaticities: Float[np.ndarray, "k 2"]


class ColorMatrices(NamedTuple):
    """Colour matrices, which multiply columns, by ascending colour temperature in kelvin."""

    temperatures: Float[np.ndarray, "k"]
    matrices: Float[np.ndarray, "k 3 3"]


class Tuning(NamedTuple):
    """A tuning file.

    Attributes:
      path: path of the file.
      text: its text.
      target: processor, bcm2835 (Raspberry Pi 4 and older) or pisp (5).
      curve: locus of the white balance that runs, `rpi.awb` or `rpi.nn.awb`, or else of a disabled
        one; None without any.
      matrices: colour matrices; None without any.
      algorithms: place of the object of each algorithm of colour, by name without `disable.`.
      sensitivities: factors of red and blue from this sensor to the file's curve, by algorithm; the
        first are those of `curve`.
    """

    path: Path
    text: str
    target: str
    curve: TemperatureCurve | None
    matrices: ColorMatrices | None
    algorithms: Mapping[str, Node]
    sensitivities: Mapping[str, tuple[float, float]]

    def needed_curve(self) -> TemperatureCurve:
        """Return the locus.

        Raises:
          DataError: the file has none.
        """
        if self.curve is None:
            raise DataError(
                f"{self.path} has no ct_curve, as files of uncalibrated cameras and of cameras "
                "without colour. Give another tuning file."
            )
        return self.curve

    def needed_matrices(self) -> ColorMatrices:
        """Return the colour matrices.

        Raises:
          DataError: the file has none.
        """
        if self.matrices is None:
            raise DataError(
                f"{self.path} has no ccms, as files of cameras without colour. Give another tuning "
                "file."
            )
        return self.matrices
