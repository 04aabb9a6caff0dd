"""Single-image methods on photographs with known illuminants: comparison, training, thumbnails."""
