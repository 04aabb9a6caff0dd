"""Colour: least-squares transforms, illuminant estimators, alignment and rendering."""
