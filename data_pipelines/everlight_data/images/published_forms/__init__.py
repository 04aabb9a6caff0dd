"""Forms in which labelled images are published: folders of IDX files, and prepared TFDS sets."""
