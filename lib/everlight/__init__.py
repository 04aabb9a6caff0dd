"""Two-camera illuminant estimation and continual learning as pure JAX functions."""
