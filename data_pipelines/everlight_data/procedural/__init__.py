"""The procedural world: rendered images without files, in the structure of every benchmark."""

from everlight_data.procedural.labelled_images import DATA_SETS

__all__ = ["DATA_SETS"]
