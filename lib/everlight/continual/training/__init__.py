"""Training on labelled images by one call."""
