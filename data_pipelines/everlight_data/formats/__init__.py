"""Readers of file formats with limits on size and content: arrays, pickles, MATLAB, pictures."""
