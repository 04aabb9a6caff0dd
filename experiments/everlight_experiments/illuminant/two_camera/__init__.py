"""The two-camera paper: rendered scenes, quasi-real pairs and the transforms of a phone."""
