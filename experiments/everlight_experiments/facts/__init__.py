"""Lifelong fact learning (Elhoseiny et al. 2018)."""
