"""Angular errors that papers on illuminant estimation printed, in degrees.

Tables 1 to 4 are those of Abdelhamed et al. 2021, "Leveraging the Availability of Two Cameras for
Illuminant Estimation". Table 4 has networks trained without augmentation ("none"): mean, median,
best and worst 25%.
"""

from collections.abc import Collection

from everlight_data.color.photographs.camera_names import NUS8_CAMERAS

STATISTICS = ("Mean", "Med", "B25%", "W25%", "Q1", "Q3", "Tri")
"""Columns: mean, median, best and worst 25%, first and third quartile, trimean.

Tables 1 to 3 have no trimean.
"""
UNKNOWN = float("nan")
"""A statistic that the paper does not print."""

TABLE_1_RADIOMETRIC = {
    "GW": (4.09, 3.68, 1.36, 7.51, 2.21, 5.56),
    "SoG": (4.56, 4.11, 1.51, 8.41, 2.43, 6.21),
    "GE-1": (5.20, 4.64, 1.65, 9.62, 2.76, 7.18),
    "GE-2": (5.41, 4.69, 1.72, 10.25, 2.83, 7.37),
    "WGE": (4.14, 3.25, 1.13, 8.72, 1.82, 5.41),
    "PCA": (4.55, 3.09, 1.03, 10.67, 1.68, 5.85),
    "WP": (5.49, 4.96, 1.83, 10.02, 2.94, 7.48),
    "Gamut Pixel": (3.68, 3.07, 1.05, 7.30, 1.70, 5.10),
    "Gamut Edge": (6.09, 5.34, 1.95, 11.49, 3.15, 8.42),
    "Net, 200 parameters": (2.80, 2.20, 0.72, 5.87, 1.19, 3.81),
    "Net, 470 parameters": (2.65, 2.00, 0.64, 5.72, 1.07, 3.61),
}

TABLE_2_NUS = {
    "GW": (4.43, 3.42, 0.90, 9.82, 1.54, 6.11),
    "SoG": (3.31, 2.63, 0.70, 7.20, 1.18, 4.17),
    "GE-1": (4.49, 3.03, 0.87, 10.38, 1.40, 6.34),
    "GE-2": (4.99, 3.28, 0.94, 11.83, 1.54, 6.65),
    "WGE": (5.77, 3.11, 0.77, 14.75, 1.38, 7.89),
    "PCA": (4.01, 2.68, 0.69, 9.20, 1.22, 6.07),
    "WP": (4.49, 3.47, 0.93, 9.99, 1.42, 6.09),
    "Gamut Pixel": (5.99, 3.70, 0.90, 14.95, 1.41, 8.65),
    "Gamut Edge": (4.99, 3.38, 0.85, 11.63, 1.72, 7.22),
    # The paper does not state the kind of its corrected moments.
    "Corrected moments, 9 of edges": (2.80, 2.09, 0.66, 6.12, 1.21, 3.67),
    "Homography (SoG)": (2.70, 1.95, 0.69, 5.88, 1.06, 3.71),
    "Homography (PCA)": (2.97, 2.16, 0.72, 6.47, 1.14, 4.22),
    "APAP (GW)": (2.64, 2.00, 0.60, 5.99, 1.02, 3.26),
    "APAP (SoG)": (2.49, 1.75, 0.60, 5.61, 0.88, 3.14),
    "APAP (PCA)": (2.77, 1.83, 0.60, 6.45, 0.94, 3.49),
    "SIIE": (2.04, 1.55, 0.51, 4.41, 0.80, 2.80),
    "Quasi U CC": (3.57, 2.77, 0.62, 8.04, 1.09, 5.06),
    "Quasi U CC finetuned": (2.68, 1.72, 0.57, 6.25, 0.98, 3.67),
    "FC4": (2.65, 2.06, 0.67, 5.69, 1.12, 3.49),
    "FFCC": (2.44, 1.50, 0.40, 5.87, 0.75, 3.19),
    "Net, 200 parameters, re-illuminated": (2.39, 1.44, 0.46, 5.95, 0.81, 2.81),
    "Net, 470 parameters, re-illuminated": (1.91, 1.24, 0.36, 4.78, 0.62, 2.22),
    "Net, 1460 parameters, re-illuminated": (1.69, 1.09, 0.37, 4.02, 0.59, 2.02),
    "Net, 200 parameters, none": (4.74, 2.61, 0.66, 12.47),
}
"""Tables 2 and 4."""

