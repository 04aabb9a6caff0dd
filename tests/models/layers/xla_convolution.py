"""XLA's convolution of images, as a reference."""

import jax

from everlight.models.layers.convolution import DIMENSIONS


def xlas_convolution(images, kernel, stride):
    margin = [((len(kernel) - 1) // 2,) * 2] * 2
    return jax.lax.conv_general_dilated(
        images, kernel, (stride, stride), margin, dimension_numbers=DIMENSIONS
    )
