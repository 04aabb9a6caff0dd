"""Facts as labels of images: split files, scene annotations, word vectors, rendered scenes."""
