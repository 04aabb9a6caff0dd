"""A photograph that is part of scikit-learn, as linear colours under a light of choice."""

import numpy as np
from jaxtyping import Float

from everlight.color.rendering import SRGB_TO_XYZ
from everlight_data.optional_packages import import_package

INCANDESCENT = 0.44758, 0.40745
"""CIE xy chromaticity of illuminant A, an incandescent lamp (CIE 15, 2 degree observer)."""


def load_sample_photograph() -> Float[np.ndarray, "h w 3"]:
    """Load a photograph of the Summer Palace in Beijing, in linear sRGB from 0 to 1.

    It is by Daniel Büchele, under CC BY 2.0 (flickr.com/photos/danielbuechele/6061409035).

    Raises:
      MissingPackageError: scikit-learn or pillow is not installed.
    """
    import_package("PIL")
    encoded = import_package("sklearn.datasets").load_sample_image("china.jpg") / 255
    # The transfer curve of IEC 61966-2-1.
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    return linear.astype(np.float32)


def illuminant_in_srgb(xy: tuple[float, float]) -> Float[np.ndarray, "3"]:
    """Return an illuminant's colour in linear sRGB, with a largest channel of 1.

    Args:
      xy: its CIE xy chromaticity; D65 gives (1, 1, 1).
    """
    x, y = xy
    color = np.linalg.solve(SRGB_TO_XYZ.astype(np.float64), [x / y, 1, (1 - x - y) / y])
    return (color / color.max()).astype(np.float32)
