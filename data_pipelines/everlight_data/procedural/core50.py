"""The procedural world in CORe50's structure: 10 categories of 5 objects, filmed in 11 sessions.

A category is a family of shapes; an object is one of its textures with its own palette and
proportions. A session is a background and an illuminant, in which every object moves on its own
smooth path. These frames alone support no claim: their difficulty was chosen.
"""

import numpy as np

from everlight_data.errors import DataError
from everlight_data.images.core50.prepared import Core50
from everlight_data.procedural.render import World
from everlight_data.procedural.shapes import SHAPES
from everlight_data.procedural.world import class_names, render_frames
from everlight_data.sets.loading import loaded_once

SESSIONS = 11
RECORDED = 300
"""Frames of a complete recording."""
WORLD = World(superclasses=10, subclasses=5, pose=0.4, background=0.75, illuminant=0.6, noise=0.15)
"""Default world, with 8 frames per object and session at 32x32 as reference for its difficulty.

A linear SVM on features learned from other objects recognizes 92% of the objects in sessions 2, 6
and 9 after the eight training sessions. After the first session, it recognizes 76% in all later
ones. A small network trained from scratch for 480 steps reaches 67%. All values are from one seed.
"""


@loaded_once
def load_procedural_core50(frames: int = 30, world: World = WORLD) -> Core50:
    """Render frames of every object in every session, in the format of `load_core50`.

    Args:
      frames: frames per object and session, evenly spaced in a recording of 300; the path does not
        depend on their number. The release has 300.
      world: settings of the world with 10 superclasses of 5 subclasses; `size` is the images' side.

    Raises:
      DataError: a setting is out of range; the message names it.
    """
    categories, objects = WORLD.superclasses, WORLD.superclasses * WORLD.subclasses
    if (world.superclasses, world.subclasses) != (categories, WORLD.subclasses):
        raise DataError(
            f"World of {world.superclasses} superclasses of {world.subclasses} subclasses; "
            f"CORe50 has {categories} categories of {WORLD.subclasses} objects"
        )
    if not isinstance(frames, int | np.integer) or not 1 <= frames <= RECORDED:
        raise DataError(f"frames={frames!r}; give an integer from 1 to {RECORDED}")
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
