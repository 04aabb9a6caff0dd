"""Numbers as cells of tables."""

import numpy as np
from jaxtyping import Float


def percent(values: Float[np.ndarray, "runs"]) -> str:
    """Mean and, over several runs, standard deviation."""
    return _spread(100 * values, 1)


def spread(values: Float[np.ndarray, "runs"]) -> str:
    """The same of what is no share."""
    return _spread(values, 3)


def dash(cell: str) -> str:
    """A dash for what does not exist."""
    return "–" if cell == "nan" else cell


def _spread(values: Float[np.ndarray, "runs"], digits: int) -> str:
    after = f" ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{after}"
