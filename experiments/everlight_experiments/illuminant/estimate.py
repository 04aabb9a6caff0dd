"""The illuminants of photos by a kept model: of single photos, or of pairs of two raw views.

    everlight illuminant estimate photo.dng --model model
    everlight illuminant estimate folder --model model --formats png
    everlight illuminant estimate main.dng second.dng --model pairs --homography phone.json
    everlight illuminant estimate photo.dng --model SoG

A model of pairs states its inputs: the colour transform between the views, colour moments, or both.
An estimator that needs no training, such as SoG (Shades-of-Gray), gives no interval.
The command prints the illuminant with its interval. It writes the photo before and after as a
picture, corrected as a linear TIFF, and as a DNG with the illuminant as AsShotNeutral. The
estimates of all photos or pairs are in illuminants.csv, with warnings.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from everlight.color.illuminant_registry import ESTIMATORS
from everlight.illuminant.image_model import ImageModel, untrained_model
from everlight.illuminant.pair_estimate import (
    PairEstimate,
    UnsuitablePairError,
    describe_score,
    estimate_pair,
)
from everlight.illuminant.pair_model import VIEWS, PairModel
from everlight_data.color.models.image_model_files import load_any_model
from everlight_data.color.pairs.view_pairs import align_thumbnails, choose_homography
from everlight_data.color.raw_files.calibrations import other_camera
from everlight_data.color.raw_files.corrections import pair_row, write_correction, write_illuminants
from everlight_data.color.raw_files.raw import black_text, read_raw
from everlight_data.errors import DataError, MissingDataError, MissingPackageError
from everlight_data.writing import make_folder
from everlight_experiments.illuminant.estimate_photos import (
    PhotoEstimate,
    describe_estimate,
    estimate_photos,
)
from everlight_experiments.illuminant.estimate_settings import EstimateSettings


def estimate(settings: EstimateSettings) -> Sequence[PairEstimate | PhotoEstimate]:
    """Read, estimate, print and write; files without an estimate are reported at the end.

    Raises:
      DataError: a file is missing, damaged, or unusable (all black, one colour, no overlap), or
        too far from the training images.
    """
    settings.refuse_levels()
    model = _model(settings.model)
    if isinstance(model, ImageModel):
        return estimate_photos(settings, model)
    return _estimate_pairs(settings, model)


def _model(source: Path) -> ImageModel | PairModel:
    """Return the model of a folder, or the estimator without training of that name."""
    try:
        return load_any_model(source)
    except MissingDataError as error:
        names = {name.casefold(): name for name in ESTIMATORS}
        name = names.get(str(source).casefold())
        if name and not source.exists():
            return untrained_model(name)
        raise MissingDataError(
            f"{error}, or name an estimator that needs no training: {', '.join(ESTIMATORS)}"
        ) from error


def _estimate_pairs(settings: EstimateSettings, model: PairModel) -> list[PairEstimate]:
    pairs = settings.pairs()
    results, failures = {}, []
    for pair in pairs:
        try:
            results[pair] = _estimate_files(*pair, model, settings)
        except MissingPackageError:
            raise
        except DataError as error:
            failures.append(error)
            if len(pairs) > 1:
                print(f"NO ESTIMATE: {error}", file=sys.stderr)
    if results:
        rows = [pair_row(*files, result) for files, result in results.items()]
        write_illuminants(settings.output / "illuminants.csv", rows)
        print(f"illuminants: {settings.output / 'illuminants.csv'}")
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
    main = read_raw(main_file, settings.main_levels)
    second = read_raw(second_file, settings.second_levels)
    homography = choose_homography(settings.homography, main, second)
    thumbnails = align_thumbnails(main, second, homography, settings.downsample)
    try:
        result = estimate_pair(model, *thumbnails)
    except UnsuitablePairError as error:
        raise DataError(f"{main_file}: {error}.") from error
    for view, photo, trained in zip(VIEWS, (main, second), model.cameras, strict=True):
        remarks = other_camera(photo.camera, [trained], f"{view} file ")
        result = result._replace(warnings=(*result.warnings, *remarks))
    print(
        f"used {thumbnails.mask.sum()} of {thumbnails.mask.size} averaged pixels; "
        f"condition number of their colours {result.condition:.1f}"
    )
    for view, trained_for in zip((main, second), model.cameras, strict=True):
        print(
            f"{view.path}: {view.camera or 'unnamed camera'}, black {black_text(view)}, "
            f"white {view.white_level}; model trained for {trained_for}"
        )
    if result.transform is not None:
        print(f"transform, main @ T = second:\n{np.array2string(result.transform, precision=4)}")
    for view, view_estimate in result.estimates._asdict().items():
        if view_estimate is not None:
            print(f"{view} view: {describe_score(view_estimate)}")
            print(f"illuminant of the {view} view: {describe_estimate(view_estimate)}")
    for warning in result.warnings:
        print(f"WARNING: {main_file}: {warning}", file=sys.stderr)
    make_folder(settings.output)
    stem = settings.output / main_file.stem
    neutral = result.estimates.main.illuminant
    for path in write_correction(main, neutral, settings.formats, stem):
        print(f"written: {path}")
    return result
