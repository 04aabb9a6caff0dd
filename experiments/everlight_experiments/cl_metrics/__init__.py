"""Metrics beyond forgetting (Díaz-Rodríguez et al. 2018): seven criteria and the CL score."""
