"""The illuminant of photos from their two raw views: align, look, ask the trained model.

What it looks at the model says: the colour transform between the views, colour moments, or both.

    everlight two-camera estimate main.dng second.dng --checkpoint model \
        --homography phone.json --output corrected

It takes seconds, prints the transform and the light with its interval, and writes the photo before
and after as a picture, corrected as a linear TIFF, and as a DNG with the light as AsShotNeutral.
The lights of all pairs are in lights.csv, with what there is to warn of.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Bool, Float

from everlight.color.alignment import area_downsample, fit_homography, warp_image
from everlight.models.illuminant_interval import COVERAGE
from everlight_data.color.raw import RawImage, read_raw
from everlight_data.errors import DataError
from everlight_data.files import one_line, read_json
from everlight_data.writing import make_folder
from everlight_experiments.illuminant.corrections import Format, write_correction, write_lights
from everlight_experiments.illuminant.model_files import (
    LoadedModel,
    PairInputs,
    ToldLight,
    ToldLights,
    load_model,
)

PLAUSIBLE = 20
"""Of r/g and b/g and their inverses: more is no camera's answer to any light."""
# In units of the distance that 99 of 100 validation pairs stay below: from here on the answer
# is not given. Beyond 1 it is given with a warning.
MAX_NOVELTY = 3.0

# Of the averaged colours. The 1,853 photos of NUS-8 stay below 147; a grey wall, 0.2% noise: 900.
MAX_CONDITION = 300


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
        """Main and second files.

        Raises:
          DataError: no whole pairs, or main files whose outputs would have one name.
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
                f"several main files are named {one_line(twice[0])}, and so would be what is "
                "written of them; rename them, or give them one at a time, each its own --output"
            )
        return pairs


class EstimateResult(NamedTuple):
    """What is known of a pair.

    Attributes:
      transform: of main colours to second's, in the scale that the model knows; None where the
        model needs none and the colours determine none.
      lights: of the main view and, where the model tells it, of the second.
      homography: from main to second pixels.
      warnings: why the lights may be worth little, each naming its view.
    """

    transform: Float[np.ndarray, "3 3"] | None
    lights: ToldLights
    homography: Float[np.ndarray, "3 3"]
    warnings: tuple[str, ...]


class Thumbnails(NamedTuple):
    """Both views on the main camera's grid, downsampled; `mask` is where both can be trusted."""

    main: Float[np.ndarray, "h w 3"]
    second: Float[np.ndarray, "h w 3"]
    mask: Bool[np.ndarray, "h w"]


def estimate(settings: EstimateSettings) -> list[EstimateResult]:
    """Runs it all: reads, estimates, prints and writes.

    A pair that has no light is told, and the others are estimated nevertheless.

    Raises:
      DataError: a file is missing, broken, or unfit (all black, one colour only, no overlap), or
        a pair is too far from what the model was trained on; the message names it and says what
        to do.
    """
    pairs = settings.pairs()
    model = load_model(settings.checkpoint)
    results, rows, failures = [], [], []
    for main, second in pairs:
        try:
            result = _estimate_files(main, second, model, settings)
        except DataError as error:
            failures.append(error)
            if len(pairs) > 1:
                print(f"NO LIGHT: {error}", file=sys.stderr)
            continue
        results.append(result)
        rows.append(_row(main, second, result))
    if rows:
        write_lights(settings.output / "lights.csv", rows)
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
    main_file: Path, second_file: Path, model: LoadedModel, settings: EstimateSettings
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
    for view, light in result.lights._asdict().items():
        if light is not None:
            print(f"illuminant of the {view} view: {_describe(light)}")
    for warning in result.warnings:
        print(f"WARNING: {main_file}: {warning}", file=sys.stderr)
    make_folder(settings.output)
    stem = settings.output / main_file.stem
    for path in write_correction(main, result.lights.main.illuminant, settings.formats, stem):
        print(f"written: {path}")
    return result


def _describe(light: ToldLight) -> str:
    """A light in words, with its interval."""
    red, green, blue = light.illuminant
    ratios = f"r {red:.4f}  g {green:.4f}  b {blue:.4f}  (r/g {red:.4f}, b/g {blue:.4f})"
    if not np.isfinite(light.interval.degrees):
        return f"{ratios}; no interval, as the model was validated on too few pairs"
    low, high = light.interval.low, light.interval.high
    return (
        f"{ratios}; {COVERAGE:.0%} interval: r/g {low[0]:.4f} to {high[0]:.4f}, b/g {low[1]:.4f} "
        f"to {high[1]:.4f}, its farthest corner {light.interval.degrees:.1f} degrees from it"
    )


