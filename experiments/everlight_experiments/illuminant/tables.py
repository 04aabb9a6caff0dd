"""Tables of angular errors, with the paper's rows beside ours."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from everlight.metrics.angular import (
    ErrorSummary,
    angular_error,
    reproduction_error,
    summarize_errors,
)
from everlight.metrics.bootstrap import grouped_mean_interval
from everlight_experiments.common.report import PAPER, Column, Figure, FirstScreen, Table
from everlight_experiments.illuminant.paper import STATISTICS

# Statistics are taken within a fold and averaged over folds, as the paper does.
Errors = Mapping[str, Float[np.ndarray, "runs folds images"]]

OURS = ("mean", "median", "trimean", "best25", "worst25", "q1", "q3", "max")
OURS_NAMES = ("Mean", "95% interval", "Med", "Tri", "B25%", "W25%", "Q1", "Q3", "Max", "Invalid")

LEADERS = 3
"""Rows of the first screen's table that each condition gives."""
BASELINES = ("GW", "The phone's white balance")
"""What every method should be better than; of those that a run has the first is shown."""

SPELLED = {"GW": "Gray World (GW)"}
ABBREVIATIONS = (
    "Methods: GW is Gray World, SoG Shades-of-Gray, WP White Patch, GE Gray Edge, WGE Weighted "
    "Gray Edge. T is the inter-camera colour transform, a 3x3 matrix; moments are the colour "
    "moments of one image."
)
"""Names that every section of angular errors explains."""
MOST_CURVES = 8
"""Curves of a panel."""

REPRODUCTION = "reproduction, degrees"
REPRODUCTION_NAMES = {"mean": "Mean", "median": "Med", "worst25": "W25%"}

mean_interval = jax.jit(grouped_mean_interval, static_argnames="count")
summarize_all = jax.jit(jax.vmap(jax.vmap(summarize_errors)))
angular_errors = jax.jit(jnp.vectorize(angular_error, signature="(c),(c)->()"))
reproduction_errors = jax.jit(jnp.vectorize(reproduction_error, signature="(c),(c)->()"))


@partial(jax.jit, static_argnums=0)
def estimate_all(
    estimator: Callable, images: Float[Array, "n h w 3"], masks: Float[Array, "n h w"], *fitted: Any
) -> Float[Array, "n 3"]:
    """`estimator(*fitted, image, mask)` on every image, a few at a time to bound memory.

    By forties, which many numbers of images are multiples of: a rest would be compiled too.
    """
    return jax.lax.map(lambda one: estimator(*fitted, *one), (images, masks), batch_size=40)


class Comparison(NamedTuple):
    """Lights by method, `[runs, folds, k, 3]`, and what they are compared with."""

    estimates: Mapping[str, Float[np.ndarray, "runs folds k 3"]]
    truth: Float[np.ndarray, "*runs folds k 3"]

    def errors(self) -> dict[str, Float[np.ndarray, "runs folds k"]]:
        """Recovery angular errors in degrees."""
        return {
            name: np.asarray(angular_errors(lights, self.truth))
            for name, lights in self.estimates.items()
        }

    def reproduction(self) -> dict[str, Float[np.ndarray, "runs folds k"]]:
        """Reproduction angular errors in degrees."""
        return {
            name: np.asarray(reproduction_errors(lights, self.truth))
            for name, lights in self.estimates.items()
        }


class Resampled(NamedTuple):
    """What the interval's bootstrap draws: its name, and to which of them each image belongs."""

    name: str
    of_images: Int[np.ndarray, "folds images"]


def error_table(
    caption: str,
    compared: Comparison,
    paper: Mapping[str, Sequence[float]],
    runs: str,
    resampled: Resampled | None = None,
    seed: int = 0,
) -> Table:
    """One row a method: our statistics over images, mean over runs, beside the paper's if any.

    Methods that the paper alone has follow as "not run".

    Args:
      caption: what was measured, on which data.
      compared: every method's lights, of the same images in every run.
      paper: the paper's statistics by method, in the order of its columns.
      runs: what a run is ("camera pairs", "seeds"), for the caption.
      resampled: what is independent where images are not, such as lights.
      seed: of the bootstrap.
    """
    errors, reproduction = compared.errors(), compared.reproduction()
    columns = [Column("Method")]
    columns += [Column(name, "ours, degrees") for name in OURS_NAMES]
    columns += [Column(name, REPRODUCTION) for name in REPRODUCTION_NAMES.values()]
    columns += [Column(name, PAPER) for name in STATISTICS]
    rows = []
    for name, values in errors.items():
        ours = _statistics(values, resampled, seed) + _reproduced(reproduction[name])
        rows.append([name, *ours, *_of_paper(paper.get(name, ()))])
    silent = len(OURS_NAMES) + len(REPRODUCTION_NAMES) - 1
    for name in paper:
        if name not in errors:
            rows.append([name, "not run", *["–"] * silent, *_of_paper(paper[name])])
    several = max(len(values) for values in errors.values()) > 1
    if several:
        caption += f" Statistics are means over {runs}; ± is the standard deviation."
    drawn = "images" if resampled is None else resampled.name
    caption += f" The interval of the mean is a bootstrap over {drawn}."
    best = int(np.argmin([np.nanmean(values) for values in errors.values()]))
    return Table(caption, columns, rows, frozenset({best}))