TABLE_3_S20 = {
    "GW": (3.25, 2.55, 0.90, 6.94, 1.46, 3.73),
    "SoG": (3.07, 2.03, 0.62, 7.33, 0.98, 4.16),
    "GE-1": (4.79, 3.91, 0.94, 10.72, 1.49, 6.35),
    "GE-2": (5.23, 3.96, 0.95, 11.74, 1.57, 7.76),
    "WGE": (6.17, 4.76, 0.85, 14.17, 1.50, 9.79),
    "PCA": (4.56, 3.35, 0.85, 10.50, 1.32, 6.42),
    "WP": (3.24, 2.30, 0.56, 7.48, 1.03, 4.16),
    "Gamut Pixel": (6.81, 5.62, 0.97, 14.20, 1.61, 10.29),
    "Gamut Edge": (5.00, 3.60, 0.94, 11.20, 1.46, 6.58),
    "CM": (3.51, 2.64, 0.66, 7.64, 1.25, 4.83),
    "Homography (SoG)": (3.43, 2.38, 0.46, 7.93, 1.13, 4.90),
    "Homography (PCA)": (4.35, 3.12, 0.58, 10.09, 1.05, 6.35),
    "APAP (GW)": (4.21, 2.32, 0.53, 11.34, 0.88, 4.81),
    "APAP (SoG)": (3.46, 2.29, 0.39, 8.53, 0.73, 5.18),
    "APAP (PCA)": (3.96, 2.77, 0.47, 9.14, 0.88, 6.06),
    "Linear regression, none": (2.49, 1.79, 0.80, 4.94, 1.02, 3.29),
    "SIIE": (4.71, 3.37, 0.99, 9.98, 1.55, 7.50),
    "Quasi U CC": (3.94, 2.66, 0.71, 9.16, 1.21, 5.71),
    "Quasi U CC finetuned": (2.55, 1.55, 0.56, 6.15, 0.84, 3.03),
    "FC4": (2.14, 1.64, 0.69, 4.38, 1.15, 2.67),
    "FFCC": (2.51, 2.05, 0.80, 4.95, 1.20, 3.20),
    "Net, 200 parameters": (1.73, 1.29, 0.37, 3.75, 0.70, 2.32),
    "Net, 470 parameters": (0.94, 0.69, 0.17, 2.14, 0.31, 1.24),
    "Net, 1460 parameters": (1.08, 0.71, 0.16, 2.57, 0.27, 1.47),
    "Net, 200 parameters, none": (2.11, 1.46, 0.61, 4.65),
}
"""Tables 3 and 4."""

FFCC_THUMBNAILS = {
    "Canon1DsMkIII": 2.23,
    "Canon600D": 2.21,
    "FujifilmXM1": 2.18,
    "NikonD5200": 2.29,
    "OlympusEPL6": 1.91,
    "PanasonicGX1": 2.17,
    "SamsungNX2000": 2.25,
    "SonyA57": 2.11,
}
"""FFCC's own means in three folds of thumbnails of 32x48, with settings tuned on them.

They stand next to the settings in its authors' repository.
"""


def _row(
    mean: float, median: float, trimean: float, best: float, worst: float
) -> tuple[float, ...]:
    """Return a row of statistics in the order of CCMNet's table as one of `STATISTICS`."""
    return mean, median, best, worst, UNKNOWN, UNKNOWN, trimean


