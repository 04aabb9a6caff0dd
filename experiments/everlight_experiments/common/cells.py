"""Numbers of several runs as cells of tables; ± is the sample's standard deviation everywhere."""

import numpy as np
from jaxtyping import Float


def deviation(values: Float[np.ndarray, "runs *rest"]) -> Float[np.ndarray, "*rest"]:
    """The sample's standard deviation over runs (runs - 1); NaN of one."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    return np.std(values, axis=0, ddof=1)


def spread(values: Float[np.ndarray, "runs"], sign: str = "", digits: int = 3) -> str:
    """Mean and deviation; nan where one is NaN."""
    return plus_minus(values.mean(), deviation(values), sign, digits)


def plus_minus(mean: float, of: float, sign: str = "", digits: int = 3) -> str:
    """A mean and its deviation, where that is known."""
    after = "" if np.isnan(of) else f" ± {of:.{digits}f}"
    return f"{mean:{sign}.{digits}f}{after}"


def percent(values: Float[np.ndarray, "runs"]) -> str:
    """Shares in percent, as `spread`."""
    return spread(100 * values, digits=1)


def dash(cell: str) -> str:
    """A dash for what does not exist."""
    return "–" if cell == "nan" else cell
