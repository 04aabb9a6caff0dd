"""Pictures of test samples with the answers of several methods."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, UInt8
from matplotlib.axes import Axes

from everlight.checks import checked
from everlight.errors import ArgumentError
from everlight.plots.style import COLORS, axes_or_new


@checked
def plot_answers(
    pictures: UInt8[np.ndarray, "n h w 3"],
    truths: Sequence[str],
    answers: Mapping[str, Sequence[str]],
    is_correct: Mapping[str, Bool[np.ndarray, "n"]],
    axes: Axes | None = None,
) -> Axes:
    """Draw a row per picture: the picture, the truth and every method's answer.

    A right answer is green, a wrong one is orange.

    Args:
      pictures: pictures, `[n, h, w, 3]`.
      truths: truth of each picture.
      answers: answers of each method.
      is_correct: true where a method's answer is right.
      axes: axes to draw on; None is new ones.

    Raises:
      ValueError: there is another number of answers than of pictures, or `is_correct` lacks a
        method.
    """
    for name, labels in {"truths": truths, **answers, **is_correct}.items():
        if len(labels) != len(pictures):
            raise ArgumentError(
                f"pictures holds {len(pictures)}, and {name} {len(labels)}; give one per picture"
            )
    missing = answers.keys() - is_correct.keys()
    if missing:
        raise ArgumentError(f"is_correct lacks {min(missing)!r}; give it for every key of answers")
    axes = axes_or_new(axes)
    axes.text(0.55, -0.15, "shown", fontsize=9)
    for column, name in enumerate(answers):
        axes.text(1.6 + column, -0.15, name, fontsize=9)
    for row, (picture, truth) in enumerate(zip(pictures, truths, strict=True)):
        axes.imshow(picture, extent=(0, 0.5, row + 0.96, row), interpolation="nearest")
        text = {"y": row + 0.5, "va": "center", "fontsize": 8}
        axes.text(0.55, s=truth, weight="bold", **text)
        for column, (name, texts) in enumerate(answers.items()):
            color = COLORS[2] if is_correct[name][row] else COLORS[1]
            axes.text(1.6 + column, s=texts[row], color=color, **text)
    axes.set(xlim=(0, 1.6 + len(answers)), ylim=(len(pictures), -0.5), aspect="auto")
    axes.axis("off")
    return axes
