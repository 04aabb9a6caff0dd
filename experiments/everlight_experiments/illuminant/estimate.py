"""The illuminant of photos from their two raw views, by a trained model.

The model states its inputs: the colour transform between the views, colour moments, or both.

    everlight illuminant estimate main.dng second.dng --checkpoint model \
        --homography phone.json --output corrected

It prints the transform and the illuminant with its interval. It writes the photo before and after
as a picture, corrected as a linear TIFF, and as a DNG with the illuminant as AsShotNeutral. The
estimates of all pairs are in lights.csv, with warnings.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Float

from everlight.models.illuminant_interval import COVERAGE
from everlight.models.pair_model import Estimate, Estimates, PairInputs, PairModel
from everlight_data.color.chart_pairs import MAX_CONDITION
from everlight_data.color.corrections import Format, write_correction, write_illuminants
from everlight_data.color.pair_model_files import load_pair_model
from everlight_data.color.raw import RawImage, read_raw
from everlight_data.color.view_pairs import Thumbnails, align_thumbnails, choose_homography
from everlight_data.errors import DataError
from everlight_data.files import one_line
from everlight_data.writing import make_folder

PLAUSIBLE = 20
"""Bound of r/g and b/g and their inverses; no camera exceeds it under any illuminant."""
MAX_SCORE = 3.0
"""Maximum out-of-distribution score; above 1 a warning is given.

The unit is the 99th percentile of validation pairs.
"""


@dataclass(frozen=True)
class EstimateSettings:
    """Estimate the illuminants of photos from the raw files of a phone's two cameras."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    """Raw files in pairs: the main camera's, whose illuminant is estimated, then the second
    camera's; more pairs of the same cameras may follow."""
    checkpoint: Path
    """Folder of the trained networks or regressions, in a run's models/."""
    homography: Path | None = None
    """JSON file with {"matrix": [[...], [...], [...]]} from main to second pixels, or
    {"main": [[x, y], ...], "second": [[x, y], ...]}, at least four points seen by both. Without it
    the views are taken as aligned."""
    output: Path = Path("corrected")
    """Folder of the written files, which are named after the main files."""
    formats: tuple[Format, ...] = get_args(Format)
    """File formats to write: png is the photo before and after; tiff is corrected, linear, 16 bits;
    dng has the main file's sensor values and the illuminant as AsShotNeutral."""
    downsample: int = 6
    """Side in pixels of the blocks averaged before the fit."""
    main_black_level: int | None = None
    """Black level that replaces the main file's, in sensor units."""
    main_white_level: int | None = None
    """White level that replaces the main file's, in sensor units."""
    second_black_level: int | None = None
    """Black level that replaces the second file's, in sensor units."""
    second_white_level: int | None = None
    """White level that replaces the second file's, in sensor units."""

    def pairs(self) -> list[tuple[Path, Path]]:
        """Return main and second files.

        Raises:
          DataError: files are no complete pairs, or two main files have the same name.
        """
        if not self.files or len(self.files) % 2:
            raise DataError(
                f"{len(self.files)} raw files are no pairs; give main and second of each in turn"
            )
        pairs = list(zip(self.files[::2], self.files[1::2], strict=True))
        stems = [main.stem for main, _ in pairs]
        twice = sorted({stem for stem in stems if stems.count(stem) > 1})
        if twice:
            raise DataError(
                f"several main files are named {one_line(twice[0])}, and so would be their "
                "outputs; rename them, or give them one at a time, each its own --output"
            )
        return pairs


class EstimateResult(NamedTuple):
    """Estimates of a pair.

    Attributes:
      transform: transform of main to second colours in the model's scale; None if the model needs
        none and the colours determine none.
      estimates: illuminants of the main view and, if the model has it, of the second.
      homography: homography from main to second pixels.
      warnings: reasons to distrust the estimates, each with its view.
    """

    transform: Float[np.ndarray, "3 3"] | None
    estimates: Estimates
    homography: Float[np.ndarray, "3 3"]
    warnings: tuple[str, ...]


def estimate(settings: EstimateSettings) -> list[EstimateResult]:
    """Read, estimate, print and write; pairs without an estimate are reported at the end.

    Raises:
      DataError: a file is missing, damaged, or unusable (all black, one colour, no overlap), or a
        pair is too far from the training pairs.
    """
    pairs = settings.pairs()
    model = load_pair_model(settings.checkpoint)
    results, rows, failures = [], [], []
    for main, second in pairs:
        try:
            result = _estimate_files(main, second, model, settings)
        except DataError as error:
            failures.append(error)
            if len(pairs) > 1:
                print(f"NO ESTIMATE: {error}", file=sys.stderr)
            continue
        results.append(result)
        rows.append(_row(main, second, result))
    if rows:
        write_illuminants(settings.output / "lights.csv", rows)
        print(f"lights: {settings.output / 'lights.csv'}")
    if failures and len(pairs) == 1:
        raise failures[0]
    if failures:
        raise DataError(
            f"{len(failures)} of {len(pairs)} pairs have no estimate, for the reasons above; the "
            f"first: {failures[0]}"
        )
    return results


