"""Published illuminant estimators that learn from images, for comparison with new methods.

`BASELINES` holds those that share one signature (`Baseline`):

    baseline = BASELINES["FFCC"]
    observations = jax.vmap(baseline.observe)(images, masks)
    model = jax.jit(baseline.fit)(observations, illuminants, jax.random.key(0))
    estimates = jax.vmap(baseline.predict, (None, 0))(model, observations)

Observations depend on no other image, so several fits and cross-validation folds share them. A
hyper-parameter is bound to `fit` or `predict`, for example
`baseline._replace(fit=partial(baseline.fit, settings=FOURIER_SETTINGS["SonyA57"]))`.

Six methods have functions of their own, since they need more than one image and its illuminant:

- C5 (`cross_camera`) reads other images by the camera of the image, and learns which camera took
  each.
- CCMNet (`calibrated_camera`) reads the calibration of the image's camera, and learns which camera
  took each.
- Time-aware white balance (`capture_aware`) reads the time and settings of the capture.
- FC4-style pooling (`confidence_pooling`) reads feature maps of a network that the caller supplies,
  and learns several views of each image with an illuminant each.
- Chromagenic colour constancy (`chromagenic`) reads images of two cameras, and learns the
  transform of each candidate illuminant.
- Linear regression (`linear_regression`) maps features of any kind to chromaticities, not to
  illuminants.
"""

from functools import partial

from everlight.color.derivatives import ESTIMATORS
from everlight.color.learned.bias_correction import (
    TrainingEstimates,
    correct_bias,
    correct_bias_locally,
    fit_bias_correction,
    keep_training_estimates,
)
from everlight.color.learned.calibrated_camera import (
    CALIBRATED_AUTHORS_SIZE,
    CALIBRATED_SMALL_FORM,
    calibrated_estimate,
    fit_calibrated_camera,
)
from everlight.color.learned.capture_aware import (
    CaptureModel,
    capture_aware_estimate,
    capture_features,
    fit_capture_aware,
)
from everlight.color.learned.chroma_histogram import (
    ChromaWindow,
    chroma_histograms,
    weighted_chroma_histogram,
)
from everlight.color.learned.chromagenic import (
    Chromagenic,
    chromagenic_estimate,
    fit_chromagenic,
)
from everlight.color.learned.confidence_pooling import (
    ConfidencePoolingModel,
    confidence_pooled_estimate,
    fit_confidence_pooling,
)
from everlight.color.learned.cross_camera import (
    AUTHORS_SIZE,
    SMALL_FORM,
    cross_camera_estimate,
    fit_cross_camera,
)
from everlight.color.learned.dual_mapping import (
    DualMappingModel,
    draw_illuminants,
    dual_mapping_estimate,
    fit_dual_mapping,
    four_colors,
)
from everlight.color.learned.fourier_constancy import (
    FOURIER_SETTINGS,
    FourierModel,
    FourierSettings,
    fit_fourier_constancy,
    fourier_estimate,
    log_chroma_histograms,
)
from everlight.color.learned.gamut import Gamut, fit_gamut, gamut_estimate
from everlight.color.learned.generator_net import GeneratorSettings
from everlight.color.learned.generator_training import GeneratorModel
from everlight.color.learned.linear_regression import (
    LinearRegression,
    fit_linear_regression,
    linear_estimate,
)
from everlight.color.learned.observed_image import Baseline, ObservedImage, observe_image
from everlight.color.learned.sensor_independent import (
    SENSOR_PAPER_SIZE,
    SENSOR_SMALL_FORM,
    SensorIndependentModel,
    SensorSettings,
    chroma_kernels,
    fit_sensor_independent,
    sensor_independent_estimate,
)
from everlight.color.moments import edge_moments, pixel_moments

BASELINES: dict[str, Baseline] = {
    "Gamut Pixel": Baseline(observe_image, partial(fit_gamut, order=0), gamut_estimate),
    "Gamut Edge": Baseline(observe_image, partial(fit_gamut, order=1), gamut_estimate),
    "Corrected moments": Baseline(pixel_moments, fit_bias_correction, correct_bias),
    "Corrected edge moments": Baseline(edge_moments, fit_bias_correction, correct_bias),
    "Homography (SoG)": Baseline(ESTIMATORS["SoG"], fit_bias_correction, correct_bias),
    "APAP (GW)": Baseline(ESTIMATORS["GW"], keep_training_estimates, correct_bias_locally),
    "FFCC": Baseline(log_chroma_histograms, fit_fourier_constancy, fourier_estimate),
    "SIIE": Baseline(observe_image, fit_sensor_independent, sensor_independent_estimate),
    "DMCC": Baseline(observe_image, fit_dual_mapping, dual_mapping_estimate),
}
"""Methods by the name of their papers, with default hyper-parameters. FFCC reads images whose white
is 1."""

__all__ = [
    "AUTHORS_SIZE",
    "BASELINES",
    "CALIBRATED_AUTHORS_SIZE",
    "CALIBRATED_SMALL_FORM",
    "FOURIER_SETTINGS",
    "SENSOR_PAPER_SIZE",
    "SENSOR_SMALL_FORM",
    "SMALL_FORM",
    "Baseline",
    "CaptureModel",
    "ChromaWindow",
    "Chromagenic",
    "ConfidencePoolingModel",
    "DualMappingModel",
    "FourierModel",
    "FourierSettings",
    "Gamut",
    "GeneratorModel",
    "GeneratorSettings",
    "LinearRegression",
    "ObservedImage",
    "SensorIndependentModel",
    "SensorSettings",
    "TrainingEstimates",
    "calibrated_estimate",
    "capture_aware_estimate",
    "capture_features",
    "chroma_histograms",
    "chroma_kernels",
    "chromagenic_estimate",
    "confidence_pooled_estimate",
    "correct_bias",
    "correct_bias_locally",
    "cross_camera_estimate",
    "draw_illuminants",
    "dual_mapping_estimate",
    "fit_bias_correction",
    "fit_calibrated_camera",
    "fit_capture_aware",
    "fit_chromagenic",
    "fit_confidence_pooling",
    "fit_cross_camera",
    "fit_dual_mapping",
    "fit_fourier_constancy",
    "fit_gamut",
    "fit_linear_regression",
    "fit_sensor_independent",
    "four_colors",
    "fourier_estimate",
    "gamut_estimate",
    "keep_training_estimates",
    "linear_estimate",
    "log_chroma_histograms",
    "observe_image",
    "sensor_independent_estimate",
    "weighted_chroma_histogram",
]
