"""Speed of everlight on CPU beside NumPy, PyTorch and Avalanche, taking turns."""