CROSS_CAMERA: dict[str, dict[str, tuple[float, ...]]] = {
    "Gehler-Shi": {
        "SoG": _row(4.93, 4.01, 4.23, 1.14, 10.20),
        "GE-2": _row(5.13, 4.44, 4.62, 2.11, 9.26),
        "PCA": _row(3.52, 2.14, 2.47, 0.50, 8.74),
        "FFCC, published": _row(2.95, 2.19, 2.35, 0.57, 6.75),
        "SIIE, published": _row(2.77, 1.93, UNKNOWN, 0.55, 6.53),
        "C5 with six other images, published": _row(2.36, 1.61, 1.74, 0.44, 5.60),
        "C5 with eight other images, published": _row(2.50, 1.99, 2.03, 0.53, 5.46),
        "CCMNet, published": _row(2.23, 1.53, 1.62, 0.36, 5.46),
    },
    "Cube+": {
        "GW": _row(3.52, 2.55, 2.82, 0.60, 7.98),
        "SoG": _row(3.22, 2.12, 2.44, 0.43, 7.77),
        "GE-1": _row(3.06, 2.05, 2.32, 0.55, 7.22),
        "GE-2": _row(3.28, 2.34, 2.58, 0.66, 7.44),
        "FFCC, published": _row(2.69, 1.89, 2.08, 0.46, 6.31),
        "SIIE, published": _row(2.14, 1.44, UNKNOWN, 0.44, 5.06),
        "DMCC, published": _row(2.23, 1.63, 1.78, 0.49, 4.95),
        "C5 with six other images, published": _row(1.87, 1.27, 1.40, 0.41, 4.36),
        "C5 with eight other images, published": _row(1.92, 1.32, 1.46, 0.44, 4.44),
        "CCMNet, published": _row(1.68, 1.16, 1.26, 0.38, 3.89),
    },
    "NUS-8": {
        "GW": _row(4.59, 3.46, 3.81, 1.16, 9.85),
        "SoG": _row(3.67, 2.94, 3.03, 0.98, 7.75),
        "PCA": _row(2.93, 2.33, 2.42, 0.78, 6.13),
        "DMCC, published": _row(2.80, 2.12, 2.25, 0.74, 5.88),
        "SIIE, published": _row(2.05, 1.50, UNKNOWN, 0.52, 4.48),
        "C5 with eight other images, published": _row(1.77, 1.37, 1.46, 0.48, 3.75),
        "CCMNet, published": _row(1.71, 1.31, 1.40, 0.48, 3.62),
    },
    "NUS-8, trained on other sets alone": {
        "FFCC, published": _row(2.87, 2.14, 2.30, 0.71, 6.23),
        "C5 with six other images, published": _row(2.68, 2.00, 2.14, 0.66, 5.90),
        "C5 with eight other images, published": _row(2.54, 1.90, 2.02, 0.61, 5.61),
        "CCMNet, published": _row(2.32, 1.71, 1.83, 0.53, 5.18),
    },
}
"""Statistics across cameras by data set and method, from Kim et al. 2025 (CCMNet), table 1.

On full photographs. CCMNet was trained on all other sets, of which INTEL-TAU only trains, and for
"NUS-8" on its seven other cameras too.
"""

CROSS_CAMERA_PROTOCOL = (
    "Published are the numbers of Kim et al. 2025 (table 1, full photographs), whose CCMNet was "
    "also trained on the other sets of Gehler-Shi, NUS-8, Cube+ and INTEL-TAU."
)
CROSS_CAMERA_SETS: dict[frozenset[str], str] = {
    frozenset({"Canon1D", "Canon5D"}): "Gehler-Shi",
    frozenset({"Canon550D"}): "Cube+",
    frozenset(NUS8_CAMERAS): "NUS-8",
}
"""Data set of the published rows, by its tested cameras."""


def rows_across_cameras(cameras: Collection[str]) -> dict[str, tuple[float, ...]]:
    """Return the published rows across cameras of a whole data set; empty for other cameras."""
    return CROSS_CAMERA.get(CROSS_CAMERA_SETS.get(frozenset(cameras), ""), {})
