"""Layers of networks: convolution, pooling and normalisation."""
