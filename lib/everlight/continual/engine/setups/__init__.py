"""Setups from networks of Flax linen, Flax NNX and Equinox."""
