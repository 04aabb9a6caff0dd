"""Speed of everlight on one GPU, compared with PyTorch, within a given time."""