def _estimate_files(
    main_file: Path, second_file: Path, model: PairModel, settings: EstimateSettings
) -> EstimateResult:
    main = read_raw(main_file, settings.main_black_level, settings.main_white_level)
    second = read_raw(second_file, settings.second_black_level, settings.second_white_level)
    homography = choose_homography(settings.homography, main, second)
    result = estimate_pair(main, second, homography, model, settings.downsample)
    for view, trained_for in zip((main, second), model.cameras, strict=True):
        print(
            f"{view.path}: {view.camera or 'unnamed camera'}, black {view.black_level.tolist()}, "
            f"white {view.white_level}; model trained for {trained_for}"
        )
    if result.transform is not None:
        print(f"transform, main @ T = second:\n{np.array2string(result.transform, precision=4)}")
    for view, found in result.estimates._asdict().items():
        if found is not None:
            print(f"illuminant of the {view} view: {_describe(found)}")
    for warning in result.warnings:
        print(f"WARNING: {main_file}: {warning}", file=sys.stderr)
    make_folder(settings.output)
    stem = settings.output / main_file.stem
    neutral = result.estimates.main.illuminant
    for path in write_correction(main, neutral, settings.formats, stem):
        print(f"written: {path}")
    return result


def _describe(found: Estimate) -> str:
    """Return an estimate and its interval in words."""
    red, green, blue = found.illuminant
    ratios = f"r {red:.4f}  g {green:.4f}  b {blue:.4f}  (r/g {red:.4f}, b/g {blue:.4f})"
    if not np.isfinite(found.interval.degrees):
        return f"{ratios}; no interval, as the model was validated on too few pairs"
    low, high = found.interval.low, found.interval.high
    return (
        f"{ratios}; {COVERAGE:.0%} interval: r/g {low[0]:.4f} to {high[0]:.4f}, b/g {low[1]:.4f} "
        f"to {high[1]:.4f}, its farthest corner {found.interval.degrees:.1f} degrees from it"
    )


def _row(main: Path, second: Path, result: EstimateResult) -> dict[str, str]:
    """Return a line of lights.csv; cells of a view without an estimate are empty."""
    row = {"main": str(main), "second": str(second)}
    for view, found in result.estimates._asdict().items():
        interval = None if found is None else found.interval
        for place, ratio in enumerate(("r/g", "b/g")):
            row[f"{view} {ratio}"] = "" if found is None else f"{found.illuminant[2 * place]:.6f}"
            for end in ("low", "high"):
                known = "" if interval is None else f"{getattr(interval, end)[place]:.6f}"
                row[f"{view} {ratio} {end}"] = known
        row[f"{view} degrees"] = "" if interval is None else f"{interval.degrees:.3f}"
        distance = "" if found is None else f"{found.score.distance:.3f}"
        row[f"{view} distance from training"] = distance
    return row | {"warnings": " ".join(result.warnings)}


def estimate_pair(
    main: RawImage,
    second: RawImage,
    homography: Float[np.ndarray, "3 3"],
    model: PairModel,
    factor: int,
) -> EstimateResult:
    """Return the model's estimates for two views.

    Raises:
      DataError: the views do not fit together or to the model.
    """
    thumbnails = align_thumbnails(main, second, homography, factor)
    inputs = inputs_of(thumbnails, model)
    counted = thumbnails.main[thumbnails.mask]
    condition = np.linalg.cond(counted)
    has_transform = bool(inputs.valid) and condition <= MAX_CONDITION
    if model.needs_transform and not has_transform:
        raise DataError(
            f"{main.path}: the {len(counted)} averaged pixels seen by both views hold fewer than "
            "three independent colours, too few for a transform (condition number "
            f"{condition:.0f}, more than {MAX_CONDITION}); photograph a more colourful scene."
        )
    print(
        f"used {len(counted)} of {thumbnails.mask.size} averaged pixels; "
        f"condition number of their colours {condition:.1f}"
    )
    estimates, warnings = _judge(model.estimate(inputs), main, model)
    for found in estimates:
        ratios = np.ones(3) if found is None else found.illuminant
        if not np.all((ratios > 1 / PLAUSIBLE) & (ratios < PLAUSIBLE)):
            raise DataError(
                f"{main.path}: the model's estimate {ratios} is no illuminant; use one for "
                f"these two cameras (this one is for {' and '.join(model.cameras)})."
            )
    transform = np.asarray(inputs.transform) if has_transform else None
    return EstimateResult(transform, estimates, homography, warnings)


def inputs_of(thumbnails: Thumbnails, model: PairModel) -> PairInputs:
    """Return the model's inputs."""
    return model.inputs(
        jnp.asarray(thumbnails.main.reshape(-1, 3)),
        jnp.asarray(thumbnails.second.reshape(-1, 3)),
        jnp.asarray(thumbnails.mask.ravel(), jnp.float32),
    )


def _judge(
    estimates: Estimates, main: RawImage, model: PairModel
) -> tuple[Estimates, tuple[str, ...]]:
    """Print the out-of-distribution scores, and leave out a second estimate that is too far.

    Raises:
      DataError: the main view is too far from the training pairs.
    """
    warnings = []
    for view, found in estimates._asdict().items():
        if found is None:
            continue
        distance, farther = float(found.score.distance), float(found.score.p_value)
        scored = (
            f"{view} illuminant: out-of-distribution score {distance:.2f}, where 1 is the 99th "
            f"percentile of validation pairs; {farther:.0%} of them are as far"
        )
        if not distance <= MAX_SCORE:
            worthless = f"{scored}. The estimate would be worthless"
            if view == "main":
                raise DataError(
                    f"{main.path}: {worthless}. Give files of the cameras it was trained for, "
                    f"{' and '.join(model.cameras)}, main one first, well aligned, or another "
                    "model."
                )
            estimates = estimates._replace(second=None)
            warnings.append(f"{worthless} and is left out.")
            continue
        print(scored)
        if distance > 1:
            warnings.append(f"{scored}. The estimate and its interval may be far from the truth.")
        if found.uninformative:
            warnings.append(
                f"{view} illuminant: its interval has a radius of {found.interval.degrees:.1f} "
                "degrees, no less than that of the training illuminants alone: THE ESTIMATE IS "
                "UNINFORMATIVE."
            )
    return estimates, tuple(warnings)
