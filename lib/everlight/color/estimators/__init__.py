"""Single-image illuminant estimators without training; each file declares its rows.

Each takes one linear raw image and a mask, and returns the illuminant as a unit vector. The result
is NaN where the image is black, fully masked or not finite. A masked pixel has no influence: pixels
whose filter support touches it, or leaves the image, are excluded too. Callers mask charts and
saturated pixels. Values below 0, as a sensor's noise has around black, are kept: norms take their
magnitude. Unmasked saturation costs every norm but Gray World's two degrees or more on NUS
thumbnails.
"""