def _row(main: Path, second: Path, result: EstimateResult) -> dict[str, str]:
    """A line of lights.csv; the second view's cells are empty where nothing tells its light."""
    row = {"main": str(main), "second": str(second)}
    for view, light in result.lights._asdict().items():
        interval = None if light is None else light.interval
        for place, ratio in enumerate(("r/g", "b/g")):
            row[f"{view} {ratio}"] = "" if light is None else f"{light.illuminant[2 * place]:.6f}"
            for end in ("low", "high"):
                known = "" if interval is None else f"{getattr(interval, end)[place]:.6f}"
                row[f"{view} {ratio} {end}"] = known
        row[f"{view} degrees"] = "" if interval is None else f"{interval.degrees:.3f}"
        distance = "" if light is None else f"{light.novelty.distance:.3f}"
        row[f"{view} distance from training"] = distance
    return row | {"warnings": " ".join(result.warnings)}


def choose_homography(
    path: Path | None, main: RawImage, second: RawImage
) -> Float[np.ndarray, "3 3"]:
    """The file's homography, or the identity where there is no file and the sizes agree.

    Raises:
      DataError: views that the file's homography is not between, or of two sizes without one.
    """
    if path is not None:
        homography = read_homography(path)
        _refuse_other_views(path, main, second)
        return homography
    if main.image.shape != second.image.shape:
        (height, width), (other_height, other_width) = main.image.shape[:2], second.image.shape[:2]
        raise DataError(
            f"{main.path} has {width}×{height} pixels and {second.path} {other_width}×"
            f"{other_height}, so they are not aligned; give their alignment by --homography."
        )
    return np.eye(3, dtype=np.float32)


def described_view(height: int, width: int, flip: int) -> dict[str, int]:
    """What a homography file says of a view, whose pixels are upright."""
    return {"width": int(width), "height": int(height), "flip": int(flip)}


def _refuse_other_views(path: Path, main: RawImage, second: RawImage) -> None:
    told = read_json(path, "", 1_000_000)
    views = told.get("views", {}) if isinstance(told, dict) else {}
    for name, view in (("main", main), ("second", second)):
        taken = described_view(*view.image.shape[:2], view.flip)
        if isinstance(views, dict) and views.get(name, taken) != taken:
            raise DataError(
                f"{view.path} was taken as {taken}, and the homography of {path} is for "
                f"{one_line(views[name])}; hold the phone as for that, or align anew."
            )


def read_homography(path: Path) -> Float[np.ndarray, "3 3"]:
    """The homography from main to second pixels of a JSON file, as a matrix or as point pairs."""
    layout = '{"matrix": 3×3} or {"main": [[x, y], ...], "second": [[x, y], ...]}'
    content = read_json(path, f"Give --homography a JSON file, written as {layout}.", 1_000_000)
    if isinstance(content, dict):
        content.pop("views", None)
    try:
        arrays = {key: np.array(value, np.float64) for key, value in content.items()}
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise DataError(f"{path} does not hold a homography; write it as {layout}.") from error
    if not all(np.all(np.isfinite(array)) for array in arrays.values()):
        raise DataError(f"{path} holds a number that is not finite.")
    if arrays.keys() == {"matrix"}:
        return _checked_matrix(arrays["matrix"], path)
    if arrays.keys() == {"main", "second"}:
        return _homography_of_points(arrays["main"], arrays["second"], path)
    raise DataError(f"{path} has the keys {one_line(sorted(arrays))}; write it as {layout}.")


def _checked_matrix(matrix: Float[np.ndarray, "..."], path: Path) -> Float[np.ndarray, "3 3"]:
    if matrix.shape != (3, 3) or matrix[2, 2] == 0 or np.linalg.matrix_rank(matrix) < 3:
        raise DataError(
            f"{path}: the matrix must be an invertible 3×3 one with its lower right not 0."
        )
    return (matrix / matrix[2, 2]).astype(np.float32)


def _homography_of_points(
    main: Float[np.ndarray, "..."], second: Float[np.ndarray, "..."], path: Path
) -> Float[np.ndarray, "3 3"]:
    if main.shape != second.shape or main.ndim != 2 or main.shape[1] != 2 or len(main) < 4:
        raise DataError(f"{path}: main and second must hold the same number of [x, y], at least 4.")
    fit = fit_homography(jnp.asarray(main, jnp.float32), jnp.asarray(second, jnp.float32))
    if not fit.valid:
        raise DataError(
            f"{path}: the points give no homography; take at least four, paired in the same order, "
            "of which no three lie on one line."
        )
    return np.asarray(fit.homography)


