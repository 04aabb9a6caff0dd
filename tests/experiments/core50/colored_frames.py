"""Data and smallest configurations of the CORe50 runs; every object has a colour."""

import numpy as np

from everlight_data.images.core50.prepared import CATEGORY_NAMES, OBJECT_NAMES, Core50
from everlight_data.sets.image_set import ImageSet
from everlight_experiments.continual.benchmarks.statements import Statement
from everlight_experiments.continual.paper import PaperOptions
from everlight_experiments.core50 import config as settings
from everlight_experiments.core50_static.config import StaticConfig
from everlight_experiments.run_folder.config_options import with_config

SMALLEST = {
    "side": 8,
    "batch_size": 16,
    "chosen": (Statement("not chosen"),),
    "pretraining": settings.Pretraining(subclasses=1, images=8, epochs=1),
    "frames": 2,
    "channels": (2, 4),
    "hidden": 8,
}
STATIC = StaticConfig(
    **SMALLEST,
    levels=("category",),
    fine_tuning=settings.Length(2, 2, 0.01),
    scratch=settings.Length(3, 3, 0.01),
)


def requested(tmp_path, config, **options):
    """Return options of a paper's command with a configuration."""
    return with_config(PaperOptions, config)(runs=tmp_path, **options)


def colored_frames(frames, side=8):
    """Return frames in which every object has a colour and every session a brightness."""
    rng = np.random.default_rng(0)
    session, number, time = (axis.ravel() for axis in np.indices((11, 50, frames)))
    colors = rng.uniform(40, 160, (50, 3))[number] + 6 * session[:, None]
    images = colors[:, None, None] + rng.normal(0, 4, (len(number), side, side, 3))
    return Core50(
        "colours",
        images.astype(np.uint8),
        session,
        number,
        300 * time // frames,
        OBJECT_NAMES,
        CATEGORY_NAMES,
    )


def other_objects(world, counts):
    """Return grey levels where the procedural world would draw other objects."""
    labels = [np.arange(12 * count) % 12 for count in counts]
    complete = np.concatenate(labels)
    images = np.broadcast_to(20 * complete[:, None, None, None], (len(complete), 8, 8, 3))
    return ImageSet("others", images.astype(np.uint8), *labels, tuple(map(str, range(12))))
