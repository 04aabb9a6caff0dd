"""Names of cameras, which files and data sets spell in different ways."""

import re


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


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())
