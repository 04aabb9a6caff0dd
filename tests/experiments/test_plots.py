"""Names of any characters in pictures."""

import numpy as np
import pytest
from PIL import Image

from experiments.common.plots import new_canvas, save

NAMES = ("$", "$a_{$", "$x$ and $y$", r"\frac{", "100 $ _^{}\\", "é ☃", "<b>", "%s {0}")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_name_of_any_characters_is_drawn(tmp_path, name, scale):
    canvas, (axis, other) = new_canvas(2)
    axis.plot([1, 10, 1000], [0.001, 0.1, 10], label=name)
    axis.set(title=name, xlabel=name, ylabel=name, xscale=scale, yscale=scale)
    axis.legend(title=name)
    other.imshow(np.eye(2))
    other.set_xticks([0, 1], [name, name])
    other.text(0, 0, name)
    canvas.suptitle(name)
    with Image.open(save(canvas, tmp_path / "names.png")) as picture:
        assert picture.width > 100
    assert [path.name for path in tmp_path.iterdir()] == ["names.png"]


@pytest.mark.parametrize("base", [2, 10])
def test_logarithmic_axes_are_labelled_by_plain_numbers(tmp_path, base):
    canvas, (axis,) = new_canvas()
    axis.plot([1, 8, 1000], [1, 2, 3])
    axis.set_xscale("log", base=base)
    save(canvas, tmp_path / "log.png")
    labels = [label.get_text() for label in axis.get_xticklabels()]
    shown = [float(label) for label in labels if label]
    assert shown
    assert not set("".join(labels)) & set("$\\{}")
