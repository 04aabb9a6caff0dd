"""Parts of readers of photographs with illuminants: pictures, thumbnails, names, folds."""
