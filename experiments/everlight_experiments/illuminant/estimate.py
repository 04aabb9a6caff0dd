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
from typing import get_args

import numpy as np
import tyro

from everlight.models.illuminant_interval import COVERAGE
from everlight.models.pair_estimate import (
    PairEstimate,
    UnsuitablePairError,
    describe_score,
    estimate_pair,
)
from everlight.models.pair_model import Estimate, PairModel
from everlight_data.color.corrections import Format, write_correction, write_illuminants
from everlight_data.color.pair_model_files import load_pair_model
from everlight_data.color.raw import read_raw
from everlight_data.color.view_pairs import align_thumbnails, choose_homography
from everlight_data.errors import DataError
from everlight_data.files import one_line
from everlight_data.writing import make_folder


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


def estimate(settings: EstimateSettings) -> list[PairEstimate]:
    """Read, estimate, print and write; pairs without an estimate are reported at the end.

    Raises:
      DataError: a file is missing, damaged, or unusable (all black, one colour, no overlap), or a
        pair is too far from the training pairs.
    """
    pairs = settings.pairs()
    model = load_pair_model(settings.checkpoint)
    results, failures = {}, []
    for pair in pairs:
        try:
            results[pair] = _estimate_files(*pair, model, settings)
        except DataError as error:
            failures.append(error)
            if len(pairs) > 1:
                print(f"NO ESTIMATE: {error}", file=sys.stderr)
    if results:
        write_illuminants(settings.output / "lights.csv", results)
        print(f"lights: {settings.output / 'lights.csv'}")
    if failures and len(pairs) == 1:
        raise failures[0]
    if failures:
        raise DataError(
            f"{len(failures)} of {len(pairs)} pairs have no estimate, for the reasons above; the "
            f"first: {failures[0]}"
        )
    return list(results.values())


def _estimate_files(
    main_file: Path, second_file: Path, model: PairModel, settings: EstimateSettings
) -> PairEstimate:
    main = read_raw(main_file, settings.main_black_level, settings.main_white_level)
    second = read_raw(second_file, settings.second_black_level, settings.second_white_level)
    homography = choose_homography(settings.homography, main, second)
    thumbnails = align_thumbnails(main, second, homography, settings.downsample)
    try:
        result = estimate_pair(model, *thumbnails)
    except UnsuitablePairError as error:
        raise DataError(f"{main_file}: {error}.") from error
    print(
        f"used {thumbnails.mask.sum()} of {thumbnails.mask.size} averaged pixels; "
        f"condition number of their colours {result.condition:.1f}"
    )
    for view, trained_for in zip((main, second), model.cameras, strict=True):
        print(
            f"{view.path}: {view.camera or 'unnamed camera'}, black {view.black_level.tolist()}, "
            f"white {view.white_level}; model trained for {trained_for}"
        )
    if result.transform is not None:
        print(f"transform, main @ T = second:\n{np.array2string(result.transform, precision=4)}")
    for view, found in result.estimates._asdict().items():
        if found is not None:
            score = describe_score(found)
            print(f"illuminant of the {view} view: {_describe(found)}; {score}")
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
