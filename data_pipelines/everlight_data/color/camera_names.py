"""Names of cameras, which files and data sets spell in different ways."""

import re
from collections.abc import Sequence

UNNAMED = "unnamed camera"
"""Camera of files that name none."""


def is_same_camera(one: str, other: str) -> bool:
    """Return whether two names can be of one camera.

    Case, spaces and signs do not count, and one name may have further words: "Canon550D" is "Canon
    EOS 550D", "Canon1DsMkIII" is "Canon EOS-1Ds Mark III". The letters and digits of the shorter
    name must follow each other in the longer one, and all its numbers must be numbers there.
    """
    shorter, longer = sorted((_plain(one), _plain(other)), key=len)
    numbers = re.findall(r"\d+", longer)
    if not shorter or any(number not in numbers for number in re.findall(r"\d+", shorter)):
        return False
    rest = iter(longer)
    return all(letter in rest for letter in shorter)


def other_camera(camera: str | None, trained: Sequence[str], what: str = "") -> list[str]:
    """Return the warning for a photo by a camera on which a model was not trained, if it is one.

    Args:
      camera: camera of the photo; None, where it is unknown, gives no warning.
      trained: cameras of the training.
      what: photo in words, with which the warning begins.
    """
    known = any(each == UNNAMED or is_same_camera(camera or "", each) for each in trained)
    if not camera or known:
        return []
    return [
        f"{what}taken by {camera}, and the model was trained for {' or '.join(trained)}: across "
        "cameras errors are several times as large as the interval states."
    ]


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())
