"""Structured facts as image labels: split files, annotations, word vectors, rendered scenes."""
