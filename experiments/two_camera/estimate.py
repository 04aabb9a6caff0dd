"""The illuminant of photos from their two raw views: align, fit the colour transform, ask the net.

    python -m experiments two-camera estimate main.dng second.dng --checkpoint model \
        --homography phone.json --output corrected

It takes seconds, prints the transform and the light with its interval, and writes the photo before
and after as a picture, corrected as a linear TIFF, and as a DNG with the light as AsShotNeutral.
The lights of all pairs are in lights.csv.
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

from data_pipelines.color.raw import RawImage, read_raw
from data_pipelines.errors import DataError
from data_pipelines.files import one_line, read_json
from data_pipelines.writing import make_folder
from everlight.color.alignment import area_downsample, fit_homography, warp_image
from everlight.models.illuminant_interval import COVERAGE
from everlight.models.illuminant_novelty import Novelty, novelty
from experiments.two_camera.corrections import Format, write_correction, write_lights
from experiments.two_camera.model_files import LoadedModel, ToldLight, ToldLights, load_model

PLAUSIBLE = 20
"""Of r/g and b/g and their inverses: more is no camera's answer to any light."""
# In units of the distance that 99 of 100 validation pairs stay below: from here on the net's answer
# is not given. Beyond 1 it is given with a warning.
MAX_NOVELTY = 3.0

# Of the averaged colours. The 1,853 photos of NUS-8 stay below 147; a grey wall, 0.2% noise: 900.
MAX_CONDITION = 300


@dataclass(frozen=True)
class EstimateSettings:
    """Estimate the illuminants of photos from the raw files of a phone's two cameras.

    Attributes:
      files: raw files: the main camera's, whose illuminant is estimated, the second camera's, and
        so on for more pairs of the same cameras.
      checkpoint: the trained nets.
      homography: JSON file: {"matrix": [[...], [...], [...]]} from main to second pixels, or
        {"main": [[x, y], ...], "second": [[x, y], ...]}, at least four points seen by both.
        Without it the views are taken as aligned.
      output: folder of what is written, named by the main files.
      formats: what is written: png, the photo before and after; tiff, corrected, linear, 16 bits;
        dng, the main file's sensor numbers with the light as AsShotNeutral.
      downsample: side of the blocks that are averaged before the fit, in pixels.
      main_black_level: instead of the main file's, in sensor units.
      main_white_level: instead of the main file's, in sensor units.
      second_black_level: instead of the second file's, in sensor units.
      second_white_level: instead of the second file's, in sensor units.
    """

    files: tyro.conf.Positional[tuple[Path, ...]]
    checkpoint: Path
    homography: Path | None = None
    output: Path = Path("corrected")
    formats: tuple[Format, ...] = get_args(Format)
    downsample: int = 6
    main_black_level: int | None = None
    main_white_level: int | None = None
    second_black_level: int | None = None
    second_white_level: int | None = None

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
      transform: of main colours to second's, in the scale that the net knows.
      lights: of the main view and, where there are nets for it, of the second.
      homography: from main to second pixels.
      novelty: how far the pair is from those of the net's training.
    """

    transform: Float[np.ndarray, "3 3"]
    lights: ToldLights
    homography: Float[np.ndarray, "3 3"]
    novelty: Novelty


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
        a pair is too far from what the net was trained on; the message names it and says what to
        do.
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
            f"{len(failures)} of {len(pairs)} pairs have no light, for the reasons above; the "
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
            f"white {view.white_level}; net trained for {trained_for}"
        )
    print(f"transform, main @ T = second:\n{np.array2string(result.transform, precision=4)}")
    for view, light in result.lights._asdict().items():
        if light is not None:
            print(f"light of the {view} view: {_describe(light)}")
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
        return f"{ratios}; no interval, as the nets were validated on too few pairs"
    low, high = light.interval.low, light.interval.high
    return (
        f"{ratios}; {COVERAGE:.0%} interval: r/g {low[0]:.4f} to {high[0]:.4f}, b/g {low[1]:.4f} "
        f"to {high[1]:.4f}, its farthest corner {light.interval.degrees:.1f} degrees from it"
    )


def _row(main: Path, second: Path, result: EstimateResult) -> dict[str, str]:
    """A line of lights.csv; the second view's cells are empty where no net tells its light."""
    row = {"main": str(main), "second": str(second)}
    for view, light in result.lights._asdict().items():
        interval = None if light is None else light.interval
        for place, ratio in enumerate(("r/g", "b/g")):
            row[f"{view} {ratio}"] = "" if light is None else f"{light.illuminant[2 * place]:.6f}"
            for end in ("low", "high"):
                known = "" if interval is None else f"{getattr(interval, end)[place]:.6f}"
                row[f"{view} {ratio} {end}"] = known
        row[f"{view} degrees"] = "" if interval is None else f"{interval.degrees:.3f}"
    return row | {"distance from training": f"{result.novelty.distance:.3f}"}


