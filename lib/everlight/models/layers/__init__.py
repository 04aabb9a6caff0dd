"""Layers of networks: convolution, pooling and normalization."""