def estimate_pair(
    main: RawImage,
    second: RawImage,
    homography: Float[np.ndarray, "3 3"],
    model: LoadedModel,
    factor: int,
) -> EstimateResult:
    """What the model says of two views.

    Raises:
      DataError: views that do not fit together or with the model.
    """
    thumbnails = align_thumbnails(main, second, homography, factor)
    inputs = look_at_thumbnails(thumbnails, model)
    counted = thumbnails.main[thumbnails.mask]
    condition = np.linalg.cond(counted)
    has_transform = bool(inputs.told) and condition <= MAX_CONDITION
    if model.needs_transform and not has_transform:
        raise DataError(
            f"{main.path}: the {len(counted)} averaged pixels seen by both views hold fewer than "
            "three independent colours, too few for a transform (condition number "
            f"{condition:.0f}, more than {MAX_CONDITION}); photograph a more colourful scene."
        )
    print(
        f"looked at {len(counted)} of {thumbnails.mask.size} averaged pixels; "
        f"condition number of their colours {condition:.1f}"
    )
    lights, warnings = _judge(model.tell(inputs), main, model)
    for light in lights:
        told = np.ones(3) if light is None else light.illuminant
        if not np.all((told > 1 / PLAUSIBLE) & (told < PLAUSIBLE)):
            raise DataError(
                f"{main.path}: the model's estimate {told} is no illuminant; use one for "
                f"these two cameras (this one is for {' and '.join(model.cameras)})."
            )
    transform = np.asarray(inputs.transform) if has_transform else None
    return EstimateResult(transform, lights, homography, warnings)


def look_at_thumbnails(thumbnails: Thumbnails, model: LoadedModel) -> PairInputs:
    """What the model tells lights from."""
    return model.look(
        jnp.asarray(thumbnails.main.reshape(-1, 3)),
        jnp.asarray(thumbnails.second.reshape(-1, 3)),
        jnp.asarray(thumbnails.mask.ravel(), jnp.float32),
    )


def _judge(
    lights: ToldLights, main: RawImage, model: LoadedModel
) -> tuple[ToldLights, tuple[str, ...]]:
    """Says how far the pair is from the training; leaves out what is much too far.

    Raises:
      DataError: the main light's inputs are.
    """
    warnings = []
    for view, light in lights._asdict().items():
        if light is None:
            continue
        distance, farther = float(light.novelty.distance), float(light.novelty.p_value)
        told = (
            f"{view} illuminant: out-of-distribution score {distance:.2f}, where 1 is the 99th "
            f"percentile of validation pairs; {farther:.0%} of them are as far"
        )
        if not distance <= MAX_NOVELTY:
            worthless = f"{told}. The estimate would be worthless"
            if view == "main":
                raise DataError(
                    f"{main.path}: {worthless}. Give files of the cameras it was trained for, "
                    f"{' and '.join(model.cameras)}, main one first, well aligned, or another "
                    "model."
                )
            lights = lights._replace(second=None)
            warnings.append(f"{worthless} and is left out.")
            continue
        print(told)
        if distance > 1:
            warnings.append(f"{told}. The estimate and its interval may be far from the truth.")
        if light.says_nothing:
            warnings.append(
                f"{view} illuminant: its interval has a radius of {light.interval.degrees:.1f} "
                "degrees, "
                "no less than that of the training illuminants alone: THE ESTIMATE IS "
                "UNINFORMATIVE."
            )
    return lights, tuple(warnings)


def align_thumbnails(
    main: RawImage, second: RawImage, homography: Float[np.ndarray, "3 3"], factor: int
) -> Thumbnails:
    """Both views on the main camera's grid, averaged over blocks of `factor` × `factor` pixels."""
    for view in (main, second):
        _check_pixels(view)
    shape = main.image.shape[:2]
    if not 1 <= factor <= min(shape):
        raise DataError(
            f"--downsample {factor} does not suit {main.path}; take 1 to {min(shape)} pixels."
        )

    layers = np.concatenate([second.image, second.saturated[..., None]], axis=-1)
    # Compiled, 12 megapixels take a second; operation by operation, four.
    warp = jax.jit(warp_image, static_argnames="shape")
    warped = warp(jnp.asarray(layers, jnp.float32), jnp.asarray(homography), shape)
    if not jnp.any(warped.mask):
        raise DataError(
            f"{second.path} does not overlap {main.path} under this homography; --homography must "
            "map main pixels (x, y) to second pixels, not the other way round."
        )
    usable = warped.mask & (warped.image[..., 3] == 0) & ~main.saturated
    small_main = area_downsample(jnp.asarray(main.image), factor, usable)
    small_second = area_downsample(warped.image[..., :3], factor, usable)
    if not jnp.any(small_main.mask):
        raise DataError(
            f"{main.path} and {second.path} share no block of {factor}×{factor} pixels that "
            "neither saturates; check their white levels, or expose less."
        )
    return Thumbnails(*map(np.asarray, (small_main.image, small_second.image, small_main.mask)))


def _check_pixels(view: RawImage) -> None:
    unfit = int(np.sum(~np.isfinite(view.image)))
    if unfit:
        raise DataError(f"{view.path} has {unfit} values that are NaN or infinite.")
    if not np.mean(view.image) > 0:
        raise DataError(
            f"{view.path} is all black above its black level {view.black_level.tolist()}; give "
            "another file, or the true level by --main-black-level or --second-black-level."
        )
