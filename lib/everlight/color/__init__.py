"""Colour: transforms between cameras, illuminant estimators, alignment and rendering."""

from everlight.color.alignment import (
    HomographyFit,
    MaskedImage,
    apply_homography,
    area_downsample,
    fit_homography,
    warp_image,
)
from everlight.color.camera_calibration import (
    CameraCalibration,
    camera_fingerprint,
    imaginary_camera,
)
from everlight.color.chroma_histogram import (
    ChromaWindow,
    chroma_histograms,
    weighted_chroma_histogram,
)
from everlight.color.chromaticity import chromaticity_to_illuminant, illuminant_to_chromaticity
from everlight.color.derivatives import response
from everlight.color.estimators.minkowski import minkowski_framework
from everlight.color.estimators.principal_direction import bright_dark_pca
from everlight.color.estimators.weighted_gray_edge import weighted_gray_edge
from everlight.color.feature_distribution import (
    FeatureDistribution,
    feature_distance,
    fit_feature_distribution,
)
from everlight.color.illuminant_folds import estimate_fold, estimate_folds
from everlight.color.illuminant_method import (
    IlluminantMethod,
    LabelledImages,
    SideInformation,
    map_images,
)
from everlight.color.illuminant_registry import ESTIMATORS, ILLUMINANT_METHODS, methods_for
from everlight.color.illuminants import keep_observed, unit_illuminant
from everlight.color.learned import *  # noqa: F403
from everlight.color.learned import __all__ as _learned
from everlight.color.locus import (
    Locus,
    LocusPoint,
    fit_color_matrix,
    fit_locus,
    interpolate_matrices,
    locus_chromaticity,
    nearest_on_locus,
    rendering_transform,
)
from everlight.color.mixing import Mixtures, mix_neighbors
from everlight.color.moments import (
    color_moments,
    edge_moments,
    extreme_chromaticities,
    pixel_moments,
    reilluminate_moments,
)
from everlight.color.radiometry import (
    ResponseTable,
    Sensor,
    blackbody_power,
    camera_responses,
    illuminant_response,
    patch_means,
    patch_thumbnail,
    response_table,
    scene_colors,
    take_photograph,
)
from everlight.color.reillumination import augment_transforms, chart_transforms, von_kries
from everlight.color.rendering import (
    camera_to_srgb,
    encode_srgb,
    full_scale_balance,
    render,
    render_linear,
    white_balance,
)
from everlight.color.transform_prior import (
    ProbableTransform,
    TransformPrior,
    fit_probable_transform,
    learn_transform_prior,
)
from everlight.color.transforms import (
    TransformFit,
    apply_color_transform,
    fit_color_transform,
    mean_normalized,
    normalize_sum,
    reilluminate_transform,
    scale_free,
)

__all__ = [
    "CameraCalibration",
    "ChromaWindow",
    "chroma_histograms",
    "weighted_chroma_histogram",
    "camera_fingerprint",
    "imaginary_camera",
    "ESTIMATORS",
    "ILLUMINANT_METHODS",
    "IlluminantMethod",
    "LabelledImages",
    "SideInformation",
    "estimate_fold",
    "estimate_folds",
    "map_images",
    "methods_for",
    "FeatureDistribution",
    "HomographyFit",
    "MaskedImage",
    "Mixtures",
    "ProbableTransform",
    "ResponseTable",
    "Sensor",
    "TransformFit",
    "TransformPrior",
    "apply_color_transform",
    "apply_homography",
    "area_downsample",
    "augment_transforms",
    "blackbody_power",
    "bright_dark_pca",
    "camera_responses",
    "camera_to_srgb",
    "chart_transforms",
    "color_moments",
    "edge_moments",
    "encode_srgb",
    "extreme_chromaticities",
    "feature_distance",
    "fit_color_transform",
    "fit_feature_distribution",
    "fit_homography",
    "fit_probable_transform",
    "chromaticity_to_illuminant",
    "full_scale_balance",
    "illuminant_response",
    "keep_observed",
    "interpolate_matrices",
    "learn_transform_prior",
    "Locus",
    "LocusPoint",
    "fit_color_matrix",
    "fit_locus",
    "locus_chromaticity",
    "nearest_on_locus",
    "rendering_transform",
    "mean_normalized",
    "minkowski_framework",
    "mix_neighbors",
    "normalize_sum",
    "patch_means",
    "patch_thumbnail",
    "pixel_moments",
    "reilluminate_moments",
    "reilluminate_transform",
    "render",
    "render_linear",
    "response",
    "response_table",
    "scale_free",
    "scene_colors",
    "take_photograph",
    "illuminant_to_chromaticity",
    "unit_illuminant",
    "von_kries",
    "warp_image",
    "weighted_gray_edge",
    "white_balance",
    *_learned,
]
