"""The procedural world in CORe50's structure: 10 categories of 5 objects, filmed in 11 sessions.

A category is a family of shapes, an object one of its textures with a palette and proportions of
its own, a session a background and a light, in which every object moves on a smooth path of its
own. No finding is claimed from these frames alone: their difficulty was chosen.
"""

import numpy as np

from data_pipelines.errors import DataError
from data_pipelines.images.core50 import Core50
from data_pipelines.procedural.render import World
from data_pipelines.procedural.shapes import SHAPES
from data_pipelines.procedural.world import class_names, render_frames

SESSIONS = 11
RECORDED = 300
"""Frames of a whole recording."""
WORLD = World(superclasses=10, subclasses=5, pose=0.4, background=0.75, illuminant=0.6, noise=0.15)
"""Of 8 frames each at 32x32, a linear SVM on features learnt on other objects names 92% of the
objects in sessions 2, 6 and 9 after the eight training sessions, 76% of all later sessions' after
the first; a small net that begins at random and trains for 480 steps, 67%; one seed."""


def load_procedural_core50(frames: int = 30, world: World = WORLD) -> Core50:
    """Frames of every object in every session, as `load_core50` returns the real ones.

    Args:
      frames: of each object and session, spread evenly over a recording of 300; any number of them
        shows the same path. 300 is the release's size.
      world: `size` is the images' side; 10 superclasses of 5 subclasses.

    Raises:
      DataError: a setting out of range; named.
    """
    categories, objects = WORLD.superclasses, WORLD.superclasses * WORLD.subclasses
    if (world.superclasses, world.subclasses) != (categories, WORLD.subclasses):
        raise DataError(
            f"World of {world.superclasses} superclasses of {world.subclasses} subclasses; "
            f"CORe50 has {categories} categories of {WORLD.subclasses} objects"
        )
    if not isinstance(frames, int | np.integer) or not 1 <= frames <= RECORDED:
        raise DataError(f"frames={frames!r}; give a whole number from 1 to {RECORDED}")
    session, number, time = (
        axis.ravel().astype(np.int32) for axis in np.indices((SESSIONS, objects, frames))
    )
    frame = time * RECORDED // frames
    return Core50(
        "procedural world as CORe50",
        render_frames(world, number, np.zeros_like(number), session, frame),
        session,
        number,
        frame,
        class_names(world),
        SHAPES[:categories],
    )
