"""Texts of files and of other libraries that messages and reports quote."""

MAX_MESSAGE_LENGTH = 300
"""Limit on the characters quoted from another library's error message."""


def one_line(error: object) -> str:
    """Return an error's text on one line, cut to `MAX_MESSAGE_LENGTH` characters.

    Control characters and those that change the direction of text become question marks: a
    terminal would obey them.
    """
    text = " ".join(str(error).split())
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:MAX_MESSAGE_LENGTH]}..."


def printable(name: str) -> str:
    """Return a name with escapes for characters that cannot be printed, such as bad bytes."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in name
    )
