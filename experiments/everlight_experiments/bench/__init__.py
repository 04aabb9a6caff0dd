"""Speed and accuracy of everlight beside NumPy and PyTorch, measured in one run."""
