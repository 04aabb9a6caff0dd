"""Storage of measurements: what a run's folder has is not measured again."""

import sys
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from tqdm import tqdm

from everlight_data.color.charts.pair_files import MIN_PAIRS, PairFiles
from everlight_data.errors import DataError, MissingPackageError
from everlight_data.progress import progress


class Store(Protocol):
    """Place for finished parts, such as a run's folder; parts have a name and a fingerprint."""

    def read_part(self, name: str, fingerprint: dict) -> dict[str, np.ndarray] | None:
        """Return the arrays of a finished part, or None."""

    def save_part(self, name: str, fingerprint: dict, **arrays: np.ndarray) -> None:
        """Save the arrays of a finished part."""


def measure_stored(
    kind: str,
    files: Sequence[PairFiles],
    fingerprints: Sequence[dict],
    measure: Callable[[int], dict[str, np.ndarray]],
    store: Store,
) -> dict[int, dict[str, np.ndarray]]:
    """Return pairs' arrays by index; those that the store lacks are measured, and saved there.

    A pair that cannot be measured is named on the error stream, with the reason, and left out.

    Args:
      kind: name of the measurement, with which the names of its parts begin.
      files: raw files of the pairs.
      fingerprints: values of JSON that a pair's arrays depend on besides its files.
      measure: function from a pair's index to its arrays.
      store: place of finished parts.

    Raises:
      DataError: fewer than `MIN_PAIRS` can be measured; the message names all others.
    """
    measured, failures = {}, []
    for index, pair in enumerate(progress(kind, unit="pair", values=files)):
        name, known = f"{kind}-{pair.name}", {**pair.checksums} | fingerprints[index]
        arrays = store.read_part(name, known)
        if arrays is None:
            try:
                arrays = measure(index)
            except MissingPackageError:
                raise
            except DataError as error:
                failures.append(str(error))
                tqdm.write(f"LEFT OUT: {error}", file=sys.stderr)
                continue
            store.save_part(name, known, **arrays)
        measured[index] = arrays
    if len(measured) < MIN_PAIRS:
        raise DataError(f"{len(failures)} of {len(files)} pairs: {' '.join(failures)}")
    return measured
