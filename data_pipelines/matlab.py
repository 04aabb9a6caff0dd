"""Variables of MATLAB files, with errors that name the file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.io

from data_pipelines.errors import DataError, MissingDataError


def read_mat(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """The named variables of a MATLAB 5 `.mat` file, each as a matrix as MATLAB has it.

    Raises:
      MissingDataError: no such file.
      DataError: damaged, or a variable is missing.
    """
    try:
        variables = scipy.io.loadmat(path, variable_names=names)
    except FileNotFoundError:
        raise MissingDataError(f"{path} does not exist; copy it from the release.") from None
    # SciPy reports damage by exceptions of many kinds, zlib.error and TypeError among them.
    except Exception as error:
        raise DataError(
            f"{path} cannot be read as a MATLAB 5 file ({type(error).__name__}: {error}). "
            "Get it again."
        ) from error
    missing = [name for name in names if name not in variables]
    if missing:
        raise DataError(f"{path} has no variable {', '.join(missing)}; is it the release's file?")
    return [variables[name] for name in names]
