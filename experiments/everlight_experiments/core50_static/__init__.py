"""The static benchmark of CORe50: all training sessions at once."""
