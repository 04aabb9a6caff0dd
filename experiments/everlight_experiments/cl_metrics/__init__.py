"""Díaz-Rodríguez et al. 2018, "Don't forget, there is more than forgetting"."""

CITATION = (
    "Díaz-Rodríguez et al. 2018, "
    '"Don\'t forget, there is more than forgetting: new metrics for Continual Learning"'
)
