"""Camera profiles and sidecars, which raw converters read."""
