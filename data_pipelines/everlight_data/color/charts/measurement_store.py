"""Storage of measurements: what a run's folder has is not measured again."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from everlight_data.color.charts.pair_files import PairFiles
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
) -> list[dict[str, np.ndarray]]:
    """Return arrays of every pair; those that the store lacks are measured, and saved there.

    Args:
      kind: name of the measurement, with which the names of its parts begin.
      files: raw files of the pairs.
      fingerprints: values of JSON that a pair's arrays depend on besides its files.
      measure: function from a pair's index to its arrays.
      store: place of finished parts.

    Raises:
      DataError: pairs cannot be measured; the message names all of them.
    """
    measured, failures = [], []
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
                continue
            store.save_part(name, known, **arrays)
        measured.append(arrays)
    if failures:
        raise DataError(f"{len(failures)} of {len(files)} pairs: {' '.join(failures)}")
    return measured
