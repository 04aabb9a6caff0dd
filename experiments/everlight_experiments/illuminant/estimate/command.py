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
from pathlib import Path

from tqdm import tqdm

from everlight.color.illuminant_registry import ESTIMATORS
from everlight.illuminant.image_model import ImageModel, untrained_model
from everlight.illuminant.pair_estimate import PairEstimate
from everlight.illuminant.pair_model import PairModel
from everlight_data.color.models.image_model_files import load_any_model
from everlight_data.color.raw_files.corrections import write_illuminants
from everlight_data.errors import DataError, MissingDataError, MissingPackageError
from everlight_data.progress import progress
from everlight_experiments.illuminant.estimate.options import (
    EstimateOptions,
    FileEstimate,
    PhotoEstimate,
)
from everlight_experiments.illuminant.estimate.pairs import deferred_pair_estimates
from everlight_experiments.illuminant.estimate.photos import deferred_photo_estimates


def estimate(options: EstimateOptions) -> list[PairEstimate | PhotoEstimate]:
    """Read, estimate, print and write; files without an estimate are reported at the end.

    Raises:
      DataError: a file is missing, damaged, or unusable (all black, one colour, no overlap), or
        too far from the training images.
    """
    model = _model(options.model)
    if isinstance(model, ImageModel):
        kind, unit, tasks = "photos", "photo", deferred_photo_estimates(options, model)
    else:
        kind, unit, tasks = "pairs", "pair", deferred_pair_estimates(options, model)
    single, table = len(tasks) == 1, options.output / "illuminants.csv"
    if table.exists():
        print(
            f"{table} and files of equal names will be replaced; another --output keeps them",
            file=sys.stderr,
        )
    estimates: list[FileEstimate] = []
    failures: list[DataError] = []
    try:
        for task in tasks if single else progress(kind, unit=unit, values=tasks):
            try:
                file = task()
            except MissingPackageError:
                raise
            except DataError as error:
                failures.append(error)
                if not single:
                    tqdm.write(f"NO ESTIMATE: {error}", file=sys.stderr)
                continue
            estimates.append(file)
            for line in file.lines:
                tqdm.write(line)
            for warning in file.result.warnings:
                tqdm.write(f"WARNING: {file.path}: {warning}", file=sys.stderr)
    finally:
        # Estimates made before a signal are kept.
        if estimates:
            write_illuminants(table, [file.row for file in estimates])
            print(f"illuminants: {table}")
    if failures and single:
        raise failures[0]
    if failures:
        raise DataError(
            f"{len(failures)} of {len(tasks)} {kind} have no estimate, for the reasons above; the "
            f"first: {failures[0]}"
        )
    return [file.result for file in estimates]


def _model(source: Path) -> ImageModel | PairModel:
    """Return the model of a folder, or the estimator without training of that name."""
    try:
        return load_any_model(source)
    except MissingDataError as error:
        reason = str(error)
        if not source.exists():
            names = {name.casefold(): name for name in ESTIMATORS}
            if name := names.get(str(source).casefold()):
                return untrained_model(name)
            reason = f"{source} is not a folder that `everlight illuminant train` wrote; give one"
        raise MissingDataError(
            f"{reason}, or name an estimator that needs no training: {', '.join(ESTIMATORS)}"
        ) from error