def first_screen(
    data: str,
    figure: Figure,
    conditions: Mapping[str, Errors],
    paper: Mapping[str, Sequence[float]],
    resampled: Mapping[str, Resampled] | None = None,
) -> FirstScreen:
    """Return the best method of each condition with its interval, and the baseline.

    Args:
      data: name of the data.
      figure: figure beside the table.
      conditions: angular errors in degrees by condition and method.
      paper: the paper's statistics by method, the mean first.
      resampled: units of each condition's bootstrap; None is images.
    """
    means = {
        condition: {
            name: np.nanmean(values, axis=2).mean(axis=1)
            for name, values in by_method.items()
            if np.isfinite(values).any(axis=2).all()
        }
        for condition, by_method in conditions.items()
    }
    ranked = {
        condition: sorted(by_method, key=lambda name, of=by_method: np.mean(of[name]))
        for condition, by_method in means.items()
    }
    names = dict.fromkeys(name for order in ranked.values() for name in order[:LEADERS])
    every = next(iter(means.values()))
    baseline = next((name for name in BASELINES if name in every), None)
    if baseline is not None:
        names[baseline] = None
    best, simple = [], []
    for condition, order in ranked.items():
        by_method, values = means[condition], conditions[condition][order[0]]
        interval = _interval(values, (resampled or {}).get(condition))
        best.append(f"{order[0]}, {np.mean(by_method[order[0]]):.2f} [{interval}] ({condition})")
        if baseline in by_method:
            simple.append(f"{spread(by_method[baseline])} ({condition})")
    rows = [
        [
            name,
            *(spread(of[name]) if name in of else "–" for of in means.values()),
            f"{paper[name][0]:.2f}" if name in paper else "–",
        ]
        for name in sorted(names, key=lambda name: np.mean(every.get(name, np.inf)))
    ]
    columns = [Column("Method"), *map(Column, conditions), Column("Mean", PAPER)]
    beside = "" if baseline is None else f", and {baseline}"
    caption = (
        f"{data}. Mean angular error in degrees of the {LEADERS} best methods of each "
        f"condition{beside}. The tables below have all methods."
    )
    said = [
        "Which method has the lowest mean angular error?",
        f"Best, in degrees with 95% interval: {'; '.join(best)}.",
    ]
    if simple:
        said.append(f"Baseline, {SPELLED.get(baseline, baseline)}: {'; '.join(simple)}.")
    return FirstScreen(tuple(said), figure, Table(caption, columns, rows))


def curves_with_least(
    names: Sequence[str], conditions: Mapping[str, Errors]
) -> dict[str, dict[str, np.ndarray]]:
    """Return errors of the methods named, and of the best of each condition, by condition.

    At most `MOST_CURVES` are kept, and none that some condition lacks.
    """
    common = [
        name
        for name in next(iter(conditions.values()))
        if all(name in by_method for by_method in conditions.values())
    ]
    seen = [
        name
        for name in common
        if all(np.isfinite(by_method[name]).any() for by_method in conditions.values())
    ]
    least = [
        min(seen, key=lambda name, of=by_method: np.nanmean(of[name]))
        for by_method in conditions.values()
    ]
    named = [name for name in names if name in common and name not in least]
    few = {*named[: MOST_CURVES - len({*least})], *least}
    shown = dict.fromkeys(name for name in (*names, *least) if name in few)
    return {
        condition: {name: by_method[name] for name in shown}
        for condition, by_method in conditions.items()
    }


def spread(values: Float[np.ndarray, "runs"]) -> str:
    """Mean, and sample deviation where there is one, of numbers in degrees."""
    mean = f"{np.mean(values):.2f}"
    return f"{mean} ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else mean


def _of_paper(theirs: Sequence[float]) -> list[str]:
    return [f"{value:.2f}" for value in theirs] + ["–"] * (len(STATISTICS) - len(theirs))


def _reproduced(values: Float[np.ndarray, "runs folds images"]) -> list[str]:
    per_fold: ErrorSummary = summarize_all(jnp.asarray(values))
    return [f"{np.mean(getattr(per_fold, name)):.2f}" for name in REPRODUCTION_NAMES]


def _interval(
    values: Float[np.ndarray, "runs folds images"], resampled: Resampled | None, seed: int = 0
) -> str:
    """Return the bootstrap interval of the mean over images."""
    images = jnp.nanmean(values, axis=0).ravel()
    owners = np.arange(images.size) if resampled is None else resampled.of_images.ravel()
    named, groups = np.unique(owners, return_inverse=True)
    interval = mean_interval(jax.random.key(seed), images, groups, count=len(named))
    return f"{interval.low:.2f}–{interval.high:.2f}"


def _statistics(
    values: Float[np.ndarray, "runs folds images"], resampled: Resampled | None, seed: int
) -> list[str]:
    per_fold: ErrorSummary = summarize_all(jnp.asarray(values))
    per_run = {name: np.mean(value, axis=1) for name, value in per_fold._asdict().items()}
    return [
        spread(per_run["mean"]),
        _interval(values, resampled, seed),
        *[f"{np.mean(per_run[name]):.2f}" for name in OURS[1:]],
        str(int(np.sum(per_fold.invalid))),
    ]
