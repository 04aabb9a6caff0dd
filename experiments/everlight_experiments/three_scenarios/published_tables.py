"""Accuracies of the authors' code on split MNIST, by scenario and method: one per seed.

GMvandeVen/continual-learning (commit e6d795a) was run for this project on the same images, with its
own settings, from its seed 2 on. Missing rows were not run. What the paper's table 2 prints is not
known here.
"""

CODE: dict[tuple[str, str], tuple[float, ...]] = {
    ("task-incremental", "none"): (0.9050,),
    ("task-incremental", "separate networks"): (0.9957,),
    ("task-incremental", "XdG"): (0.9932,),
    ("task-incremental", "EWC"): (0.9950,),
    ("task-incremental", "SI"): (0.9937,),
    ("task-incremental", "LwF"): (0.9955,),
    ("task-incremental", "ER"): (0.9912,),
    ("task-incremental", "A-GEM"): (0.9922,),
    ("domain-incremental", "none"): (
        0.6848,
        0.7037,
    ),
    ("domain-incremental", "EWC"): (0.6520,),
    ("domain-incremental", "SI"): (0.7667,),
    ("domain-incremental", "LwF"): (0.8342,),
    ("domain-incremental", "ER"): (0.9481,),
    ("domain-incremental", "A-GEM"): (0.9038,),
    ("class-incremental", "none"): (0.1981,),
    ("class-incremental", "joint"): (0.9822,),
    ("class-incremental", "SI"): (0.2052,),
    ("class-incremental", "LwF"): (0.2113,),
    ("class-incremental", "DGR"): (0.9130,),
    ("class-incremental", "ER"): (0.8912,),
    ("class-incremental", "A-GEM"): (
        0.4843,
        0.7889,
        0.7700,
    ),
    ("class-incremental", "iCaRL"): (0.9247,),
    ("class-incremental", "generative classifier"): (0.9499,),
}
