"""Parts of sets of facts: boxes, split files, rendered images, word vectors."""
