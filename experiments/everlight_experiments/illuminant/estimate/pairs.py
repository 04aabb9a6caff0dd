"""The illuminants of pairs of two raw views by a kept model of pairs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from everlight.illuminant.pair_estimate import (
    UnsuitablePairError,
    describe_estimate,
    describe_score,
    estimate_pair,
)
from everlight.illuminant.pair_inputs import VIEWS
from everlight.illuminant.pair_model import PairModel
from everlight_data.color.pairs.view_pairs import align_thumbnails, choose_homography
from everlight_data.color.raw_files.calibrations import other_camera
from everlight_data.color.raw_files.corrections import pair_row
from everlight_data.color.raw_files.photo_whites import describe_white, photo_white
from everlight_data.color.raw_files.raw import black_text, read_raw
from everlight_data.errors import DataError
from everlight_experiments.illuminant.estimate.options import (
    PAIRS,
    READERS,
    EstimateOptions,
    FileEstimate,
)
from everlight_experiments.illuminant.estimate.photos import (
    file_warnings,
    saturated_share,
    white_warnings,
    write_photo,
)
from everlight_experiments.run_folder.options import refuse_unread


def deferred_pair_estimates(
    options: EstimateOptions, model: PairModel
) -> list[Callable[[], FileEstimate]]:
    """Return a function for each pair, which reads, estimates and corrects it.

    Raises:
      DataError: the files do not form pairs, or an option is for other models.
    """
    refuse_unread(options, READERS, {PAIRS}, f"{options.model} is for {PAIRS}")
    return [partial(_estimate, options, model, pair) for pair in options.pairs()]


def _estimate(options: EstimateOptions, model: PairModel, pair: tuple[Path, Path]) -> FileEstimate:
    """Return the estimate of a main and a second file, and write the corrected main one."""
    main_file, second_file = pair
    main = read_raw(main_file, options.main_levels)
    second = read_raw(second_file, options.second_levels)
    homography = choose_homography(options.homography, main, second)
    thumbnails = align_thumbnails(main, second, homography, options.downsample)
    try:
        result = estimate_pair(model, *thumbnails)
    except UnsuitablePairError as error:
        raise DataError(f"{main_file}: {error}.") from error
    lines = [
        f"used {thumbnails.mask.sum()} of {thumbnails.mask.size} averaged pixels; "
        f"condition number of their colours {result.condition:.1f}"
    ]
    for view, photo, trained in zip(VIEWS, (main, second), model.cameras, strict=True):
        remarks = [
            *other_camera(photo.camera, [trained], f"{view} file "),
            *(f"{view} file: {text}" for text in file_warnings(photo, saturated_share(photo))),
        ]
        result = result._replace(warnings=(*result.warnings, *remarks))
        lines.append(
            f"{photo.path}: {photo.camera or 'unnamed camera'}, black {black_text(photo)}, "
            f"white {photo.white_level}; model trained for {trained}"
        )
    if result.transform is not None:
        lines.append(
            f"transform, main @ T = second:\n{np.array2string(result.transform, precision=4)}"
        )
    whites = {}
    for view, photo in zip(VIEWS, (main, second), strict=True):
        estimate = getattr(result.estimates, view)
        if estimate is None:
            continue
        remarks = [f"{view} view: {text}" for text in white_warnings(estimate.illuminant)]
        result = result._replace(warnings=(*result.warnings, *remarks))
        lines.append(f"{view} view: {describe_score(estimate)}")
        lines.append(f"illuminant of the {view} view: {describe_estimate(estimate)}")
        whites[view] = photo_white(photo, estimate.illuminant)
        if whites[view] is not None:
            lines.append(f"white point of the {view} view: {describe_white(whites[view])}")
    neutral = result.estimates.main.illuminant
    written = write_photo(main, neutral, whites["main"], options)
    result = result._replace(warnings=(*result.warnings, *written.warnings))
    lines += [f"written: {path}" for path in written.paths]
    row = pair_row(main_file, second_file, result, whites)
    return FileEstimate(main_file, result, row, lines)
