"""Notes of the two-camera paper's reports, and its protocol of folds."""

from typing import Any

from everlight_data.color.pairs.quasi_real import FOLDS
from everlight_experiments.illuminant.core.networks import NetworkTraining

QUASI_REAL_NOTES = (
    "The paper's columns are of full images of its own 195 scenes, averaged over three folds. Gray "
    "Edge's filters are one pixel wide here, for thumbnails; the paper does not state its own. "
    "Saturated pixels are masked here, which lowers WGE's error; the paper's suggests no mask.",
    "On quasi-real pairs T is the chart's own transform, independent of the scene.",
)
PHONE_NOTES = (
    "Augmentations, 99 copies of each pair: none; von Kries, the paper's re-illumination with "
    "diagonal factors instead of its chart transforms (beside its columns of table 3); mixed, "
    "ours, mixtures with 5 or 20 pairs under similar illuminants. 'chosen in the fold': each "
    "fold's validation pairs select among them. Linear regression has the same training samples. "
    "Ensembles are geometric means over the seeds' networks. The release has only the phone's own "
    "white balance of the main image, which replaces single-image methods; methods that need the "
    "photographs are not run.",
    "Test-set selection explains a part of the difference to the paper's errors. Possible causes "
    "of the rest, none tested here: the authors' augmented transforms, made before the folds, so "
    "that test illuminants can be training targets; selection of the step on the augmented test "
    "fold; 500,000 to 1,000,000 epochs.",
)


def in_folds(training: NetworkTraining) -> dict[str, Any]:
    """Return the fields of an experiment on folds that state its protocol, seeds and training."""
    seeds = training.seeds
    return {
        "protocol": {"Protocol": f"{FOLDS} folds; statistics within a fold, averaged over folds"},
        "selection_rule": "held-out selection and the paper's test-set selection, a table each; "
        "quote held-out",
        "seeds": f"{len(seeds)} per fold, from {seeds[0]}, which also draws the folds",
        "training": training.settings,
    }
