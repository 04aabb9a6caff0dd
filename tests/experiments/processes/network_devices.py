"""A program that trains small networks over all devices: `FOLDER`; prints how many, and losses."""

import sys
from pathlib import Path

import jax
import numpy as np

from tests.experiments.illuminant.core.small_problems import train

if __name__ == "__main__":
    losses = np.asarray(train(Path(sys.argv[1])).losses[2].valid)
    print(len(jax.devices()), *losses.ravel().tolist())
