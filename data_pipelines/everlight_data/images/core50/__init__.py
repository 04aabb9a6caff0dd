"""CORe50: its release, its prepared frames, and the classes of a level."""
