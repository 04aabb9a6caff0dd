"""CORe50: its release, its prepared frames, and the classes of a level."""

from everlight_data.images.core50.prepared import DATA_SETS

__all__ = ["DATA_SETS"]
