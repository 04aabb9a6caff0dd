"""Speed of everlight on one GPU, beside PyTorch, within a given time."""
