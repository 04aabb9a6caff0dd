"""Dark experience replay (Buzzega et al. 2020, NeurIPS) and the methods of its main table."""
