"""HAT's gradient of an embedding as its official code computes it, in float64."""

import numpy as np


def sigmoid(values):
    return np.exp(-np.logaddexp(0, -values))


def slope_in_float32(product):
    """Return σ' as backpropagation has it from the gate, which is 1 once e^−x is lost beside 1."""
    with np.errstate(over="ignore"):
        gate = 1 / (1 + np.exp(-np.float32(product)))
    return np.float64(gate * (1 - gate))


def slope_in_float64(product):
    """Return σ' without another rounding."""
    return np.where(product < 24 * np.log(2), sigmoid(product) * sigmoid(-product), 0)


def official_gradient(embedding, by_gate, s, steepest, slope=slope_in_float32):
    """Return the official code's: backpropagation's gradient times the clipped compensation."""
    ratio = (np.cosh(np.clip(s * embedding, -50, 50)) + 1) / (np.cosh(embedding) + 1)
    return s * slope(s * embedding) * by_gate * steepest / s * ratio
