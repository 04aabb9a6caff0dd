"""Notes on methods and data in the reports."""

METHOD_NOTES = (
    "Corrected moments, homography and APAP are fitted by alternating least squares, as "
    "in the papers; APAP has width 3 and floor 0.065. FFCC has its authors' steps and their "
    "thumbnail settings of another camera, since they tuned them on each camera's test images; a "
    "row with the camera's own settings is marked, and its published mean is the authors' own, on "
    "thumbnails of 32x48 in folds of whole scenes. Gamut mapping's rule (largest trace, a hull "
    "grown by 3%) was selected on NUS thumbnails, where its rows are optimistic.",
    "SIIE, C5 and CCMNet are smaller versions, unless named otherwise, and DMCC is its authors' "
    "network; everlight.color.learned states all differences. Where all cameras' calibration "
    "matrices are known, C5's training images are mapped to other cameras by them. They are "
    "trained for a fixed number of steps. In folds SIIE trains on the tested camera, which its "
    "authors exclude. C5 sees six unlabelled images of the tested camera. Across cameras "
    "DMCC maps training illuminants by both cameras' white under daylight of 6500 K, as its "
    "authors measured it.",
    "FC4-style is FC4's confidence-weighted pooling on a frozen EfficientNet-Lite0 pretrained on "
    "ImageNet, at 128x128 pixels. FC4 itself trains its trunk on full photographs; its row "
    "is the paper's. Predicting each location's illuminant relative to its colour, and the stage "
    "of the trunk, were selected on Sony A57's folds. Capture-aware (time-aware "
    "white balance of Afifi, Zhao et al. 2025) reads time, sun, ISO, exposure and flash, or lux, "
    "in addition to the image; a second row has its network without them.",
    "Single-image networks and regressions use nine colour moments, with or without von Kries "
    "re-illumination, as selected by each fold's validation images. These networks have five "
    "layers of nine units, with the loss and training of the two-camera networks. Ensembles are "
    "geometric means over the seeds' networks.",
)

QUASI_REAL_NOTES = (
    "The paper's columns are of full images of its own 195 scenes, averaged over three folds. Gray "
    "Edge's filters are one pixel wide here, for thumbnails; the paper does not state its own. "
    "Saturated pixels are masked here, which lowers WGE's error; the paper's suggests no mask.",
    "On quasi-real pairs T is the chart's own transform, independent of the scene.",
)
PHONE_NOTES = (
    "Augmentations, 99 copies of each pair: none; von Kries, the paper's re-illumination with "
    "diagonal factors instead of its chart transforms (next to its columns of table 3); mixed, of "
    "everlight, mixtures with 5 or 20 pairs under similar illuminants. 'chosen in the fold': each "
    "fold's validation pairs select among them. Linear regression has the same training samples. "
    "Ensembles are geometric means over the seeds' networks. The release has only the phone's own "
    "white balance of the main image, which replaces single-image methods; methods that need the "
    "photographs are not run.",
    "Test-set selection explains a part of the difference to the paper's errors. Possible causes "
    "of the rest, none tested here: the authors' augmented transforms, made before the folds, so "
    "that test illuminants can be training targets; selection of the step on the augmented test "
    "fold; 500,000 to 1,000,000 epochs.",
)