def choose_homography(
    path: Path | None, main: RawImage, second: RawImage
) -> Float[np.ndarray, "3 3"]:
    """The file's homography, or the identity where there is no file and the sizes agree."""
    if path is not None:
        return read_homography(path)
    if main.image.shape != second.image.shape:
        (height, width), (other_height, other_width) = main.image.shape[:2], second.image.shape[:2]
        raise DataError(
            f"{main.path} has {width}×{height} pixels and {second.path} {other_width}×"
            f"{other_height}, so they are not aligned; give their alignment by --homography."
        )
    return np.eye(3, dtype=np.float32)


def read_homography(path: Path) -> Float[np.ndarray, "3 3"]:
    """The homography from main to second pixels of a JSON file, as a matrix or as point pairs."""
    layout = '{"matrix": 3×3} or {"main": [[x, y], ...], "second": [[x, y], ...]}'
    content = read_json(path, f"Give --homography a JSON file, written as {layout}.", 1_000_000)
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
    """The transform between two views and the illuminant of the main one."""
    thumbnails = align_thumbnails(main, second, homography, factor)
    fit = model.fit_transform(
        jnp.asarray(thumbnails.main.reshape(-1, 3)),
        jnp.asarray(thumbnails.second.reshape(-1, 3)),
        jnp.asarray(thumbnails.mask.ravel(), jnp.float32),
    )
    counted = thumbnails.main[thumbnails.mask]
    condition = np.linalg.cond(counted)
    if not fit.valid or condition > MAX_CONDITION:
        raise DataError(
            f"{main.path}: the {len(counted)} averaged pixels seen by both views hold fewer than "
            "three independent colours, too few for a transform (condition number "
            f"{condition:.0f}, more than {MAX_CONDITION}); photograph a more colourful scene."
        )
    print(
        f"fitted on {len(counted)} of {thumbnails.mask.size} averaged pixels; "
        f"condition number of their colours {condition:.1f}"
    )
    how_new = novelty(model.familiar, fit.distance)
    _judge(how_new, main, model)
    lights = model.predict(fit.transform)
    for light in lights:
        told = np.ones(3) if light is None else light.illuminant
        if not np.all((told > 1 / PLAUSIBLE) & (told < PLAUSIBLE)):
            raise DataError(
                f"{main.path}: the net's estimate {told} is no light; use a net trained for "
                f"these two cameras (this one is for {' and '.join(model.cameras)})."
            )
    return EstimateResult(np.asarray(fit.transform), lights, homography, how_new)


def _judge(how_new: Novelty, main: RawImage, model: LoadedModel) -> None:
    """Says how far a pair is from the net's training; refuses one that is much too far."""
    distance, farther = float(how_new.distance), float(how_new.farther)
    told = (
        f"distance from the net's training {distance:.2f}, where 1 is what 99 of 100 validation "
        f"pairs stay below; {farther:.0%} of them are as far"
    )
    if not distance <= MAX_NOVELTY:
        raise DataError(
            f"{main.path}: {told}. The net's answer would be worthless. Give files of the cameras "
            f"it was trained for, {' and '.join(model.cameras)}, main one first, well aligned, or "
            "another net."
        )
    print(told)
    if distance > 1:
        print(
            f"WARNING: {main.path}: {told}. The light below and its interval may be far from the "
            "truth.",
            file=sys.stderr,
        )


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
