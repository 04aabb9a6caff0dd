"""Speed of everlight on CPU compared with NumPy, PyTorch and Avalanche, taking turns."""
