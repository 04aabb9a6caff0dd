"""Drawn arrays by the names and in the shapes of EfficientNet-Lite0's PyTorch port."""

import numpy as np

# Blocks, side of the kernel, stride, expansion, channels: Tan and Le 2019, table 1.
STAGES = [
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
]


def drawn_arrays(rng, classes=1000):
    """Draw the PyTorch port's arrays, so that activations neither vanish nor all reach 6."""
    arrays, channels, block = {}, 32, 0

    def convolution(name, out, inputs, side):
        deviation = (2 / (inputs * side**2)) ** 0.5
        arrays[f"{name}.weight"] = rng.normal(size=(out, inputs, side, side)) * deviation

    def norm(name, width):
        arrays[f"{name}.weight"] = rng.uniform(0.5, 1.5, width)
        arrays[f"{name}.bias"] = rng.normal(size=width) * 0.2
        arrays[f"{name}.running_mean"] = rng.normal(size=width) * 0.2
        arrays[f"{name}.running_var"] = rng.uniform(0.5, 2, width)
        arrays[f"{name}.num_batches_tracked"] = np.array(3)

    convolution("_conv_stem", 32, 3, 3)
    norm("_bn0", 32)
    for blocks, side, _, expansion, width in STAGES:
        for _ in range(blocks):
            name, wide = f"_blocks.{block}", channels * expansion
            if expansion > 1:
                convolution(f"{name}._expand_conv", wide, channels, 1)
                norm(f"{name}._bn0", wide)
            convolution(f"{name}._depthwise_conv", wide, 1, side)
            norm(f"{name}._bn1", wide)
            convolution(f"{name}._project_conv", width, wide, 1)
            norm(f"{name}._bn2", width)
            channels, block = width, block + 1
    convolution("_conv_head", 1280, 320, 1)
    norm("_bn1", 1280)
    arrays["_fc.weight"] = rng.normal(size=(classes, 1280)) * 1280**-0.5
    arrays["_fc.bias"] = rng.normal(size=classes)
    return {name: np.asarray(array, np.float32) for name, array in arrays.items()}
