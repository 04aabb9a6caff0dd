"""Published illuminant estimators that learn from images; each file declares its rows.

`METHODS` of a file holds its rows, which `everlight.color.ILLUMINANT_METHODS` collects. Two methods
have only functions of their own, since they estimate from more than one image:

- Chromagenic colour constancy (`chromagenic`) reads images of two cameras, and learns the
  transform of each candidate illuminant.
- Linear regression (`linear_regression`) maps features of any kind to chromaticities, not to
  illuminants.
"""

from everlight.color.learned.bias_correction import (
    TrainingEstimates,
    correct_bias,
    correct_bias_locally,
    fit_bias_correction,
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
    lux_feature,
)
from everlight.color.learned.chromagenic import Chromagenic, chromagenic_estimate, fit_chromagenic
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
from everlight.color.learned.linear_regression import (
    LinearRegression,
    fit_linear_regression,
    linear_estimate,
)
from everlight.color.learned.parts.generator_net import GeneratorSettings
from everlight.color.learned.parts.generator_training import GeneratorModel
from everlight.color.learned.parts.observed_image import ObservedImage, observe_image
from everlight.color.learned.sensor_independent import (
    SENSOR_PAPER_SIZE,
    SENSOR_SMALL_FORM,
    SensorIndependentModel,
    SensorSettings,
    chroma_kernels,
    fit_sensor_independent,
    sensor_independent_estimate,
)

__all__ = [
    "AUTHORS_SIZE",
    "CALIBRATED_AUTHORS_SIZE",
    "CALIBRATED_SMALL_FORM",
    "FOURIER_SETTINGS",
    "SENSOR_PAPER_SIZE",
    "SENSOR_SMALL_FORM",
    "SMALL_FORM",
    "CaptureModel",
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
    "linear_estimate",
    "log_chroma_histograms",
    "lux_feature",
    "observe_image",
    "sensor_independent_estimate",
]
