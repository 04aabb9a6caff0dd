"""Lifelong fact learning (Elhoseiny et al. 2018)."""

CITATION = 'Elhoseiny et al. 2018, "Exploring the Challenges towards Lifelong Fact Learning"'
