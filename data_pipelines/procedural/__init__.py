"""The procedural world: images that need no files, in the structure of every benchmark."""
