"""The procedural world: rendered images without files, in the structure of every benchmark."""
